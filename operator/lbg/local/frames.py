"""What a person sees of a run at one moment: plain values, gathered by the supervisor and drawn by `lbg.local.view`.

Unknown is None here too, and is drawn as `?`: a broker that does not answer has no backlog of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue."""

    queue: int
    owner: str | None  # the consumer that is active on it
    standby: str | None  # the one that would take over
    epoch: int | None
    backlog: int | None


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """One consumer process."""

    name: str
    seat: int | None
    phase: str  # starting | ready | stopping
    rate: float
    busy: float


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything on the screen."""

    group: str
    broker: str
    shards: int
    queue_count: int
    folder: str
    seconds: float  # since the run started
    mode: str  # of autoscaling
    desired: int
    effective: int
    ready: int
    backlog: int | None
    rate_in: float | None  # events published per second
    rate_out: float | None  # events handled per second
    history: Sequence[int | None]  # backlog over the last seconds, oldest first
    queues: Sequence[QueueRow]  # all of them, or the ones with the largest backlog
    consumers: Sequence[ConsumerRow]
    events: Sequence[tuple[str, str]]  # time of day and sentence, oldest first
    trouble: str | None = None  # what a person should know first


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[int | None], width: int) -> str:
    """Return the last `width` values as bars from 0 to the highest of them; a blank where unknown, a dot for 0."""
    shown = list(values)[-width:] if width > 0 else []
    top = max((value for value in shown if value), default=0)
    return "".join(_bar(value, top) for value in shown)


def _bar(value: int | None, top: int) -> str:
    if value is None:
        return " "
    return BARS[min(len(BARS) - 1, (value * len(BARS) - 1) // top)] if value else "."


def count(value: float | None) -> str:
    """Return a count in at most five characters: 999, 12.3k, 4.56M; `?` for unknown."""
    if value is None:
        return "?"
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size * (10 if unit == "k" else 1):
            return f"{value / size:.3g}{unit}" if value / size < 999.5 else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def plain(frame: Frame) -> str:
    """Return the frame as one line, for a screen that is no terminal."""
    trouble = f"; {frame.trouble}" if frame.trouble else ""
    rate = f"{count(frame.rate_in)}/s in, {count(frame.rate_out)}/s out"
    replicas = f"{frame.desired} desired, {frame.effective} effective, {frame.ready} ready"
    return f"{frame.group}: {replicas}; backlog {count(frame.backlog)}; {rate}{trouble}"
