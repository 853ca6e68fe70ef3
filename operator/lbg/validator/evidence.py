"""What the check remembers of the records it has taken: facts, no judgement.

By what makes it grow:

- per (producer, incarnation, shard): the sequences seen, as runs (`sequences`), so that an ordered stream costs the
  same however long it is; a run more per change of owner and per fault;
- per (producer, key): the highest place (`places`), in memory up to a limit, then in a temporary file;
- per queue: its tenures and the duplicates between them (`tenures`);
- per kind of fault: a count and the first few examples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lbg.core.run_log import RunEvent
from lbg.core.wire import Identity
from lbg.validator.expected import Life
from lbg.validator.places import Places
from lbg.validator.sequences import Seen
from lbg.validator.tenures import QueueHistory
from lbg.validator.verdicts import Example

# What is counted per record or event. The kinds that have examples are named in the singular: one case of it.
DUPLICATE: Final = "duplicate"
STALE: Final = "stale"
LATE: Final = "late"  # records of an epoch older than the queue's newest: the stale ones, and first occurrences
ORDER_ERROR: Final = "order-error"
SHARD_ORDER_ERROR: Final = "shard-order-error"
UNSEQUENCED: Final = "unsequenced"
DAMAGED: Final = "damaged"
CONTRADICTION: Final = "contradiction"
GAP: Final = "gap"
LOG_DAMAGED: Final = "log-damaged"

_MOST_OPENED: Final = 1_000  # holes whose line is remembered


class Hole(NamedTuple):
    """Sequences `first` to `end` - 1 that were never seen. Without a life: rows of a source when none has shown."""

    life: Life | None
    shard: int
    first: int
    end: int

    @property
    def text(self) -> str:
        """Return the hole as a person reads it."""
        if self.life is None:
            name = f"shard {self.shard}, sequence {self.first}"
        else:
            name = Identity(*self.life, self.shard, self.first).message_id
        return name if self.end - self.first == 1 else f"{name} to {self.end - 1} ({self.end - self.first:,} events)"


@dataclass(slots=True)
class Lane:
    """One producer's part of one shard."""

    queue: int
    keys: dict[str, int]  # the cached places, see `places`
    highest: int = -1  # place
    lives: dict[int, Seen] = field(default_factory=dict)  # by incarnation


@dataclass(slots=True)
class Evidence:
    """Everything that a verdict is made from, but for the source."""

    places: Places
    most_examples: int
    queues: dict[int, QueueHistory] = field(default_factory=dict)
    lanes: dict[tuple[str, int], Lane] = field(default_factory=dict)
    lives: set[Life] = field(default_factory=set)
    log: list[RunEvent] | None = None  # None: there is no log, which is not the same as a log without events
    lines: int = 0
    log_lines: int = 0
    truncated: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    opened: dict[tuple[Life | None, int, int], int] = field(default_factory=dict)  # where a hole begins: its line

    def note(self, kind: str, text: str, *, line: int | None = -1) -> Example | None:
        """Count a fault at the current line, or at the one given; return it if it is one of the first of its kind."""
        self.counts[kind] += 1
        shown = self.examples.setdefault(kind, [])
        if len(shown) >= self.most_examples:
            return None
        shown.append(Example(kind, self.lines if line == -1 else line, text))
        return shown[-1]

    def open_hole(self, hole: Hole) -> Example | None:
        """Remember the line that opened a hole; return it if it is one of the first. The hole may close again."""
        if len(self.opened) >= _MOST_OPENED:
            return None
        self.opened[hole.life, hole.shard, hole.first] = self.lines
        return Example(GAP, self.lines, hole.text) if len(self.opened) <= self.most_examples else None

    def holes(self) -> Iterator[Hole]:
        """Iterate over what was not seen below the highest sequence of each life and shard."""
        for (producer, shard), lane in self.lanes.items():
            for incarnation, seen in lane.lives.items():
                for first, end in seen.holes():
                    yield Hole((producer, incarnation), shard, first, end)
