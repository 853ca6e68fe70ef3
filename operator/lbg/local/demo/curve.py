"""The load over time: a calm morning, the rush, and the evening after it. Pure.

A curve is a line through points (second, events per second). Its area is the number of events, so that the same shape
fits any number of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

BLACK_FRIDAY: Final = ((0.0, 0.16), (0.07, 0.16), (0.16, 1.0), (0.82, 1.0), (0.90, 0.06), (1.0, 0.04))
"""Black Friday in small: share of the whole time, rate as a share of the peak."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A rate over time, linear between its points."""

    points: tuple[tuple[float, float], ...]  # (second, events per second), by second

    @property
    def seconds(self) -> float:
        """Return how long the load lasts."""
        return self.points[-1][0]

    @property
    def peak(self) -> float:
        """Return the highest rate in events per second."""
        return max(rate for _, rate in self.points)

    def due(self, at: float) -> float:
        """Return how many events are due by a second, counted from the start; constant after the end."""
        total = 0.0
        for (start, first), (end, last) in pairwise(self.points):
            if at <= start:
                break
            width = min(at, end) - start
            reached = first + (last - first) * width / (end - start)
            total += width * (first + reached) / 2
        return total


def fitted(shape: Sequence[tuple[float, float]], count: int, seconds: float) -> Curve:
    """Stretch a shape (shares of time and peak) to `count` events in `seconds`."""
    peak = count / (Curve(tuple(shape)).due(1.0) * seconds)
    return Curve(tuple((share * seconds, rate * peak) for share, rate in shape))
