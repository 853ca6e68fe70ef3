"""Where a run shows itself: the live view on a terminal, plain lines anywhere else.

A screen never fails the run: a reader that went away (`lbg run ... | head`) is noted in `closed`, and the run ends.
"""

from __future__ import annotations

import contextlib
import sys
import time
from datetime import datetime
from typing import Final, Protocol, TextIO

from lbg.core.run_log import RunEvent
from lbg.local import frames, journal, sampling
from lbg.local.coordinator import Look
from lbg.local.supervisor import Supervisor

FRAME_SECONDS: Final = 0.25
LINE_SECONDS: Final = 10.0


class Screen(Protocol):
    """What a run needs of a screen."""

    @property
    def closed(self) -> bool:
        """Return whether nobody reads any more."""
        ...

    def begin(self, supervisor: Supervisor) -> None:
        """Show that a run begins."""
        ...

    def note(self, event: RunEvent) -> None:
        """Show an event."""
        ...

    def look(self, look: Look) -> None:
        """Show how things are now, if it is time to."""
        ...

    def end(self) -> None:
        """Give the terminal back. Idempotent."""
        ...

    def say(self, line: str) -> None:
        """Show a line that stays; after `end` or instead of events."""
        ...


class PlainScreen:
    """Lines: each event as it happens, and a summary now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._supervisor: Supervisor | None = None
        self._due = 0.0
        self.closed = False

    def begin(self, supervisor: Supervisor) -> None:
        """Say where the run folder is: whoever reads the lines later wants it first."""
        self._supervisor = supervisor
        self._due = time.monotonic() + LINE_SECONDS
        self.say(f"group {supervisor.setting.group.name}, run folder {supervisor.setting.run.path}")

    def note(self, event: RunEvent) -> None:
        """Print an event with its time of day."""
        at = datetime.fromtimestamp(event.at_ms / 1000).astimezone()
        self.say(f"{at:%H:%M:%S}  {journal.sentence(event)}")

    def look(self, look: Look) -> None:
        """Print a summary every `LINE_SECONDS`."""
        if self._supervisor is not None and time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            self.say(frames.plain(_frame(self._supervisor, look)))

    def end(self) -> None:
        """Nothing to give back."""

    def say(self, line: str) -> None:
        """Print a line at once: a pipe would otherwise keep it."""
        if self.closed:
            return
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.closed = True


class LiveScreen:
    """The live view. Lines that stay are printed once the terminal is given back."""

    def __init__(self) -> None:
        # Here, since a run without a terminal needs neither rich nor the time to load it.
        from lbg.local import view

        self._screen = view.Screen()
        self._supervisor: Supervisor | None = None
        self._plain = PlainScreen()
        self._due = 0.0
        self._is_live = False
        self.closed = False

    def begin(self, supervisor: Supervisor) -> None:
        """Take the terminal."""
        self._supervisor = supervisor
        self._screen.__enter__()
        self._is_live = True

    def note(self, event: RunEvent) -> None:
        """Events are part of the next frame."""

    def look(self, look: Look) -> None:
        """Draw a frame every `FRAME_SECONDS`."""
        if self._supervisor is not None and self._is_live and time.monotonic() >= self._due:
            self._due = time.monotonic() + FRAME_SECONDS
            try:
                self._screen.show(_frame(self._supervisor, look))
            except OSError:
                self.closed = True

    def end(self) -> None:
        """Give the terminal back."""
        if self._is_live:
            self._is_live = False
            with contextlib.suppress(OSError):
                self._screen.__exit__(None, None, None)

    def say(self, line: str) -> None:
        """Print a line below the view that was."""
        if not self._is_live:
            self._plain.say(line)


def choose(live: bool | None) -> Screen:
    """Return the live view if it is asked for, or not refused and standard output is a terminal."""
    return LiveScreen() if live or (live is None and sys.stdout.isatty()) else PlainScreen()


def _frame(supervisor: Supervisor, look: Look) -> frames.Frame:
    recent = supervisor.journal.recent
    trouble = supervisor.trouble()
    return sampling.frame(supervisor.facts, look, supervisor.crew, supervisor.sampler, recent, trouble)
