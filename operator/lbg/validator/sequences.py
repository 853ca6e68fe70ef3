"""Which sequences of one (producer, incarnation, shard) were seen, and during which tenure of their queue last.

A set of integers as runs: consecutive sequences last seen in the same tenure are one run, so that a stream in order
costs one run per tenure, however long it is. Faults cost more: a hole or a stray repetition adds a run or two, about
150 bytes each. Nothing here knows what a tenure is; it is a label that grows with time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, TypeAlias

Run: TypeAlias = tuple[int, int, int]  # first sequence, one past the last, tenure

_BEYOND: Final = 2**63  # above every sequence and every tenure


class Seen:
    """Sequences seen, from 0. The last run lies in the open, `start`, `end` and `tenure`: most events extend it.

    A caller on a hot path may extend it without a call: if `sequence == seen.end` and the tenure is equal, add 1 to
    `end`. That is what `mark` would do.
    """

    __slots__ = ("_closed", "end", "start", "tenure")

    def __init__(self) -> None:
        self._closed: list[Run] = []  # ascending, apart or of different tenures, all below `start`
        self.start = 0
        self.end = 0
        self.tenure = 0

    def mark(self, sequence: int, tenure: int) -> int | None:
        """Note a sequence; return the tenure in which it was seen last, or None if this is the first time."""
        if sequence >= self.end:
            if sequence == self.end and (tenure == self.tenure or self.start == self.end):
                self.tenure = tenure
                self.end += 1
                return None
            if self.start < self.end:
                self._closed.append((self.start, self.end, self.tenure))
            self.start, self.end, self.tenure = sequence, sequence + 1, tenure
            return None
        # Everything below is a fault or a redelivery: rare, so the open run may go through the list and back.
        runs = self._closed
        runs.append((self.start, self.end, self.tenure))
        at = bisect_right(runs, (sequence, _BEYOND, _BEYOND)) - 1
        before = runs[at][2] if at >= 0 and sequence < runs[at][1] else None
        if before is None:
            _place(runs, at + 1, at + 1, [(sequence, sequence + 1, tenure)])
        elif before != tenure:
            first, end, label = runs[at]
            pieces = [(first, sequence, label), (sequence, sequence + 1, tenure), (sequence + 1, end, label)]
            _place(runs, at, at + 1, [piece for piece in pieces if piece[0] < piece[1]])
        self.start, self.end, self.tenure = runs.pop()
        return before

    def runs(self) -> Iterator[Run]:
        """Iterate over the runs, ascending."""
        yield from self._closed
        if self.start < self.end:
            yield self.start, self.end, self.tenure

    def holes(self, upto: int | None = None) -> Iterator[tuple[int, int]]:
        """Iterate over the ranges (first, one past the last) below `upto` that were never seen.

        Without `upto`, below the highest sequence seen: nothing tells that there was more.
        """
        limit = self.end if upto is None else upto
        reached = 0
        for first, end, _ in self.runs():
            if min(first, limit) > reached:
                yield reached, min(first, limit)
            reached = end
        if reached < limit:
            yield reached, limit


def _place(runs: list[Run], first: int, end: int, pieces: list[Run]) -> None:
    """Replace runs[first:end] by the pieces, joined with the neighbours that they continue."""
    low, high = max(first - 1, 0), min(end + 1, len(runs))
    joined: list[Run] = []
    for run in (*runs[low:first], *pieces, *runs[end:high]):
        if joined and joined[-1][1] == run[0] and joined[-1][2] == run[2]:
            joined[-1] = (joined[-1][0], run[1], run[2])
        else:
            joined.append(run)
    runs[low:high] = joined
