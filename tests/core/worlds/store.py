"""A membership store in memory: one consistent record per seat, compare-and-swap, and times when it does not answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lbg.core.membership import GroupView, Membership, Seat, StaleSeat, StoreUnavailable
from tests.core.worlds.clock import Clock


class ModelStore:
    """What every process reads and writes. Tells `on_write` of each write, with the record before and after."""

    def __init__(self, clock: Clock, group: str = "world") -> None:
        self.view = GroupView(group, "", 0, 0, 0)
        self.seats: dict[int, Seat] = {}
        self.on_write: list[Callable[[Seat, Seat], None]] = []
        self.on_change: list[Callable[[], None]] = []
        self.answers_to_lose = 0  # writes that happen and whose answer does not arrive
        self._clock = clock
        self._away_until = 0.0
        self._away_for = 0.0  # in all, up to the end of the last outage
        self._version = 0

    @property
    def is_away(self) -> bool:
        """Return whether nobody can read or write now."""
        return self._clock.now < self._away_until

    @property
    def readable(self) -> float:
        """Return the time at which the store did answer, so far."""
        return self._clock.now - self._away_for + max(0.0, self._away_until - self._clock.now)

    def go_away(self, seconds: float) -> None:
        """Stop answering for a while, or for longer."""
        until = max(self._away_until, self._clock.now + seconds)
        self._away_for += until - max(self._away_until, self._clock.now)
        self._away_until = until

    def observe(self) -> Membership:
        """Read everything at once."""
        self._answer()
        return Membership(self.view, tuple(self.seats[ordinal] for ordinal in sorted(self.seats)))

    def replace(self, seat: Seat) -> Seat:
        """Write a seat if its version is still the stored one."""
        self._answer()
        before = self.seats.get(seat.ordinal)
        if before is None or before.version != seat.version:
            raise StaleSeat
        written = self._put(before, seat)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise StoreUnavailable("the answer was lost")
        return written

    def create(self, ordinal: int) -> None:
        """Create a vacant seat unless it is there."""
        if ordinal not in self.seats:
            self.seats[ordinal] = Seat(ordinal, "0")
            self._changed()

    def clear(self, ordinal: int) -> None:
        """Take a seat from its holder, as the operator does when the pod is gone."""
        before = self.seats[ordinal]
        self._put(before, before.cleared())

    def show(self, **fields: int | bool) -> None:
        """Change the view."""
        self.view = replace(self.view, **fields)  # type: ignore[arg-type]
        self._changed()

    def _put(self, before: Seat, seat: Seat) -> Seat:
        self._version += 1
        written = self.seats[seat.ordinal] = replace(seat, version=str(self._version))
        for listener in self.on_write:
            listener(before, written)
        self._changed()
        return written

    def _changed(self) -> None:
        for listener in self.on_change:
            listener()

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the store is away")
