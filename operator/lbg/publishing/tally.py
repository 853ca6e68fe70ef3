"""What became of the events of a producer: counts, what failed without anybody waiting for it, and who flushes.

A flush waits for what was accepted before it, not for an empty buffer: with other callers publishing on, the buffer may
never be empty. So each event carries the number of the flush that waits for it, and events are counted per number.
"""

from __future__ import annotations

import asyncio

from lbg.core.publish_line import Entry
from lbg.publishing.errors import NotConfirmed, Unconfirmed
from lbg.publishing.events import Event


class Tally:
    """Counts of one producer, on its event loop."""

    def __init__(self) -> None:
        self.accepted = 0
        self.confirmed = 0
        self.failed = 0
        self._flush = 0
        self._held: dict[int, int] = {0: 0}  # events neither confirmed nor failed, by the flush that waits for them
        self._flushing: dict[int, asyncio.Future[None]] = {}
        self._failures: list[Unconfirmed] = []
        self._failure_count = 0

    def accept(self, event: Event) -> None:
        """Count an event in."""
        self.accepted += 1
        event.flush = self._flush
        self._held[self._flush] += 1

    def confirm(self, entries: tuple[Entry[Event], ...]) -> None:
        """Count events out."""
        self.confirmed += len(entries)
        if len(self._held) == 1:  # the usual case: nobody flushes, so all events carry one number
            self._held[self._flush] -= len(entries)
            return
        for entry in entries:
            self._held[entry.event.flush] -= 1
        self._wake()

    def fail(self, event: Event) -> None:
        """Count an event out that failed."""
        self.failed += 1
        self._held[event.flush] -= 1
        self._wake()

    def reject(self) -> None:
        """Count an event that came in and failed at once."""
        self.accepted += 1
        self.failed += 1

    def note(self, failure: Unconfirmed) -> None:
        """Keep a failure that nobody waits for, until the next flush reports it."""
        self._failure_count += 1
        if len(self._failures) < NotConfirmed.NAMED:
            self._failures.append(failure)

    def take_failures(self) -> tuple[int, list[Unconfirmed]]:
        """Return how many failures were noted since the last call, and the first of them."""
        taken = self._failure_count, self._failures
        self._failure_count, self._failures = 0, []
        return taken

    async def settled(self) -> None:
        """Wait until everything accepted before this call is confirmed or failed."""
        number, self._flush = self._flush, self._flush + 1
        self._held[self._flush] = 0
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushing[number] = done
        self._wake()
        await done

    def _wake(self) -> None:
        for number in sorted(self._held):
            if self._held[number] or number == self._flush:
                return
            del self._held[number]
            done = self._flushing.pop(number)
            if not done.done():
                done.set_result(None)
