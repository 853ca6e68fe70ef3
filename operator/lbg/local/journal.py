"""The run's log as it is written: `events.jsonl` (format: `lbg.core.run_log`), and the last few events for the screen.

Here lives the clock that stamps events. What an event means is in `lbg.core.run_log`; how it reads on a screen is here,
so that the live view and the plain lines say the same words.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lbg.core import run_log
from lbg.core.run_log import RunEvent
from lbg.local.errors import StorageRefused
from lbg.local.lines import Lines

# Kinds that only local mode writes; readers of the log keep kinds that they do not know.
RUN_STARTED: Final = "run-started"
RUN_STOPPING: Final = "run-stopping"
RUN_ENDED: Final = "run-ended"
CRASH_LOOP: Final = "crash-loop"
ROLLOUT_STARTED: Final = "rollout-started"
OVERRIDDEN: Final = "overridden"
NOTE: Final = "note"

_KEPT: Final = 200


class Journal:
    """Writes events as they happen; each is in the file when `note` returns.

    A file that cannot be written does not raise where something merely happened: `failure` says so, and the supervisor
    ends the run, since a log with holes proves nothing.
    """

    def __init__(self, path: Path, on_event: Callable[[RunEvent], None] | None = None) -> None:
        self._lines = Lines(path)
        self._on_event = on_event
        self.failure: StorageRefused | None = None
        self.recent: deque[RunEvent] = deque(maxlen=_KEPT)

    def note(self, kind: str, consumer: str | None = None, /, **detail: object) -> None:
        """Write one event, stamped now."""
        self.write(RunEvent(time.time() * 1000, kind, consumer, detail))

    def write(self, event: RunEvent) -> None:
        """Write one event that somebody else has stamped."""
        self.recent.append(event)
        self._lines.append([event.to_json()])
        try:
            self._lines.flush()
        except StorageRefused as refused:
            self.failure = refused
        if self._on_event is not None:
            self._on_event(event)

    def close(self) -> None:
        """Close. Idempotent."""
        self._lines.close()


def sentence(event: RunEvent) -> str:
    """Return an event as a person reads it, without its time."""
    detail, who = event.detail, event.consumer or ""
    match event.kind:
        case run_log.SCALED:
            return f"replicas {detail.get('from')} -> {detail.get('to')}: {detail.get('why', '')}"
        case run_log.EFFECTIVE:
            return f"effective CC {detail.get('cc')}, generation {detail.get('generation')}"
        case run_log.CONSUMER_STARTED:
            return f"{who} started (pid {detail.get('pid')})"
        case run_log.CONSUMER_STOPPED:
            return f"{who} handed over and left"
        case run_log.CONSUMER_KILLED:
            return f"{who} killed with {detail.get('signal', 'SIGKILL')}"
        case run_log.CONSUMER_DIED:
            return f"{who} died: {detail.get('why', detail.get('signal', detail.get('code')))}"
        case _ if event.kind == CRASH_LOOP:
            return (
                f"consumers die at once, {detail.get('deaths')} in a row; next start in {detail.get('next_start_in')}"
            )
        case run_log.ROLLED_OUT:
            return f"rollout done: {detail.get('replaced')} consumers replaced"
        case _:
            said = ", ".join(f"{name} {value}" for name, value in detail.items() if not isinstance(value, dict | list))
            return " ".join(filter(None, (who, event.kind.replace("-", " ") + (":" if said else ""), said)))
