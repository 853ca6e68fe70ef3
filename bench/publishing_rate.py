"""What confirmed publishing through the embedded broker costs against the least it must do: insert rows durably.

Both sides write batches of 50 messages of the same size, each batch durable (synchronous=FULL) before it counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import statistics
import time
from pathlib import Path
from typing import Final

from bench import figures, handlers, one_consumer
from bench.one_consumer import Stage
from lbg.brokers import base
from lbg.brokers.embedded import protocol
from lbg.core import wire

BATCH: Final = 50
TARGET: Final = 0.1


def measure(quick: bool) -> figures.Result:
    """Measure bare inserts, batches one after the other, and batches in flight together, in turn."""
    batches, rounds = (40, 3) if quick else (100, 11)
    samples = asyncio.run(_measure(batches, rounds))
    rates = {name: batches * BATCH / statistics.median(seconds) for name, seconds in samples.items()}
    against = {name: figures.ratio(samples["bare inserts"], seconds) for name, seconds in samples.items()}
    return figures.Result(
        bench="publishing",
        about="confirmed publish into the embedded broker against bare SQLite inserts",
        conditions={
            "batch": BATCH,
            "batches per round": batches,
            "rounds": rounds,
            "message": f"{len(protocol.pack_message(_message(0)))} bytes packed",
            "both": "WAL, synchronous=FULL, one file system",
            "clock": "wall, medians; ratios of neighbouring rounds",
        },
        figures=[
            figures.figure("bare inserts", rates["bare inserts"], "1/s"),
            figures.figure("one batch after the other", rates["one by one"], "1/s"),
            figures.figure("all batches in flight", rates["in flight"], "1/s"),
            figures.figure("one batch after the other, over bare inserts", against["one by one"], "", (">=", TARGET)),
            figures.figure("all batches in flight, over bare inserts", against["in flight"], ""),
        ],
    )


async def _measure(batches: int, rounds: int) -> dict[str, list[float]]:
    async with one_consumer.stage(one_consumer.group_text(f"{handlers.__name__}:does_nothing")) as stage:
        loop = asyncio.get_running_loop()
        samples: dict[str, list[float]] = {"bare inserts": [], "one by one": [], "in flight": []}
        with contextlib.closing(_Bare(stage.folder / "bare.db")) as bare:
            for _ in range(rounds):
                # In a thread, so that the session's heartbeat goes on; the GIL is free while the disk works.
                samples["bare inserts"].append(await loop.run_in_executor(None, bare.insert, batches))
                samples["one by one"].append(await _published(stage, batches, in_flight=1))
                samples["in flight"].append(await _published(stage, batches, in_flight=batches))
        return samples


class _Bare:
    """Inserts into a file of its own."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._next = 0

    def insert(self, batches: int) -> float:
        """Insert so many batches; return the seconds."""
        data = protocol.pack_message(_message(0))
        began = time.perf_counter()
        for _ in range(batches):
            rows = [(self._next + number, data) for number in range(BATCH)]
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO messages VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")
            self._next += BATCH
        return time.perf_counter() - began

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


async def _published(stage: Stage, batches: int, *, in_flight: int) -> float:
    publisher = stage.session.publisher()
    prefix = stage.contract.prefix
    outgoing = [base.Outgoing(base.ToShard(prefix, number), _message(number)) for number in range(BATCH)]
    began = time.perf_counter()
    for _ in range(batches // in_flight):
        confirms = [publisher.submit(outgoing) for _ in range(in_flight)]
        for confirm in confirms:
            if set(await confirm) != {base.Outcome.ACCEPTED}:
                raise RuntimeError("the broker did not accept what the bench published")
    return time.perf_counter() - began


def _message(shard: int) -> wire.Message:
    return wire.stamped(wire.Message(b"x" * 100), f"key-{shard}", wire.Identity("bench", 1, shard, 0), 1)
