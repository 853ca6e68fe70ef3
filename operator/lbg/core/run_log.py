"""The run's own log: what was done to a group and what befell it, one JSON object a line, in the order it was noted.

The validator needs it for one question that the output cannot answer alone: was a queue moved on purpose, or because
its owner died. Whoever does a thing writes it down: the run that kills a consumer, the parent that sees a process
exit, the consumer whose connection is lost. Nothing here opens a file or reads a clock; the times are arguments.

The schema grows by new kinds and new details. A reader keeps kinds it does not know and acts on those it does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

CONSUMER_STARTED: Final = "consumer-started"
CONSUMER_KILLED: Final = "consumer-killed"  # on purpose, with SIGKILL; noted by whoever sent it
CONSUMER_DIED: Final = "consumer-died"  # exited without having been asked to; detail: code or signal
CONSUMER_STOPPED: Final = "consumer-stopped"  # asked to leave, and left in order
CONNECTION_LOST: Final = "connection-lost"
BROKER_STARTED: Final = "broker-started"
BROKER_DIED: Final = "broker-died"
SCALED: Final = "scaled"  # detail: from, to, why
ROLLED_OUT: Final = "rolled-out"
EFFECTIVE: Final = "effective"  # detail: generation, cc
PUBLISHED: Final = "published"  # detail: count
CONTRACT: Final = "contract"  # detail: the stream's contract (`contract.Contract.to_mapping`)

LAST_OF_A_CONSUMER: Final = frozenset({CONSUMER_KILLED, CONSUMER_DIED})
"""After one of these the consumer it names handles nothing more: a restarted process has another identity."""

UNPLANNED: Final = LAST_OF_A_CONSUMER | {CONNECTION_LOST, BROKER_DIED}
"""What can take a queue from its owner against the owner's will."""

_FURTHEST: Final = 1e15  # ms, some 30,000 years


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One line of the log. `at_ms` is ms since the Unix epoch, on the clock that stamps the output records."""

    at_ms: float
    kind: str
    consumer: str | None = None  # holder identity as in the output record, or its leading part up to a `_`
    detail: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the event as one line of JSON without a newline."""
        values = {"at_ms": self.at_ms, "kind": self.kind, "consumer": self.consumer, "detail": dict(self.detail)}
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def from_json(line: str | bytes) -> RunEvent:
    """Read one line. `consumer` and `detail` may be absent; unknown fields are ignored, unknown kinds are kept.

    Raises:
        ValueError: the line is no such object; the message names the field.
    """
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("event: expected one JSON object") from None
    if not isinstance(values, dict):
        raise ValueError(f"event: expected an object, got {type(values).__name__}")
    at_ms, kind = values.get("at_ms"), values.get("kind")
    consumer, detail = values.get("consumer"), values.get("detail", {})
    # NaN passes for a number and is neither earlier nor later than anything; it fails this comparison too.
    if isinstance(at_ms, bool) or not isinstance(at_ms, int | float) or not abs(at_ms) < _FURTHEST:
        raise ValueError("at_ms: expected a number of milliseconds")
    if not isinstance(kind, str) or not kind:
        raise ValueError("kind: expected a string")
    if consumer is not None and not isinstance(consumer, str):
        raise ValueError("consumer: expected a string or null")
    if not isinstance(detail, dict):
        raise ValueError("detail: expected an object")
    return RunEvent(float(at_ms), kind, consumer, detail)
