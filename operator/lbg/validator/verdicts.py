"""What a verification found: the numbers, the first examples of each fault, and whether all of it is good.

`Verdict.to_json` is a machine-readable surface: its keys are kept, new ones may come. docs/validator.md defines them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lbg.validator.moves import Delays
from lbg.validator.tenures import Tenure


@dataclass(frozen=True, slots=True)
class Example:
    """One case of a fault, for a person to look up. `line` is the record's number in arrival order, from 1."""

    kind: str
    line: int | None  # None where no record shows it, as with a lost tail
    text: str


@dataclass(frozen=True, slots=True)
class HeldQueue:
    """A tenure with the queue that it was of."""

    queue: int
    tenure: Tenure


FAULTS: Final = (
    "order_errors",
    "gaps",
    "duplicates_on_planned_moves",
    "damaged",
    "log_damaged",
    "contradictions",
    "invented",
    "wrong_keys",
    "duplicates_beyond_in_hand",
)
"""The counts of a verdict that must be zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result over all records so far. Counts of events count each event once, whatever was repeated."""

    events: int
    keys: int
    order_errors: int
    gaps: int
    duplicates: int
    duplicates_on_planned_moves: int
    stale: int  # of the duplicates, those from an epoch older than the queue's newest
    parked: int
    dead_lettered: int
    skipped: int
    moves: int
    handover_ms: Delays
    failover_ms: Delays
    records: int
    shard_order_errors: int
    stale_first: int  # first occurrences from an older epoch: written late, but nothing repeated
    unsequenced: int
    epoch_unknown: int  # records of owners that could not read their epoch
    damaged: int
    truncated: bool  # the input ends within a line
    contradictions: int
    planned_moves: int
    unclean_planned_moves: int  # planned by the log, but the new owner did not find the queue released
    overlapping_planned_moves: int
    duplicates_per_death: int  # the most that one death left
    duplicates_beyond_in_hand: int | None  # None: no bound was given
    producers: int
    incarnations: int
    published: int | None  # by the source; None without one
    invented: int
    wrong_keys: int
    with_log: bool  # the run's own log told which changes were planned; else the records' `clean`
    log_damaged: int  # lines of the log: what it said there of planned and unplanned is not known
    unknown: tuple[str, ...]  # reasons why what was not found wrong is not therefore right
    examples: tuple[Example, ...]
    held: tuple[HeldQueue, ...]  # the latest tenures
    tenures: int  # all of them

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the names of the counts that are not zero and should be."""
        return tuple(name for name in FAULTS if getattr(self, name))

    @property
    def ok(self) -> bool:
        """Tell whether everything was judged and nothing was found wrong."""
        return not self.faults and not self.unknown

    @property
    def exit_code(self) -> int:
        """Return 0 if ok, else 1; an input that cannot be judged at all raises before there is a verdict."""
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, object]:
        """Return the published form, of JSON types only."""
        values: dict[str, object] = {name: getattr(self, name) for name in _PUBLISHED}
        values |= {"handover_ms": _delays(self.handover_ms), "failover_ms": _delays(self.failover_ms), "ok": self.ok}
        values |= {name: getattr(self, name) for name in _COUNTS}
        values |= {
            "faults": list(self.faults),
            "unknown": list(self.unknown),
            "examples": [{"kind": e.kind, "line": e.line, "text": e.text} for e in self.examples],
            "held": [_held(held) for held in self.held],
        }
        return values


_PUBLISHED: Final = (
    "events",
    "keys",
    "order_errors",
    "gaps",
    "duplicates",
    "duplicates_on_planned_moves",
    "stale",
    "parked",
    "dead_lettered",
    "skipped",
    "moves",
)
_NOT_COUNTS: Final = ("handover_ms", "failover_ms", "unknown", "examples", "held")
_COUNTS: Final = tuple(name for name in Verdict.__dataclass_fields__ if name not in (*_PUBLISHED, *_NOT_COUNTS))


def _delays(delays: Delays) -> dict[str, object]:
    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 3)

    p50, p99, most = rounded(delays.p50), rounded(delays.p99), rounded(delays.max)
    return {"p50": p50, "p99": p99, "max": most, "count": delays.count}


def _held(held: HeldQueue) -> dict[str, object]:
    tenure = held.tenure
    return {
        "queue": held.queue,
        "consumer": tenure.consumer,
        "epoch": tenure.epoch,
        "clean": tenure.clean,
        "line": tenure.line,
        "started": tenure.first_started,
        "ended": tenure.last_ended,
        "events": tenure.events,
    }
