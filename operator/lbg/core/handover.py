"""The handover machine: one consumer's part in one queue's life. Sans-I/O: events in, actions out, time is a parameter.

Theory of operation
-------------------
Two rules. First: this file decides, the broker enforces. Whatever is decided here, at most one link is active, and the
machine only chooses when to bind, when to stop starting handlers, and when to let go. Second: an active link is
let go only empty-handed (nothing in hand, everything finished acknowledged, ledger written clean), except by loss or
by `onBudgetExceeded: Force`.

States and what moves them:

    DETACHED ---bind--> BINDING ---bound--> WAITING ---first delivery--> ACTIVATING ---ledger raised--> ACTIVE
        ^                  | refused           | leave                                                    | hand over
        |                  v                   v                                                          v
        +------------- (retry later)       RELEASING <-----------------------empty-handed------------- DRAINING
        ^                                      | released
        +--------------------------------------+            lost, from any state with a link: DETACHED

When to hand over depends on the broker's ability; in each the holder keeps serving until the primary stands ready:

* COOPERATIVE. Links wait in order of registration. The primary binds and reports `bound`. Waiting links that may be
  registered ahead of it step aside (release, bind again behind it). Then the holder drains and releases, and the broker
  activates the primary, the first in line. If somebody does not step aside within `aside_limit`, the holder goes on:
  the wrong standby is activated, sees the primary bound, and hands over in turn. One more planned move, no duplicate.
* BROKER. The primary's bind carries a strictly higher priority, so its arrival is enough: the broker feeds the holder
  nothing more and switches when the holder has nothing unacknowledged. A holder that is not the primary therefore
  writes its ledger clean *before* the acknowledgement that may leave it empty (`guards_last_ack`), else the switch
  would look like a crash to the next owner. The primary waits for the holder to see the generation, `grace` at most;
  a holder that learns later is switched away with an unclean ledger: its successor doubts the marks, and loses nothing.
* EXCLUSIVE. A second bind is refused, so the primary reports `asks` and retries every `primary_retry`; the holder
  drains and releases. Standbys retry slowly, by rank, and more slowly while the primary asks. The primary asks anew
  every `ask_again`.

Reports (`Reports.bound`): a primary reports its own standing; a waiting standby the standing of the primary that was
bound when the standby registered. So `standby's report >= primary's report` says: registered behind it.

Reports outlive those who made them: after a crash the seat says `bound`, or `asks`, until it is claimed or cleared. So
only *news* moves a queue. A standing counts against a link only if it is newer than the one that the link registered
behind (whoever is activated in spite of that one sees that its link is gone), and a queue is let go once per `asks`
(whoever did not take it then is gone). Otherwise the survivor of a crash would hand over to the dead, again and again.

So a planned change moves a queue once, and a fault moves it away and back. Looks later than the limits in `Timing` cost
at most one more move for each of these. design/0002-handover.md has the table as a diagram, and the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from lbg.core.handover_terms import (
    Ability,
    Action,
    Activate,
    Bind,
    Drain,
    Event,
    Release,
    Reports,
    State,
    Timing,
)
from lbg.core.membership import NOWHERE, Standing
from lbg.core.roles import Direction, Role

__all__ = [
    "TRANSITIONS",
    "Ability",
    "Action",
    "Activate",
    "Bind",
    "Drain",
    "Event",
    "Handover",
    "Release",
    "Reports",
    "State",
    "Timing",
    "priority_of",
]

TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.DETACHED, Event.BIND): State.BINDING,
    (State.BINDING, Event.BOUND): State.WAITING,
    (State.BINDING, Event.REFUSED): State.DETACHED,
    (State.BINDING, Event.LOST): State.DETACHED,
    (State.WAITING, Event.DELIVERED): State.ACTIVATING,
    (State.WAITING, Event.LEAVE): State.RELEASING,
    (State.WAITING, Event.LOST): State.DETACHED,
    (State.ACTIVATING, Event.ACTIVATED): State.ACTIVE,
    (State.ACTIVATING, Event.LOST): State.DETACHED,
    (State.ACTIVE, Event.HAND_OVER): State.DRAINING,
    (State.ACTIVE, Event.LOST): State.DETACHED,
    (State.DRAINING, Event.EMPTIED): State.RELEASING,
    (State.DRAINING, Event.FORCE): State.RELEASING,
    (State.DRAINING, Event.LOST): State.DETACHED,
    (State.RELEASING, Event.RELEASED): State.DETACHED,
    (State.RELEASING, Event.LOST): State.DETACHED,
}
"""The whole machine. What is not in it is a programming error, and raises."""


def priority_of(generation: int, term: int) -> int:
    """Pack (generation, term) into one integer that grows with either, generation first; standbys use 0."""
    return (generation << 24) + min(term, (1 << 24) - 1)


@dataclass(slots=True)
class Handover:
    """The machine of one queue in one consumer."""

    ability: Ability
    timing: Timing = field(default_factory=Timing)
    state: State = State.DETACHED
    reports: Reports = field(default_factory=Reports)
    wake_at: float | None = None  # call `tick` then
    direction: Direction | None = None
    _since: float = 0.0  # when the role last changed
    _retry_at: float = float("-inf")  # no bind before
    _primary_since: float = 0.0  # when the primary's present standing was first seen
    _drain_since: float = 0.0
    _stop_at: float | None = None
    _connected: bool = True
    _adopted: bool = False
    _binds: int = 0
    _behind: Standing = NOWHERE  # the primary's standing when this link registered
    _yielded_to: Standing = NOWHERE  # the latest `asks` that this consumer let the queue go for
    _asked_at: float = 0.0
    _priority: int = 0

    @property
    def guards_last_ack(self) -> bool:
        """Return whether the ledger must be clean before an acknowledgement that may leave the link empty."""
        if self.ability is not Ability.BROKER or self.state not in (State.ACTIVE, State.DRAINING):
            return False
        return self._stop_at is not None or self._role() is not Role.PRIMARY

    @property
    def is_at_rest(self) -> bool:
        """Return whether there is no link and none is on its way."""
        return self.state is State.DETACHED

    # -- events ---------------------------------------------------------------------------------------------------

    def direct(self, direction: Direction, now: float) -> list[Action]:
        """Take a new look at the membership. Cheap when nothing changed."""
        before = self.direction
        self.direction = direction
        if before is None or (before.role, before.generation) != (direction.role, direction.generation):
            self._since = now
        if before is None or before.primary != direction.primary:
            self._primary_since = now
        if direction.role is not Role.NONE:
            self._adopted = False
        if direction.role is Role.PRIMARY and (before is None or before.role is not Role.PRIMARY):
            # A link on its way out does not stand: nobody should hand over to it.
            self.reports.bound = self._own_standing() if self._has_link() else None
        elif self.ability is Ability.BROKER and self.state is State.WAITING and direction.role is Role.STANDBY:
            # Behind by priority, whichever registered first.
            self._behind = self.reports.bound = max(self._behind, direction.primary or NOWHERE)
        return self._decide(now)

    def connect(self, connected: bool, now: float) -> list[Action]:
        """Learn that the session is up, or gone (call `lost` as well when there was a link)."""
        self._connected = connected
        return self._decide(now)

    def bound(self, now: float) -> list[Action]:
        """Learn that the bind was accepted."""
        self._move(Event.BOUND)
        self.reports.asks = None
        self.reports.bound = self._own_standing() if self._role() is Role.PRIMARY else self._behind
        return self._decide(now)

    def refused(self, now: float) -> list[Action]:
        """Learn that the bind was refused: the queue is held exclusively, or cannot be bound now."""
        self._move(Event.REFUSED)
        if self._role() is Role.PRIMARY:
            self._retry_at = now + self.timing.primary_retry
            if self.ability is Ability.EXCLUSIVE:
                self._ask(now)
        else:
            self._retry_at = now + self._standby_retry()
        return self._decide(now)

    def delivered(self) -> list[Action]:
        """Learn of the first delivery: this link is active."""
        self._move(Event.DELIVERED)
        return [Activate()]

    def activated(self, now: float) -> list[Action]:
        """Learn that the epoch was raised (or that the ledger is unreadable and work goes on without it)."""
        self._move(Event.ACTIVATED)
        return self._decide(now)

    def emptied(self) -> list[Action]:
        """Learn that nothing is in hand. Ignored unless draining."""
        if self.state is not State.DRAINING:
            return []
        return self._release(Event.EMPTIED, clean=True)

    def released(self, now: float) -> list[Action]:
        """Learn that the broker has taken the release."""
        self._move(Event.RELEASED)
        self._detached()
        if self.ability is Ability.EXCLUSIVE and self._role() is not Role.PRIMARY:
            self._retry_at = now + self._standby_retry()  # whoever it was released for comes first
        return self._decide(now)

    def lost(self, now: float) -> list[Action]:
        """Learn that the link is gone, and ownership with it."""
        if self.state is not State.DETACHED:
            self._move(Event.LOST)
            self._detached()
            self._retry_at = now + self.timing.lost_retry
        return self._decide(now)

    def adopt(self, now: float) -> list[Action]:
        """Bind a queue that nobody is bound to, whatever the role; let go again once its primary is there."""
        if self.state is State.DETACHED and self.direction is not None and not self.direction.must_release:
            self._adopted = True
            self._behind = self.direction.primary or NOWHERE  # who reports to be bound is not
        return self._decide(now)

    def stop(self, now: float) -> list[Action]:
        """SIGTERM: leave waiting links, wait a moment for the next primary, then hand over regardless; bind nothing."""
        if self._stop_at is None:
            self._stop_at = now + self.timing.offer_limit
        return self._decide(now)

    def tick(self, now: float) -> list[Action]:
        """Let time pass."""
        return self._decide(now)

    # -- decisions ------------------------------------------------------------------------------------------------

    def _decide(self, now: float) -> list[Action]:
        self.wake_at = None
        if self.direction is None:
            return []
        if self.state is State.DETACHED:
            return self._decide_bind(self.direction, now)
        if self.state is State.WAITING:
            return self._release(Event.LEAVE, clean=False) if self._must_leave(self.direction) else []
        if self.state is State.ACTIVE and self._must_hand_over(self.direction, now):
            self._move(Event.HAND_OVER)
            self._drain_since = now
            self._wake(now + self.timing.drain_budget)
            return [Drain()]
        if self.state is State.DRAINING:
            return self._watch_budget(now)
        return []

    def _decide_bind(self, direction: Direction, now: float) -> list[Action]:
        role = self._role()
        if self._stop_at is not None or not self._connected or direction.must_release or role is Role.NONE:
            self.reports.asks = None
            return []
        if role is Role.STANDBY:
            self.reports.asks = None
        ready_at = max(self._retry_at, self._patience(direction, role))
        if now < ready_at:
            self._wake(ready_at)
            return []
        self._binds += 1
        self._behind = direction.primary or NOWHERE
        self._priority = 0
        if role is Role.PRIMARY and self.ability is Ability.BROKER:
            self._priority = priority_of(direction.generation, direction.term)
        self._move(Event.BIND)
        return [Bind(self._priority)]

    def _patience(self, direction: Direction, role: Role) -> float:
        """Return the time until which a bind would come too early."""
        at_once, late = self._since, self._since + self.timing.grace
        if role is Role.PRIMARY:
            return late if self.ability is Ability.BROKER and not direction.aware else at_once
        if self._adopted:
            return at_once
        if self.ability is Ability.EXCLUSIVE and direction.primary_asks is not None:
            return self._since + self._standby_retry()
        # Ahead of the primary a standby would be activated in its place and cost one more move.
        return at_once if direction.primary is not None or direction.primary_absent else late

    def _must_leave(self, direction: Direction) -> bool:
        """Return whether a waiting link is in the wrong place."""
        role = self._role()
        if self._stop_at is not None or direction.must_release or role is Role.NONE:
            return True
        if self.ability is Ability.BROKER:
            return (self._priority > 0) is not (role is Role.PRIMARY)
        if role is Role.PRIMARY:
            return False
        return self._is_called_on(direction)

    def _must_hand_over(self, direction: Direction, now: float) -> bool:
        """Return whether the active link should go to somebody who stands ready."""
        if direction.must_release:
            return True
        if self._stop_at is not None and now >= self._stop_at:
            return True
        if self._stop_at is not None:
            self._wake(self._stop_at)
        if direction.role is Role.PRIMARY or not self._is_called_on(direction):
            return False
        patience_until = self._primary_since + self.timing.aside_limit
        if self.ability is Ability.COOPERATIVE and not direction.aside and now < patience_until:
            self._wake(patience_until)
            return False
        return True

    def _is_called_on(self, direction: Direction) -> bool:
        """Return whether there is news of the primary: it stands ready, or asks, since this link registered."""
        if self.ability is Ability.EXCLUSIVE:
            return direction.primary_asks is not None and direction.primary_asks > self._yielded_to
        return direction.primary is not None and direction.primary > self._behind

    def _watch_budget(self, now: float) -> list[Action]:
        limit = self._drain_since + self.timing.drain_budget
        if now < limit:
            self._wake(limit)
            return []
        self.reports.stalled = True
        return self._release(Event.FORCE, clean=False) if self.timing.force else []

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _role(self) -> Role:
        if self.direction is None:
            return Role.NONE
        if self._adopted and not self._is_called_on(self.direction):
            # An adopted queue is served until its primary is there; then this is nobody's business here any more.
            return Role.STANDBY
        return self.direction.role

    def _has_link(self) -> bool:
        return self.state in (State.WAITING, State.ACTIVATING, State.ACTIVE)

    def _own_standing(self) -> Standing:
        assert self.direction is not None
        return Standing(self.direction.generation, self.direction.term, self._binds)

    def _ask(self, now: float) -> None:
        """Ask for the queue; seldom anew, since each time is a write to the seat."""
        asks, standing = self.reports.asks, self._own_standing()
        if asks is None or asks[:2] != standing[:2] or now >= self._asked_at + self.timing.ask_again:
            self.reports.asks = standing
            self._asked_at = now

    def _standby_retry(self) -> float:
        """Return the pace at which a standby tries an exclusive queue: the primary comes first, then by rank."""
        assert self.direction is not None
        # While the primary asks slower, not never: it may have died since, and failover must not need the store.
        pace = self.timing.standby_retry * (1 if self.direction.primary_asks is None else 4)
        return pace * (self.direction.rank + 1)

    def _release(self, event: Event, *, clean: bool) -> list[Action]:
        self._move(event)
        assert self.direction is not None
        self._yielded_to = max(self._yielded_to, self.direction.primary_asks or NOWHERE)
        if self._role() is Role.PRIMARY:
            # Nobody should drain towards a primary that is on its way out. A standby's report stays until the
            # broker has taken the release: until then it may still be registered ahead.
            self.reports.bound = None
        return [Release(clean)]

    def _detached(self) -> None:
        self.reports.bound = None
        self.reports.stalled = False
        self._adopted = False

    def _move(self, event: Event) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise AssertionError(f"handover: {event} cannot happen while {self.state}") from None

    def _wake(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)
