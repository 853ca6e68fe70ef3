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
  would look like a crash to the next owner. The primary waits for the holder to see the generation, `grace` at most.
* EXCLUSIVE. A second bind is refused, so the primary reports `asks` and retries every `primary_retry`; the holder
  drains and releases. Standbys retry slowly, by rank, and not while the primary asks.

Reports (`Reports.bound`): a primary reports its own standing; a waiting standby the standing of the primary that was
bound when the standby registered. So `standby's report >= primary's report` says: registered behind it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lbg.core.membership import NOWHERE, Standing
from lbg.core.roles import Direction, Role


class State(enum.StrEnum):
    """Where a consumer stands with one queue."""

    DETACHED = "detached"
    BINDING = "binding"
    WAITING = "waiting"  # bound; nothing was delivered yet
    ACTIVATING = "activating"  # first delivery seen, ledger being read and raised
    ACTIVE = "active"
    DRAINING = "draining"  # starts nothing, waits for what is in hand
    RELEASING = "releasing"


class Event(enum.StrEnum):
    """What can happen to the machine, besides time and new directions."""

    BIND = "bind"
    BOUND = "bound"
    REFUSED = "refused"
    DELIVERED = "first delivery"
    ACTIVATED = "ledger raised"
    HAND_OVER = "hand over"
    EMPTIED = "empty-handed"
    LEAVE = "leave"
    FORCE = "budget exceeded"
    RELEASED = "released"
    LOST = "lost"


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


class Ability(enum.StrEnum):
    """How queues move on this broker; same names as the adapters' declaration."""

    COOPERATIVE = "cooperative"
    BROKER = "broker"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a link, with a priority that only BROKER looks at."""

    priority: int


@dataclass(frozen=True, slots=True)
class Activate:
    """Read the ledger, raise its epoch, then call `activated`."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Start no handler of this queue any more; call `emptied` once nothing is in hand."""


@dataclass(frozen=True, slots=True)
class Release:
    """Let the link go, then call `released`. `clean`: write the ledger clean first."""

    clean: bool


Action: TypeAlias = Bind | Activate | Drain | Release


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds. The defaults are for real brokers; tests and the simulation pass their own."""

    grace: float = 1.0  # how long others are waited for before going on without them
    aside_limit: float = 2.0
    primary_retry: float = 0.02
    standby_retry: float = 0.3  # times rank + 1
    lost_retry: float = 0.05
    offer_limit: float = 5.0  # how long an offered queue waits for its next primary on SIGTERM
    drain_budget: float = 30.0
    force: bool = False  # onBudgetExceeded: Force


@dataclass(slots=True)
class Reports:
    """What goes onto the seat about this queue."""

    bound: Standing | None = None
    asks: Standing | None = None
    stalled: bool = False


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
    _retry_at: float = 0.0
    _primary_since: float | None = None  # when the primary was first seen bound
    _drain_since: float = 0.0
    _stop_at: float | None = None
    _connected: bool = True
    _adopted: bool = False
    _binds: int = 0
    _behind: Standing = NOWHERE
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
        if direction.primary is None:
            self._primary_since = None
        elif self._primary_since is None:
            self._primary_since = now
        if direction.role is Role.PRIMARY:
            self._adopted = False
            if (before is None or before.role is not Role.PRIMARY) and self._has_link():
                self._stand_as_primary()
        return self._decide(now)

    def connect(self, connected: bool, now: float) -> list[Action]:
        """Learn that the session is up, or gone (call `lost` as well when there was a link)."""
        self._connected = connected
        return self._decide(now)

    def bound(self, now: float) -> list[Action]:
        """Learn that the bind was accepted."""
        self._move(Event.BOUND)
        self.reports.asks = None
        if self._role() is Role.PRIMARY:
            self._stand_as_primary()
        else:
            self.reports.bound = self._behind
        return self._decide(now)

    def refused(self, now: float) -> list[Action]:
        """Learn that the bind was refused: the queue is held exclusively, or cannot be bound now."""
        self._move(Event.REFUSED)
        direction = self.direction
        if direction is not None and direction.role is Role.PRIMARY:
            if self.ability is Ability.EXCLUSIVE:
                self.reports.asks = Standing(direction.generation, direction.term, self._binds)
            self._retry_at = now + self.timing.primary_retry
        else:
            rank = direction.rank if direction is not None else 0
            self._retry_at = now + self.timing.standby_retry * (rank + 1)
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
        if self.state is State.DETACHED:
            self._adopted = True
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
        limit = self._since + self.timing.grace
        if self.ability is Ability.COOPERATIVE and role is Role.STANDBY:
            # Ahead of the primary a standby would be activated in its place and cost one more move.
            return 0.0 if direction.primary is not None or direction.primary_absent or self._adopted else limit
        if self.ability is Ability.BROKER and role is Role.PRIMARY:
            return 0.0 if direction.aware else limit
        if self.ability is Ability.EXCLUSIVE and role is Role.STANDBY and direction.primary_asks:
            # Slower, not never: the one that asks may have died since, and failover must not need the store.
            return max(self._retry_at, self._since) + 3 * self.timing.standby_retry * (direction.rank + 1)
        return 0.0

    def _must_leave(self, direction: Direction) -> bool:
        """Return whether a waiting link is in the wrong place."""
        role = self._role()
        if self._stop_at is not None or direction.must_release or role is Role.NONE:
            return True
        if self.ability is Ability.BROKER:
            return (self._priority > 0) is not (role is Role.PRIMARY)
        if role is Role.PRIMARY:
            return False
        if self.ability is Ability.EXCLUSIVE:
            return direction.primary_asks
        return direction.primary is not None and (self.reports.bound or NOWHERE) < direction.primary

    def _must_hand_over(self, direction: Direction, now: float) -> bool:
        """Return whether the active link should go to somebody who stands ready."""
        if direction.must_release:
            return True
        if self._stop_at is not None and now >= self._stop_at:
            return True
        if self._stop_at is not None:
            self._wake(self._stop_at)
        if direction.role is Role.PRIMARY:
            return False
        if self.ability is Ability.EXCLUSIVE:
            return direction.primary_asks
        if self._primary_since is None:
            return False
        patience_until = self._primary_since + self.timing.aside_limit
        if self.ability is Ability.COOPERATIVE and not direction.aside and now < patience_until:
            self._wake(patience_until)
            return False
        return True

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
        if self._adopted and self.direction.role is Role.NONE:
            # An adopted queue is served until its primary is there; then this is nobody's business here any more.
            return Role.NONE if self._primary_since is not None else Role.STANDBY
        return self.direction.role

    def _has_link(self) -> bool:
        return self.state in (State.WAITING, State.ACTIVATING, State.ACTIVE)

    def _stand_as_primary(self) -> None:
        assert self.direction is not None
        self.reports.bound = Standing(self.direction.generation, self.direction.term, self._binds)

    def _release(self, event: Event, *, clean: bool) -> list[Action]:
        self._move(event)
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
