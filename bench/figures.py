"""What a bench returns, and the arithmetic between measurements and figures. Everything here is pure.

A result is a dict of JSON types: `bench`, `about`, `conditions`, and `figures`, each with name, value, unit, target
(text, or None: only reported) and met (None without a target). A value that was not measured is None, and meets no
target.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict

Wanted: TypeAlias = tuple[Literal["<", "<=", ">="], float]
"""A target before it has its figure's unit."""


class Figure(TypedDict):
    """One number of a bench."""

    name: str
    value: float | None
    unit: str
    target: str | None
    met: bool | None


class Result(TypedDict):
    """What one bench found, and under which conditions."""

    bench: str
    about: str
    conditions: dict[str, object]
    figures: list[Figure]


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should be."""

    relation: Literal["<", "<=", ">="]
    limit: float
    unit: str = ""

    def is_met(self, value: float) -> bool:
        """Return whether a value is what it should be."""
        match self.relation:
            case "<":
                return value < self.limit
            case "<=":
                return value <= self.limit
            case ">=":
                return value >= self.limit

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:,g} {self.unit}".rstrip()


def figure(name: str, value: float | None, unit: str, target: Wanted | None = None) -> Figure:
    """Return a figure; rounded to four digits, since no more were measured."""
    wanted = None if target is None else Target(*target, unit)
    met = None if wanted is None else value is not None and wanted.is_met(value)
    shown = value if value is None or not math.isfinite(value) else float(f"{value:.4g}")
    return Figure(name=name, value=shown, unit=unit, target=None if wanted is None else str(wanted), met=met)


def interleaved(sides: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure several sides in turn and return the samples of each, those of one round at the same place.

    Every second round goes backwards, so that a machine that grows slower does not favour the side that goes first.
    """
    samples: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            samples[name].append(sides[name]())
    return samples


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of the ratios of neighbours; noise that lasts a round touches both."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


@dataclass(frozen=True, slots=True)
class Call:
    """One handler call, timed inside the handler, in seconds of one clock."""

    key: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return self.ended - self.began


def ideal_seconds(calls: Iterable[Call], lanes: int) -> float:
    """Return the least time in which calls could have been made: no lane idle, and no key waiting for a lane.

    That is max(sum of the handler times / min(lanes, keys), the handler times of the longest key).
    """
    by_key: dict[str, float] = {}
    for call in calls:
        by_key[call.key] = by_key.get(call.key, 0.0) + call.seconds
    if not by_key:
        return 0.0
    return max(sum(by_key.values()) / min(lanes, len(by_key)), *by_key.values())


def span_seconds(calls: Sequence[Call]) -> float:
    """Return the time from the first beginning to the last end."""
    return max(call.ended for call in calls) - min(call.began for call in calls)
