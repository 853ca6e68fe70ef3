"""Ctrl-C, SIGTERM and a closed terminal for a run: the first one asks it to end in order, the second to end at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Final

_HANDLED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """What was asked for so far."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.number: signal.Signals | None = None

    @property
    def exit_code(self) -> int | None:
        """Return 128 + the first signal's number, as a shell reports it; None without one."""
        return None if self.number is None else 128 + self.number

    def note(self, number: signal.Signals) -> None:
        """Take one signal."""
        if self.number is None:
            self.number = number
            self.first.set()
        else:
            self.second.set()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Hold signals back while an event loop is set up and closed; `caught` lets them in between.

    A Ctrl-C in the first milliseconds of `asyncio.run` would leave a coroutine that was never awaited, and its warning
    on the screen. What came meanwhile is delivered at the end. Only in the main thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def caught() -> Iterator[Signals]:
    """Catch the signals on the running event loop; only in the main thread."""
    loop = asyncio.get_running_loop()
    signals = Signals()
    for number in _HANDLED:
        loop.add_signal_handler(number, signals.note, number)
    # Before any child is started: a child inherits what is held back.
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    try:
        yield signals
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in _HANDLED:
            loop.remove_signal_handler(number)
