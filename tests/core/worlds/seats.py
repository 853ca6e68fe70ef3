"""A world of seats: processes that come, crash, pause, restart and leave, over one store; the laws of its records."""

from __future__ import annotations

import random
from collections.abc import Callable

from lbg.core import seating
from lbg.core.membership import Seat
from tests.core.worlds.clock import Clock
from tests.core.worlds.members import LOOK_EVERY, Member
from tests.core.worlds.store import ModelStore

OPERATOR_EVERY = 0.5


class SeatWorld:
    """Starts and ends processes, plays the operator, and checks every write to the store."""

    def __init__(self, seed: int, *, operator_clears: bool) -> None:
        self.clock = Clock()
        self.store = ModelStore(self.clock)
        self.members: list[Member] = []
        self.claims: list[tuple[float, int, str]] = []
        self.writes: list[tuple[float, str | None]] = []
        self._random = random.Random(seed)
        self._operator_clears = operator_clears
        self._touched: dict[int, float] = {}  # ordinal -> readable time of the last write
        self._outages = 0
        self.store.on_write.append(self._check_write)
        self.clock.call(0.0, self._operate)

    # What happens.

    def start(self, pod: str | None = None) -> Member:
        """Start a process; of a pod that had one before, its next life."""
        number = len(self.members)
        me = seating.Holder(pod or f"pod-{number}_uid-{number}", f"n{number}")
        member = self._process(me)
        self.members.append(member)
        member.start(member.run())
        return member

    def _process(self, me: seating.Holder) -> Member:
        return Member(self.clock, self.store, me, self._delay)

    def scale(self, desired: int) -> None:
        """Ask for a number of consumers; seats are created, and effective CC falls at once where it must."""
        for ordinal in range(desired):
            self.store.create(ordinal)
        self._show(desired=desired, effective=min(self.store.view.effective, desired))

    def stop(self, member: Member, drain: float) -> None:
        """SIGTERM: offer the seat, hand over for a while, clear the seat, end."""
        member.hear(member.machine.stop)
        member.hear(member.wake)
        self.clock.call(drain, member.hear, member.leave)

    def go_away(self, seconds: float) -> None:
        """Let the store not answer for a while."""
        self._outages += 1
        self.store.go_away(seconds)

    # What is so.

    def alive(self) -> list[Member]:
        """Return the processes that run and are not asked to end."""
        return [m for m in self.members if not m.is_dead and not m.is_leaving and not m.is_stopping]

    def held(self) -> dict[int, str]:
        """Return the holders by seat."""
        return {ordinal: seat.holder for ordinal, seat in self.store.seats.items() if seat.holder is not None}

    # The operator: effective CC rises when its consumers are there; seats of pods that are gone are cleared.

    def _operate(self) -> None:
        if not self.store.is_away:
            view, seats = self.store.view, self.store.seats
            prefix = 0
            while prefix < view.desired and (seat := seats.get(prefix)) is not None and self._serves(seat):
                prefix += 1
            if prefix > view.effective:
                self._show(desired=view.desired, effective=prefix)
            for ordinal, seat in list(seats.items()):
                if self._operator_clears and seat.holder is not None and self._is_gone(seat.holder):
                    self.store.clear(ordinal)
        self.clock.call(OPERATOR_EVERY, self._operate)

    def _serves(self, seat: Seat) -> bool:
        return seat.holder is not None and not seat.offered and seat.summary.connected

    def _is_gone(self, holder: str) -> bool:
        return all(member.is_dead for member in self.members if member.name == holder)

    def _show(self, *, desired: int, effective: int) -> None:
        generation = self.store.view.generation + (effective != self.store.view.effective)
        self.store.show(desired=desired, effective=effective, generation=generation)

    # The laws of every write.

    def _check_write(self, before: Seat, after: Seat) -> None:
        assert after.term >= before.term, "a term never goes back"
        assert after.generation >= before.generation, "nor does a generation"
        is_claim = after.holder is not None and after.holder != before.holder
        assert after.term - before.term == int(is_claim), "each claim raises the term, and nothing else does"
        if is_claim:
            assert not after.offered
            assert self._may_claim(before, str(after.holder)), f"{after.holder} took seat {after.ordinal} too early"
            self.claims.append((self.clock.now, after.ordinal, str(after.holder)))
        self._touched[after.ordinal] = self.store.readable
        self.writes.append((self.clock.now, after.holder))

    def _may_claim(self, before: Seat, claimant: str) -> bool:
        if before.holder is None or before.offered:
            return True
        if before.holder.rpartition("_")[0] == claimant.rpartition("_")[0]:
            return True
        silence = self.store.readable - self._touched[before.ordinal]
        # An outage that begins and ends between two looks of a process is not seen by it.
        return silence >= seating.DURATION - self._outages * (LOOK_EVERY + 4 * self._slowest)

    # Chance.

    _slowest = 0.05

    def _delay(self) -> float:
        return self._random.uniform(0.001, self._slowest)

    def settle(self, seconds: float, done: Callable[[], bool]) -> float:
        """Let time pass until something is so, at most for a while; return when it was."""
        end = self.clock.now + seconds
        while self.clock.now < end and not done():
            self.clock.run(self.clock.now + 0.25)
        return self.clock.now
