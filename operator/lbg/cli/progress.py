"""How far `lbg publish` is: a bar on standard error where that is a terminal, else a line when something is wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from lbg.cli import output

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from lbg.publishing.feeding import Progress


class Telling:
    """Shows each progress that it is called with. Close it: it may own a part of the terminal."""

    def __init__(self, source: str) -> None:
        self.last: Progress | None = None
        self._source = source
        self._trouble: str | None = None
        self._bars: Bars | None = None
        self._task: TaskID
        if sys.stderr is not None and sys.stderr.isatty():
            self._open_bar()

    def __call__(self, progress: Progress) -> None:
        """Show it."""
        self.last = progress
        if self._bars is not None:
            words = progress.trouble or f"{progress.confirmed:,} rows, {per_second(progress):,.0f}/s"
            self._bars.update(self._task, completed=progress.offset, words=words)
        elif progress.trouble != self._trouble:
            # Once when it begins and once when it ends: this goes into a log, not onto a screen.
            output.note(f"waiting: {progress.trouble}" if progress.trouble else "going on, the broker is back")
        self._trouble = progress.trouble

    def interrupted(self) -> str:
        """Return what to say after Ctrl-C."""
        if self.last is None:
            return "interrupted before the first row"
        confirmed, rows = self.last.confirmed, self.last.rows
        rest = "" if confirmed == rows else f"; of {rows - confirmed:,} more it is not known"
        return f"interrupted, {confirmed:,} rows are confirmed{rest}"

    def close(self) -> None:
        """Give the terminal back. Idempotent."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = BarColumn(), TextColumn("{task.fields[words]}", markup=False), TimeElapsedColumn()
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bars.add_task("", total=self._size(), words="")
        self._bars.start()

    def _size(self) -> int | None:
        # Of a pipe the size is not known, and the bar pulses.
        with contextlib.suppress(OSError):
            return os.stat(self._source).st_size or None
        return None


def per_second(progress: Progress) -> float:
    """Return confirmed rows per second since the start, 0 before any time has passed."""
    return progress.confirmed / progress.seconds if progress.seconds > 0 else 0.0
