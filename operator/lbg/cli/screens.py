"""What a run shows to a program: each event of its log as one JSON value a line."""

from __future__ import annotations

import json
import sys

from lbg.core.run_log import RunEvent
from lbg.local.coordinator import Look
from lbg.local.supervisor import Supervisor


class JsonScreen:
    """Prints events as the run's log has them. The first line names group and folder and has no `kind`."""

    def __init__(self) -> None:
        self.closed = False

    def begin(self, supervisor: Supervisor) -> None:
        """Say where the run folder is."""
        setting = supervisor.setting
        self._write(json.dumps({"group": setting.group.name, "folder": str(setting.run.path)}))

    def note(self, event: RunEvent) -> None:
        """Print an event."""
        self._write(event.to_json())

    def look(self, look: Look) -> None:
        """Print nothing: `metrics.jsonl` in the run folder has the samples."""

    def end(self) -> None:
        """Nothing to give back."""

    def say(self, line: str) -> None:
        """Print nothing: words are for people."""

    def _write(self, line: str) -> None:
        # A reader that went away ends the run, by way of `closed`; it must not fail it.
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):
            self.closed = True
