"""Ctrl-C and SIGTERM for commands that go on until they are told to stop, and then still have something to say."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

from lbg.cli.exit_codes import ExitCode

_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


class Stopping:
    """Whether somebody asked to stop. The first signal asks; a second one ends the process as it would without us."""

    def __init__(self, wakeup: int) -> None:
        self._wakeup = wakeup
        self._signal: signal.Signals | None = None

    @property
    def asked(self) -> bool:
        """Tell whether a signal came."""
        return self._signal is not None

    @property
    def code(self) -> ExitCode:
        """Return the exit code that the signal stands for; OK without one."""
        return ExitCode.OK if self._signal is None else _CODES[self._signal]

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal comes."""
        if not self.asked:
            # Not time.sleep: after a handler that returns it would go on sleeping.
            select.select([self._wakeup], [], [], seconds)

    def note(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        self._signal = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def on_signals() -> Iterator[Stopping]:
    """Handle SIGINT and SIGTERM within the block; only in the main thread."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    stopping = Stopping(read)
    before = {number: signal.signal(number, stopping.note) for number in _CODES}
    outer = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield stopping
    finally:
        signal.set_wakeup_fd(outer)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
