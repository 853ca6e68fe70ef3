"""How many keys a second each algorithm turns into shards, as the producer does it: one call per key."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

from bench import figures
from lbg.core import hashing
from lbg.core.hashing import Algorithm

COUNT: Final = 256
KEYS: Final = 20_000


def measure(quick: bool) -> figures.Result:
    """Measure all algorithms over the same keys, in turn, in CPU time."""
    rounds = 5 if quick else 25
    # Decimal digits, so that every algorithm takes them: `modulo` takes nothing else.
    keys = [f"{number * 7919 % 10**8:08d}" for number in range(KEYS)]
    sharders: dict[str, Callable[[str], int]] = {str(name): hashing.sharder(COUNT, name) for name in Algorithm}
    sides = {name: _timed(sharder, keys) for name, sharder in {"an empty function": _empty, **sharders}.items()}
    samples = figures.interleaved(sides, rounds)
    found = []
    for name, seconds in samples.items():
        found.append(figures.figure(f"{name}: keys", KEYS / statistics.median(seconds), "1/s"))
        if name in sharders:
            times = figures.ratio(seconds, samples["an empty function"])
            found.append(figures.figure(f"{name}: cost of a call of an empty function", times, "times"))
    return figures.Result(
        bench="hashing",
        about="key to shard, one call per key",
        conditions={"keys": KEYS, "key": "8 decimal digits", "HC": COUNT, "rounds": rounds, "clock": "CPU time"},
        figures=found,
    )


def _empty(_: str) -> int:
    return 0


def _timed(function: Callable[[str], int], keys: list[str]) -> Callable[[], float]:
    def once() -> float:
        began = time.process_time()
        for key in keys:
            function(key)
        return time.process_time() - began

    return once
