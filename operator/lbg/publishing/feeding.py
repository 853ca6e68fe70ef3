"""Publishing rows: from an iterator of any length to the last confirm, at full speed or at a given pace.

Where rows come from is `rows`' business, and how events travel is the producer's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from lbg.publishing.errors import InvalidEvent, InvalidOption, NotConfirmed, ShardStopped
from lbg.publishing.producer import Producer
from lbg.publishing.reading import ReadAhead
from lbg.publishing.rows import Row, RowRefused

Pace: TypeAlias = Callable[[float], float]
"""How many rows are due by a second since the start. What a stall delayed is made up for afterwards."""

CONTENT_TYPE: Final = "application/json"
_TICK: Final = 0.005  # seconds between two looks at the pace


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the publishing is."""

    rows: int  # given to the producer
    confirmed: int  # of these
    offset: int  # bytes of the source up to the last row
    seconds: float
    trouble: str | None  # why nothing moves, where the broker is away
    is_done: bool = False


def steady(rate: float) -> Pace:
    """Return the pace of so many rows per second.

    Raises:
        InvalidOption: the rate is not positive.
    """
    if not 0 < rate < float("inf"):
        raise InvalidOption(f"rate: {rate:g} rows per second is out of bounds: use more than 0")
    return lambda second: rate * second


def following(curve: Callable[[float], float]) -> Pace:
    """Return the pace of a rate that changes: `curve` gives rows per second at a second since the start.

    The curve is summed up over the seconds at which the pace is asked, which must grow; below 0 counts as 0. A curve
    whose sum is known in closed form is a pace by itself.
    """
    at, due = 0.0, 0.0

    def pace(second: float) -> float:
        nonlocal at, due
        due += max(0.0, curve((at + second) / 2)) * (second - at)
        at = second
        return due

    return pace


async def publish_rows(
    producer: Producer,
    rows: Iterable[Row],
    *,
    pace: Pace | None = None,
    progress: Callable[[Progress], None] | None = None,
    every: float = 0.2,
) -> Progress:
    """Publish rows in their order and wait until all are confirmed; return where it ended.

    Args:
        pace: None for as fast as the broker confirms.
        progress: called every `every` seconds on the event loop, and once more at the end, however that comes.

    Raises:
        RowRefused: a row cannot be published; what stood before it is confirmed.
        ShardStopped: the broker refused an earlier row of its shard; what could be confirmed is.
        NotConfirmed: the broker refused a row, and it showed at the end.
        PublishError: else as `Producer.send` and `Producer.flush`.
    """
    feeding = _Feeding(producer, pace)
    reporting = asyncio.create_task(_report(feeding, progress, every)) if progress is not None else None
    try:
        await feeding.run(rows)
        feeding.is_done = True
    finally:
        if reporting is not None:
            reporting.cancel()
            await asyncio.wait({reporting})
        if progress is not None:
            progress(feeding.progress())
    return feeding.progress()


class _Feeding:
    def __init__(self, producer: Producer, pace: Pace | None) -> None:
        self._producer = producer
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._confirmed_before = producer.stats().confirmed
        self._rows = 0
        self._offset = 0
        self.is_done = False

    def progress(self) -> Progress:
        stats = self._producer.stats()
        # Another user of the producer may have confirms of its own.
        confirmed = min(stats.confirmed - self._confirmed_before, self._rows)
        seconds = self._loop.time() - self._started
        return Progress(self._rows, confirmed, self._offset, seconds, stats.trouble, self.is_done)

    async def run(self, rows: Iterable[Row]) -> None:
        try:
            with ReadAhead(rows) as ahead:
                async for row in ahead:
                    if self._pace is not None:
                        await self._until_due(self._pace)
                    await self._send(row)
        except (RowRefused, ShardStopped) as refused:
            try:
                await self._producer.flush()
            except NotConfirmed as not_confirmed:
                refused.add_note(str(not_confirmed))
            raise
        await self._producer.flush()

    async def _until_due(self, pace: Pace) -> None:
        while pace(self._loop.time() - self._started) < self._rows + 1:  # noqa: ASYNC110  # time is what it waits for
            await asyncio.sleep(_TICK)

    async def _send(self, row: Row) -> None:
        try:
            await self._producer.send(row.key, row.body, content_type=CONTENT_TYPE)
        except InvalidEvent as invalid:
            raise RowRefused(row.source, row.line, str(invalid)) from None
        self._rows += 1
        self._offset = row.offset


async def _report(feeding: _Feeding, progress: Callable[[Progress], None], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        progress(feeding.progress())
