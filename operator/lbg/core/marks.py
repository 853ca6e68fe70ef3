"""Marks: what was handled, so that a duplicate is dropped, a gap is seen, and nothing is dropped by mistake.

Theory of operation
-------------------
Per (producer, shard) the last eight incarnations are kept; per incarnation one *mark*: the highest sequence handled and
the open ranges below it that were never seen. Producers number densely from 0, so between two deliveries of one shard
there are only these cases. With `high` the mark of the event's own incarnation and `s` its sequence:

| case                                        | verdict   | violation    | effect once handled                      |
| ------------------------------------------- | --------- | ------------ | ---------------------------------------- |
| s = high + 1                                | HANDLE    | -            | high = s                                 |
| same, a newer incarnation is known          | HANDLE    | INCARNATION  | high = s                                 |
| s > high + 1                                | HANDLE    | GAP          | open [high+1, s); high = s               |
| same, the mark is in doubt                  | HANDLE    | UNKNOWN      | open the range as unknown; high = s      |
| s <= high, in no open range                 | DUPLICATE | -            | none: it is acknowledged and counted     |
| s <= high, in an open range                 | HANDLE    | LATE/UNKNOWN | the range is split around s              |
| incarnation never seen, newest              | HANDLE    | UNKNOWN if s | [0, s) is unknown; high = s              |
| incarnation never seen, older than newest   | HANDLE    | INCARNATION  | kept if among the eight newest           |

An event is dropped only if the mark of its *own* incarnation covers it: dropping on any weaker ground could lose one.
Beyond 64 open ranges the two with the smallest hole between them become one. The merged range claims that handled
events in the hole were not: a duplicate may then be handled twice, but nothing is lost.

After an unclean takeover every mark is in *doubt* until the first event beyond it: it may be one renewal older than
what was handled. Doubt is stored, since the queue may change hands again before a shard has its next event.
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from lbg.core.wire import Identity

MAX_RANGES: Final = 64
MAX_INCARNATIONS: Final = 8
IDLE_LIMIT_MS: Final = 7 * 24 * 3600 * 1000


class Violation(enum.StrEnum):
    """Kinds of order findings, counted per queue and reported on the seat."""

    GAP = "gap"  # sequences were skipped
    LATE = "late"  # an event that had been skipped came after a later one
    UNKNOWN = "unknown"  # cannot be judged: marks may be older than what was handled
    INCARNATION = "incarnation"  # an older life of a producer speaks after a newer one
    UNSEQUENCED = "unsequenced"  # carries no identity: order is the broker's


class Judgement(NamedTuple):
    """What to do with a delivered event."""

    is_duplicate: bool
    violation: Violation | None = None


HANDLE: Final = Judgement(False)
DUPLICATE: Final = Judgement(True)
_VIOLATES: Final = {violation: Judgement(False, violation) for violation in Violation}

Range: TypeAlias = tuple[int, int, bool]
"""First and last sequence (both inclusive) never seen, and whether that is unknown rather than certain."""


@dataclass(slots=True)
class Mark:
    """Highest handled sequence of one incarnation, and the open ranges below it in ascending order."""

    high: int = -1
    ranges: list[Range] = field(default_factory=list)
    in_doubt: bool = False

    def find(self, sequence: int) -> int | None:
        """Return the index of the open range that contains the sequence, or None."""
        at = bisect.bisect_right(self.ranges, sequence, key=lambda r: r[0]) - 1
        return at if at >= 0 and sequence <= self.ranges[at][1] else None

    def advance(self, sequence: int) -> None:
        """Move the mark up to a sequence beyond it; what was jumped over becomes an open range."""
        if sequence > self.high + 1:
            self._open(self.high + 1, sequence - 1, unknown=self.in_doubt)
        self.high = sequence
        self.in_doubt = False

    def fill(self, at: int, sequence: int) -> None:
        """Take one sequence out of the open range at an index."""
        first, last, unknown = self.ranges[at]
        parts = [(first, sequence - 1, unknown), (sequence + 1, last, unknown)]
        self.ranges[at : at + 1] = [part for part in parts if part[0] <= part[1]]
        self._keep_few()

    def _open(self, first: int, last: int, *, unknown: bool) -> None:
        self.ranges.append((first, last, unknown))
        self._keep_few()

    def _keep_few(self) -> None:
        """Merge outward beyond the limit; a jump and a split each add one range at most."""
        if len(self.ranges) <= MAX_RANGES:
            return
        holes = [after[0] - before[1] for before, after in pairwise(self.ranges)]
        at = holes.index(min(holes))
        # The hole between held handled events, so the merged range is no certain gap any more.
        self.ranges[at : at + 2] = [(self.ranges[at][0], self.ranges[at + 1][1], True)]


@dataclass(slots=True)
class _Stream:
    incarnations: dict[int, Mark] = field(default_factory=dict)
    newest: int = -1
    touched_ms: int = 0


class Marks:
    """The marks of one queue. Mutable, owned by the queue's active consumer."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, int], _Stream] = {}

    def judge(self, identity: Identity) -> Judgement:
        """Say whether an event was handled before, and what is wrong with its place. Changes nothing."""
        producer, incarnation, shard, sequence = (
            identity.producer,
            identity.incarnation,
            identity.shard,
            identity.sequence,
        )
        stream = self._streams.get((producer, shard))
        if stream is None:
            return _VIOLATES[Violation.UNKNOWN] if sequence else HANDLE
        mark = stream.incarnations.get(incarnation)
        if mark is None:
            if incarnation < stream.newest:
                return _VIOLATES[Violation.INCARNATION]
            return _VIOLATES[Violation.UNKNOWN] if sequence else HANDLE
        if sequence == mark.high + 1:
            return HANDLE if incarnation == stream.newest else _VIOLATES[Violation.INCARNATION]
        if sequence > mark.high:
            return _VIOLATES[Violation.UNKNOWN if mark.in_doubt else Violation.GAP]
        at = mark.find(sequence)
        if at is None:
            return DUPLICATE
        return _VIOLATES[Violation.UNKNOWN if mark.ranges[at][2] else Violation.LATE]

    def record(self, identity: Identity, now_ms: int) -> None:
        """Take note that an event was handled (or set aside, or skipped). Recording one twice changes nothing."""
        producer, incarnation, shard, sequence = (
            identity.producer,
            identity.incarnation,
            identity.shard,
            identity.sequence,
        )
        stream = self._streams.get((producer, shard))
        if stream is None:
            stream = self._streams[producer, shard] = _Stream()
        stream.touched_ms = now_ms
        mark = stream.incarnations.get(incarnation) or self._admit(stream, incarnation)
        if mark is None:
            return
        if sequence > mark.high:
            mark.advance(sequence)
        elif (at := mark.find(sequence)) is not None:
            mark.fill(at, sequence)

    def doubt(self) -> None:
        """Put every mark in doubt: after an unclean takeover it may be older than what was handled."""
        for _, _, _, mark in self:
            mark.in_doubt = True

    def prune(self, now_ms: int) -> None:
        """Forget producers that were idle for a week."""
        for key in [k for k, s in self._streams.items() if now_ms - s.touched_ms > IDLE_LIMIT_MS]:
            del self._streams[key]

    def high(self, producer: str, incarnation: int, shard: int) -> int | None:
        """Return the mark of an incarnation, or None."""
        stream = self._streams.get((producer, shard))
        mark = stream.incarnations.get(incarnation) if stream else None
        return None if mark is None else mark.high

    def to_rows(self) -> list[list[object]]:
        """Return plain rows for the stored ledger: producer, shard, touched, [incarnation, high, doubt, ranges]..."""
        return [
            [
                producer,
                shard,
                stream.touched_ms,
                [[i, m.high, m.in_doubt, [list(r) for r in m.ranges]] for i, m in stream.incarnations.items()],
            ]
            for (producer, shard), stream in self._streams.items()
        ]

    def __iter__(self) -> Iterator[tuple[str, int, int, Mark]]:
        for (producer, shard), stream in self._streams.items():
            for incarnation, mark in stream.incarnations.items():
                yield producer, incarnation, shard, mark

    @staticmethod
    def _admit(stream: _Stream, incarnation: int) -> Mark | None:
        known = stream.incarnations
        if len(known) >= MAX_INCARNATIONS:
            oldest = min(known)
            if incarnation < oldest:
                return None  # beyond what is kept: handled and counted each time, never dropped
            del known[oldest]
        stream.newest = max(stream.newest, incarnation)
        # A life that begins in the middle: what came before this event is unknown, not missing.
        return known.setdefault(incarnation, Mark(in_doubt=True))


def from_rows(rows: object) -> Marks:
    """Read stored rows.

    Raises:
        ValueError, TypeError: the rows are damaged.
    """
    marks = Marks()
    for producer, shard, touched, incarnations in list(rows):  # type: ignore[call-overload]  # damage raises
        stream = _Stream(touched_ms=_count(touched))
        for incarnation, high, in_doubt, ranges in incarnations:
            mark = Mark(_count(high), [(_count(a), _count(b), bool(u)) for a, b, u in ranges], bool(in_doubt))
            # Ranges out of order would make `find` miss one, and an event in it would be dropped.
            bounds = [bound for first, last, _ in mark.ranges for bound in (first, last + 1)]
            if bounds != sorted(bounds) or (bounds and bounds[-1] > mark.high):
                raise ValueError(f"open ranges of {producer}:{incarnation}:{shard} are not in order below the mark")
            stream.incarnations[_count(incarnation)] = mark
            stream.newest = max(stream.newest, incarnation)
        marks._streams[str(producer), _count(shard)] = stream
    return marks


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{value!r} is no count")
