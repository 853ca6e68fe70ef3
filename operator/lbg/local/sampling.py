"""What a run looked like over time: a sample a second into `metrics.jsonl`, and the frame for the screen.

Rates come from the broker's own counts: published is monotonic, and what was handled is what was published less what
waits. Unknown stays unknown, in the samples as on the screen.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from lbg.core.observed import Observed
from lbg.core.run_log import RunEvent
from lbg.core.spec import LoadBalancedGroup
from lbg.core.status import QueueStatus, Status
from lbg.local import journal
from lbg.local.coordinator import Look
from lbg.local.crew import Crew
from lbg.local.errors import StorageRefused
from lbg.local.frames import ConsumerRow, Frame, QueueRow
from lbg.local.lines import Lines

SAMPLE_SECONDS: Final = 1.0
_HISTORY: Final = 300
_EVENTS: Final = 40


class Totals(NamedTuple):
    """The broker's counts at one moment; None when any queue's is unknown."""

    at: float  # monotonic seconds
    published: int | None
    handled: int | None


class Sampler:
    """Keeps the last samples of a run and writes each of them down."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._last: Totals | None = None
        self.history: deque[int | None] = deque(maxlen=_HISTORY)
        self.rate_in: float | None = None
        self.rate_out: float | None = None
        self.failure: StorageRefused | None = None

    @property
    def handled(self) -> int | None:
        """Return how many events were handled by the last sample, or None when that is unknown."""
        return None if self._last is None else self._last.handled

    def sample(self, look: Look) -> None:
        """Take a sample if one is due."""
        now = time.monotonic()
        if self._last is not None and now - self._last.at < SAMPLE_SECONDS:
            return
        status = look.plan.status
        totals = _totals(look.seen, status.backlog, now)
        if self._last is not None:
            self.rate_in = _rate(self._last.published, totals.published, now - self._last.at)
            self.rate_out = _rate(self._last.handled, totals.handled, now - self._last.at)
        self._last = totals
        self.history.append(status.backlog)
        self._lines.append([json.dumps(self._line(status, totals), separators=(",", ":"))])
        try:
            self._lines.flush()
        except StorageRefused as refused:
            self.failure = refused

    def close(self) -> None:
        """Close. Idempotent."""
        self._lines.close()

    def _line(self, status: Status, totals: Totals) -> dict[str, object]:
        return {
            "at_ms": round(time.time() * 1000),
            "desired": status.desired,
            "effective": status.effective,
            "ready": status.ready,
            "replicas": status.replicas,
            "backlog": status.backlog,
            "published": totals.published,
            "handled": totals.handled,
            "rate_in": None if self.rate_in is None else round(self.rate_in, 1),
            "rate_out": None if self.rate_out is None else round(self.rate_out, 1),
            "queues": [{"queue": q.queue, "owner": q.owner, "backlog": q.backlog} for q in status.queues],
        }


class Facts(NamedTuple):
    """What does not change during a run, for the screen."""

    group: LoadBalancedGroup
    broker: str
    folder: str
    started: float  # monotonic seconds


def frame(
    facts: Facts, look: Look, crew: Crew, sampler: Sampler, recent: Iterable[RunEvent], trouble: str | None
) -> Frame:
    """Return what to show now."""
    status, group = look.plan.status, facts.group
    return Frame(
        group=group.name,
        broker=facts.broker,
        shards=group.spec.hashing.count,
        queue_count=status.queue_count,
        folder=facts.folder,
        seconds=time.monotonic() - facts.started,
        mode=group.spec.autoscaling.mode.value,
        desired=status.desired,
        effective=status.effective,
        ready=status.ready or 0,
        backlog=status.backlog,
        rate_in=sampler.rate_in,
        rate_out=sampler.rate_out,
        history=sampler.history,
        queues=[_queue(queue) for queue in status.queues],
        consumers=_consumers(look.seen, crew),
        events=[(_time_of_day(event), journal.sentence(event)) for event in list(recent)[-_EVENTS:]],
        trouble=trouble,
    )


def _queue(queue: QueueStatus) -> QueueRow:
    return QueueRow(queue.queue, queue.owner, queue.standby[0] if queue.standby else None, queue.epoch, queue.backlog)


def _consumers(seen: Observed, crew: Crew) -> list[ConsumerRow]:
    rows = []
    for record, consumer in zip(crew.records(), crew.look(), strict=True):
        held = [seat for seat in seen.seats or () if consumer.is_holder(seat.holder)]
        seat = min(held, key=lambda seat: seat.ordinal, default=None)
        said = seat.summary if seat is not None else None
        ordinal = seat.ordinal if seat is not None else None
        rate, busy = (said.rate, said.busy) if said is not None else (0.0, 0.0)
        rows.append(ConsumerRow(record.name, ordinal, record.phase, rate, busy))
    return rows


def _totals(seen: Observed, backlog: int | None, now: float) -> Totals:
    counts = [look.published for look in seen.queues or ()]
    known = [count for count in counts if count is not None]
    published = sum(known) if counts and len(known) == len(counts) else None
    handled = None if published is None or backlog is None else published - backlog
    return Totals(now, published, handled)


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0:
        return None
    # Negative where a count began again: a broker with another store.
    return max(0.0, (after - before) / seconds)


def _time_of_day(event: RunEvent) -> str:
    return datetime.fromtimestamp(event.at_ms / 1000).astimezone().strftime("%H:%M:%S")
