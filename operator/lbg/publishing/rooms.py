"""The bound of the buffer: how many events and bytes a producer holds, and who waits for room.

Two doors to the same kind of room: `AsyncRoom` for callers on the event loop, `ThreadRoom` for callers in threads. An
event goes on (`accept`) in the same step in which it is let in, so that order of entry is order of publishing. What
becomes of it then is the pump's business.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from lbg.publishing.errors import BufferFull
from lbg.publishing.events import Event


class Room:
    """The count of what is held. Not safe for threads by itself.

    Args:
        accept: takes each event that is let in; what it raises is the caller's, and the event is not in.
    """

    def __init__(self, max_events: int, max_bytes: int, accept: Callable[[Event], None]) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._accept = accept
        self.events = 0
        self.bytes = 0

    def has_space(self, size: int) -> bool:
        """Tell whether one more event fits. Into an empty room any event fits, or it could never be published."""
        return not self.events or (self.events < self._max_events and self.bytes + size <= self._max_bytes)

    def full(self) -> BufferFull:
        """Return the error of an event that found no space."""
        return BufferFull(
            f"buffer is full: {self.events} of {self._max_events} events and {self.bytes} of {self._max_bytes} bytes"
            " wait for the broker: publish more slowly, or wait (when_full='wait')"
        )


class AsyncRoom(Room):
    """A room whose callers wait on one event loop, first come first served."""

    def __init__(self, max_events: int, max_bytes: int, accept: Callable[[Event], None]) -> None:
        super().__init__(max_events, max_bytes, accept)
        self._queue: deque[tuple[asyncio.Future[None], Event]] = deque()

    def try_enter(self, event: Event) -> bool:
        """Enter if there is space and nobody waits already."""
        if self._queue or not self.has_space(event.size):
            return False
        self._let_in(event)
        return True

    async def enter(self, event: Event) -> None:
        """Wait for space and enter. Cancelled, the event is not in, unless its turn had just come.

        Raises:
            Exception: what `accept` or `turn_away` said.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((turn, event))
        try:
            await turn
        except asyncio.CancelledError:
            self._admit()  # whoever stands behind may fit where this one did not
            raise

    def leave(self, events: int, size: int) -> None:
        """Count events out, and let in those who wait."""
        self.events -= events
        self.bytes -= size
        if self._queue:
            self._admit()

    def turn_away(self, error: Exception) -> None:
        """Raise in everybody who waits."""
        queue, self._queue = self._queue, deque()
        for turn, _ in queue:
            if not turn.done():
                turn.set_exception(error)

    def _let_in(self, event: Event) -> None:
        self._accept(event)  # may raise, and then the event is not in
        self.events += 1
        self.bytes += event.size

    def _admit(self) -> None:
        while self._queue:
            turn, event = self._queue[0]
            if not turn.done():
                if not self.has_space(event.size):
                    return
                try:
                    self._let_in(event)
                except Exception as error:  # noqa: BLE001  # it belongs to the caller who waits, not to who left
                    turn.set_exception(error)
                else:
                    turn.set_result(None)
            self._queue.popleft()


class ThreadRoom(Room):
    """A room whose callers wait in threads. One lock guards it and the order of `accept`, which must not raise.

    Locks of the interpreter only, for the reason that `replies` gives.
    """

    def __init__(self, max_events: int, max_bytes: int, accept: Callable[[Event], None]) -> None:
        super().__init__(max_events, max_bytes, accept)
        self._lock = threading.Lock()
        self._turns: list[threading.Lock] = []  # released when it is worth to look again
        self._closed: Exception | None = None

    @property
    def waiting(self) -> int:
        """Return how many callers wait, at least."""
        return len(self._turns)

    def enter(self, event: Event, *, wait: bool) -> None:
        """Enter, waiting for space if told so.

        Raises:
            BufferFull: there is no space and `wait` is False.
            Exception: what `turn_away` said.
        """
        while True:
            with self._lock:
                if self._closed is not None:
                    raise self._closed
                if self.has_space(event.size):
                    # Counted first: Ctrl-C may strike right after `accept`, and the event is in then.
                    self.events += 1
                    self.bytes += event.size
                    self._accept(event)
                    return
                if not wait:
                    raise self.full()
                turn = threading.Lock()
                turn.acquire()
                self._turns.append(turn)
            turn.acquire()

    def leave(self, events: int, size: int) -> None:
        """Count events out, and wake those who wait."""
        with self._lock:
            self.events -= events
            self.bytes -= size
            self._wake()

    def turn_away(self, error: Exception) -> None:
        """Raise in everybody who waits, and in everybody who comes later."""
        with self._lock:
            self._closed = error
            self._wake()

    def _wake(self) -> None:
        turns, self._turns = self._turns, []
        for turn in turns:
            turn.release()
