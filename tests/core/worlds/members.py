"""A process with a seat: the seat machine in a loop of looking and writing, over a store that takes its time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lbg.core import seating
from lbg.core.membership import Membership, StaleSeat, StoreUnavailable, Summary
from tests.core.worlds.clock import Clock, Nap, Process, Script
from tests.core.worlds.store import ModelStore

LOOK_EVERY: Final = 1.0
RETRY: Final = 0.5


class Member(Process):
    """One consumer process as the store sees it. What it reports and does with a look is somebody else's."""

    def __init__(self, clock: Clock, store: ModelStore, me: seating.Holder, delay: Callable[[], float]) -> None:
        super().__init__(clock)
        self.machine = seating.Seating(me)
        self.is_leaving = False  # the seat is to be cleared, and then the process ends
        self.unreadable_since: float | None = None
        self.clock = clock
        self._store = store
        self._delay = delay

    @property
    def name(self) -> str:
        """Return the holder identity."""
        return str(self.machine.me)

    @property
    def is_stopping(self) -> bool:
        """Return whether SIGTERM was heard."""
        return self.machine._stopping

    def summary(self) -> Summary:
        """Return what the seat should say now."""
        return Summary(connected=True)

    def seen(self, look: Membership) -> None:
        """Act on a look."""

    def run(self) -> Script:
        """Look, act, write, wait; the same order of steps as in a consumer."""
        while True:
            pause = Nap(LOOK_EVERY)
            try:
                yield self._delay()
                look = self._store.observe()
                self.unreadable_since = None
                yield self._delay()
                self.machine.observed(look, self.clock.now)
                self.seen(look)
                summary = self.summary()
                self.machine.report(summary, urgent=self.machine.seat is None or self.machine.seat.summary != summary)
                while (write := self.machine.next_write(self.clock.now)) is not None:
                    yield self._delay()
                    written = self._store.replace(write)
                    yield self._delay()
                    self.machine.written(written, self.clock.now)
                if self.machine.seat is not None and self.machine.seat.summary != summary:
                    pause = Nap(0.0)  # a claim starts with an empty report; what is bound follows at once
            except StaleSeat:
                pause = Nap(0.0)
            except StoreUnavailable:
                self.machine.unreadable()
                self.unreadable_since = self.clock.now if self.unreadable_since is None else self.unreadable_since
                pause = Nap(RETRY)
            if self.is_leaving and (self.machine.seat is None or self.unreadable_since is not None):
                self.kill()  # who is asked to end does not wait for a store that is away
                return
            yield pause

    def leave(self) -> None:
        """Clear the seat and end."""
        self.is_leaving = True
        self.machine.leave()
        self.wake()
