"""How long the table of a very large group takes: every consumer computes it whenever the effective CC moves."""

from __future__ import annotations

import heapq
import statistics
import time
from typing import Final

from bench import figures
from lbg.core import assignment

QUEUES: Final = 10_000
CONSUMERS: Final = 1_000
TARGET_MS: Final = 50.0


def measure(quick: bool) -> figures.Result:
    """Measure the table, the table with its standbys, and the heap operations that it cannot do without."""
    rounds = 5 if quick else 25
    samples = figures.interleaved({"table": _table, "standbys": _table_with_standbys, "heap": _heap_alone}, rounds)
    milliseconds = {name: statistics.median(seconds) * 1000.0 for name, seconds in samples.items()}
    return figures.Result(
        bench="assignment",
        about="the table from one consumer to 1,000, each newcomer taking its share",
        conditions={"QC": QUEUES, "CC": CONSUMERS, "rounds": rounds, "clock": "CPU time, median"},
        figures=[
            figures.figure("table", milliseconds["table"], "ms", ("<", TARGET_MS)),
            figures.figure("table and one standby per queue", milliseconds["standbys"], "ms"),
            figures.figure("table over its heap operations", figures.ratio(samples["table"], samples["heap"]), "times"),
        ],
    )


def _table() -> float:
    began = time.process_time()
    assignment.assign(QUEUES, CONSUMERS, "bench")
    return time.process_time() - began


def _table_with_standbys() -> float:
    began = time.process_time()
    assignment.assign(QUEUES, CONSUMERS, "bench").standbys(0)
    return time.process_time() - began


def _heap_alone() -> float:
    loaded = [(-QUEUES, 0, 0)]
    began = time.process_time()
    for newcomer in range(1, CONSUMERS):
        share = QUEUES // (newcomer + 1)
        for _ in range(share):
            load, tie, source = loaded[0]
            heapq.heapreplace(loaded, (load + 1, tie, source))
        heapq.heappush(loaded, (-share, newcomer, newcomer))
    return time.process_time() - began
