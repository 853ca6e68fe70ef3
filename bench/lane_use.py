"""How well lanes are used: 10,000 events of 1 to 20 keys, against the least time in which they could be handled.

The ideal is max(sum of the handler times / min(lanes, keys), the longest key), with the handler times as the handler
itself measured them: what a slow machine adds to a wait is in both. The consumer runs in this process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

from bench import figures, handlers, one_consumer
from bench.figures import Call
from lbg_consumer.events import Event

EVENTS: Final = 10_000
KEYS: Final = (1, 2, 5, 10, 20)
LANES: Final = 8
MOST_SECONDS: Final = 0.005
SEED: Final = 3
TARGET: Final = 1.1

_calls: list[Call] = []


async def handle(event: Event) -> None:
    """Wait for the event's own time, 0 to 5 ms, and note how long that took."""
    began = time.perf_counter()
    await asyncio.sleep(handlers.cost(SEED, event.shard, event.sequence or 0, 0.0, MOST_SECONDS))
    _calls.append(Call(event.key, began, time.perf_counter()))


def measure(quick: bool) -> figures.Result:
    """Measure each number of keys."""
    events = 1_000 if quick else EVENTS
    found = []
    for keys in KEYS:
        name = f"{keys} keys, time over the ideal" if keys > 1 else "1 key, time over the ideal"
        found.append(figures.figure(name, asyncio.run(_ratio(events, keys)), "", ("<=", TARGET)))
    return figures.Result(
        bench="lanes",
        about="the time for all events over max(sum of handler times / min(lanes, keys), longest key)",
        conditions={
            "events": events,
            "handler": "async, waits 0 to 5 ms, seeded",
            "group": f"HC 256, QC 12, window 50, lanes {LANES}",
            "clock": "wall, from the first handler's begin to the last one's end",
        },
        figures=found,
    )


async def _ratio(events: int, keys: int) -> float:
    calls = await _handled(events, keys)
    return figures.span_seconds(calls) / figures.ideal_seconds(calls, LANES)


async def _handled(events: int, keys: int) -> Sequence[Call]:
    _calls.clear()
    async with one_consumer.stage(one_consumer.group_text(f"{__name__}:handle", lanes=LANES)) as stage:
        names = one_consumer.distinct_shard_keys(keys, stage.contract)
        drawn = names * (events // keys)
        random.Random(SEED).shuffle(drawn)
        await stage.publish(drawn)
        async with stage.in_process():
            await stage.drained(len(drawn))
    return list(_calls)
