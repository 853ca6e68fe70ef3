"""Reading ahead: an iterator that may block runs in a thread of its own, and the event loop takes what is there.

A pipe is as slow as who writes to it. Read on the event loop, it would keep the connection from its heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

T = TypeVar("T")

_LOOK: Final = 0.05
"""Seconds between two looks of the thread at whether there is room again, should it have missed the word."""


class ReadAhead(Generic[T]):
    """An asynchronous iterator over the items of a blocking one, read at most `most` ahead, in order.

    Use it in a `with` block: left early, the thread ends at its next item. An error of the source is raised after the
    items before it.
    """

    def __init__(self, source: Iterable[T], most: int = 2_000) -> None:
        self._source = source
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._items: deque[T] = deque()
        self._news = asyncio.Event()
        self._room = threading.Event()
        self._error: BaseException | None = None
        self._is_over = False
        self._is_left = False

    def __enter__(self) -> Self:
        # A daemon: nobody can interrupt a read of standard input, and Ctrl-C must end the process.
        threading.Thread(target=self._read, name="lbg-reader", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_left = True
        self._room.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._is_over:
                # Seen over, then looked again: the last items came before that.
                if self._items:
                    break
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._news.clear()
            if not self._items and not self._is_over:
                await self._news.wait()
        item = self._items.popleft()
        if len(self._items) < self._most // 2 and not self._room.is_set():
            self._room.set()
        return item

    def _read(self) -> None:
        try:
            for item in self._source:
                self._items.append(item)
                self._tell()
                while len(self._items) >= self._most and not self._is_left:
                    self._room.clear()
                    self._room.wait(_LOOK)
                if self._is_left:
                    return
        except BaseException as error:  # noqa: BLE001  # raised where the items are taken
            self._error = error
        finally:
            self._is_over = True
            self._tell()

    def _tell(self) -> None:
        # After the change: the loop clears the event before it looks.
        if not self._news.is_set():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                self._loop.call_soon_threadsafe(self._news.set)
