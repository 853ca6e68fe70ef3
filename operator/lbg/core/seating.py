"""The seat machine: how one consumer claims, keeps, moves and offers a seat. Sans-I/O, one compare-and-swap at a time.

Theory of operation
-------------------
A seat gives a preference (an ordinal), never a permission, so losing one costs a move and not an event.

* *Expiry* is judged by local monotonic time since the last *observed* change of the record, and time in which the store
  could not be read does not count: an unreadable store must not make everybody's seat expire at once. Nor does time in
  which this process did not look: whoever was paused itself cannot know whether others could renew. Two clocks are
  never compared.
* *Renewal* every 10 s; urgent reports (what is bound, what is asked for, being connected) are written at once.
* *Giving up*: 20 s without a successful renewal and the holder counts itself unseated. It loses only the right to new
  terms: bindings stay until another holder or another CC is observed.
* *Claiming*: the lowest seat below desired CC that is vacant, offered or expired. A process finds the seat of its own
  pod's previous life (same pod, other nonce) and takes it at once, since a container restart must not cost 30 s.
* *Compaction*: a holder whose seat lies at or beyond what the group wants or serves moves to the lowest free seat, so
  that the group converges whichever pod was removed. It claims first and clears after: in between it holds two, and
  counts as the lower one.
* *Offering* on SIGTERM: the seat stays held and is marked, so that a waiting pod claims it while this one still serves.

The driver feeds `observed` or `unreadable`, performs the one write it is given, and answers with `written`; when
somebody else wrote first it observes again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from lbg.core.membership import Membership, Seat, Summary
from lbg.core.roles import own_seat

DURATION: Final = 30.0
RENEW_EVERY: Final = 10.0
GIVE_UP_AFTER: Final = 20.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Identity of one process: the pod, and a nonce, since a container restart keeps the pod's UID."""

    pod: str  # name _ UID
    nonce: str

    def __str__(self) -> str:
        return f"{self.pod}_{self.nonce}"

    def is_earlier_life_of(self, identity: str | None) -> bool:
        """Return whether an identity is this pod's, from another process."""
        return identity is not None and identity != str(self) and identity.rpartition("_")[0] == self.pod


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds; `renew_every < give_up_after < duration`."""

    duration: float = DURATION
    renew_every: float = RENEW_EVERY
    give_up_after: float = GIVE_UP_AFTER


@dataclass(slots=True)
class _Watch:
    holder: str | None
    renewals: int
    changed_at: float  # on the readable clock


@dataclass(slots=True)
class Seating:
    """The machine of one consumer process."""

    me: Holder
    timing: Timing = field(default_factory=Timing)
    seat: Seat | None = None  # the one that counts as ours
    generation: int = 0  # highest seen
    _summary: Summary = field(default_factory=Summary)
    _urgent: bool = False
    _stopping: bool = False
    _leaving: bool = False
    _renewed_at: float = float("-inf")
    _readable: float = 0.0  # a clock that stands still while the store cannot be read
    _read_at: float | None = None
    _watches: dict[int, _Watch] = field(default_factory=dict)
    _seen: Membership | None = None

    @property
    def ordinal(self) -> int | None:
        """Return the ordinal of the own seat, or None."""
        return self.seat.ordinal if self.seat is not None else None

    def report(self, summary: Summary, *, urgent: bool) -> None:
        """Set what the next write says; `urgent` makes it happen with the next `next_write`."""
        self._summary = summary
        self._urgent = self._urgent or urgent

    def stop(self) -> None:
        """Offer the seat: the process is asked to end."""
        self._stopping = True

    def leave(self) -> None:
        """Clear the seat: everything was handed over."""
        self._leaving = True

    def unreadable(self) -> None:
        """Learn that the store could not be read: this time counts for nobody's expiry."""
        self._read_at = None

    def observed(self, seen: Membership, now: float) -> None:
        """Take a look at the store."""
        if self._read_at is not None:
            # A holder that has not given up yet must not expire in one gap between two looks.
            most = self.timing.duration - self.timing.give_up_after
            self._readable += min(now - self._read_at, most)
        self._read_at = now
        self._seen = seen
        if seen.view.generation > self.generation:
            self.generation = seen.view.generation
            self._urgent = True
        for seat in seen.seats:
            watch = self._watches.get(seat.ordinal)
            if watch is None or (watch.holder, watch.renewals) != (seat.holder, seat.renewals):
                self._watches[seat.ordinal] = _Watch(seat.holder, seat.renewals, self._readable)
        mine = own_seat(seen.seats, str(self.me))
        if self.seat is not None and (mine is None or mine.ordinal != self.seat.ordinal):
            self._urgent = True
        self.seat = mine

    def is_free(self, seat: Seat) -> bool:
        """Return whether somebody else may claim a seat: vacant, offered or expired."""
        if seat.holder is None or seat.offered:
            return True
        watch = self._watches.get(seat.ordinal)
        return watch is not None and self._readable - watch.changed_at > self.timing.duration

    def is_seated(self, now: float) -> bool:
        """Return whether this process still counts itself as the holder of its seat."""
        return self.seat is not None and now - self._renewed_at <= self.timing.give_up_after

    def next_write(self, now: float) -> Seat | None:
        """Return the one seat record to write now, or None. Call again after `written` or a new look."""
        if self._seen is None:
            return None
        surplus = self._surplus()
        if surplus is not None:
            return surplus.cleared()
        if self._leaving or self._stopping:
            return self._write_on_the_way_out()
        if self.seat is None:
            return self._claim(self._wanted_seat())
        if self._must_move(self.seat):
            target = self._lowest_free(below=self.seat.ordinal)
            if target is not None:
                return self._claim(target)
        if self._urgent or now - self._renewed_at >= self.timing.renew_every:
            return self._renewal(self.seat)
        return None

    def written(self, seat: Seat, now: float) -> None:
        """Learn that the write succeeded; `seat` carries the new version."""
        if seat.holder == str(self.me):
            self._renewed_at = now
            self._urgent = False
            if self.seat is None or seat.ordinal <= self.seat.ordinal:
                self.seat = seat
        elif self.seat is not None and seat.ordinal == self.seat.ordinal:
            self.seat = None
        self._replace_seen(seat)

    def _write_on_the_way_out(self) -> Seat | None:
        if self.seat is None:
            return None
        if self._leaving:
            return self.seat.cleared()
        if not self.seat.offered:
            return replace(self._renewal(self.seat), offered=True)
        return self._renewal(self.seat) if self._urgent else None

    def _wanted_seat(self) -> Seat | None:
        assert self._seen is not None
        earlier = next((s for s in self._seen.seats if self.me.is_earlier_life_of(s.holder)), None)
        return earlier if earlier is not None else self._lowest_free(below=None)

    def _lowest_free(self, below: int | None) -> Seat | None:
        assert self._seen is not None
        limit = self._seen.view.desired if below is None else min(below, self._seen.view.desired)
        return next((s for s in self._seen.seats if s.ordinal < limit and self.is_free(s)), None)

    def _must_move(self, seat: Seat) -> bool:
        assert self._seen is not None
        view = self._seen.view
        return seat.ordinal >= min(view.desired, view.effective)

    def _surplus(self) -> Seat | None:
        """Return a second seat of ours: the one that a move left behind, in this life of the pod or an earlier one."""
        assert self._seen is not None
        if self.seat is None:
            return None
        me, kept = self.me, self.seat.ordinal
        seats = (s for s in self._seen.seats if s.ordinal != kept)
        return next((s for s in seats if s.holder == str(me) or me.is_earlier_life_of(s.holder)), None)

    def _claim(self, seat: Seat | None) -> Seat | None:
        if seat is None:
            return None
        # What was bound under another seat says nothing about this one: a claim starts with an empty report.
        fresh = Summary(connected=self._summary.connected)
        return self._stamped(replace(seat, term=seat.term + 1, offered=False), fresh)

    def _renewal(self, seat: Seat) -> Seat:
        return self._stamped(seat, self._summary)

    def _stamped(self, seat: Seat, summary: Summary) -> Seat:
        generation = max(self.generation, seat.generation)
        return replace(seat, holder=str(self.me), renewals=seat.renewals + 1, generation=generation, summary=summary)

    def _replace_seen(self, seat: Seat) -> None:
        if self._seen is not None:
            seats = tuple(seat if s.ordinal == seat.ordinal else s for s in self._seen.seats)
            self._seen = replace(self._seen, seats=seats)
