"""Handlers that the measured consumers call, by path. They do nothing, or wait as a call to a database would.

How long an event waits follows from its shard and sequence and a seed, not from a random generator of the process: the
same event costs the same wherever it is handled and however often.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from xxhash import xxh64_intdigest

from lbg_consumer.events import Event

LEAST_VARIABLE: Final = "LBG_BENCH_LEAST_MS"
MOST_VARIABLE: Final = "LBG_BENCH_MOST_MS"
SEED_VARIABLE: Final = "LBG_BENCH_SEED"

_LEAST: Final = float(os.environ.get(LEAST_VARIABLE, "0")) / 1000.0
_MOST: Final = float(os.environ.get(MOST_VARIABLE, "100")) / 1000.0
_SEED: Final = int(os.environ.get(SEED_VARIABLE, "1"))


async def does_nothing(_: Event) -> None:
    """Return at once: what is measured is everything around it."""


async def waits(event: Event) -> None:
    """Wait between the least and the most time of this process's environment."""
    await asyncio.sleep(cost(_SEED, event.shard, event.sequence or 0, _LEAST, _MOST))


def cost(seed: int, shard: int, sequence: int, least: float, most: float) -> float:
    """Return an event's handler time in seconds, uniform between `least` and `most`."""
    share = xxh64_intdigest(f"{shard}:{sequence}".encode(), seed) / 2.0**64
    return least + (most - least) * share
