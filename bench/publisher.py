"""A publisher as a process of its own: `python -m bench.publisher`, with the broker's URL in the environment.

It publishes keyed events at a rate, or as fast as it can, and writes the key of each event to a file of rows before it
sends it, so that the validator can tell what is missing at the end. SIGTERM ends it in order: everything is confirmed
first. Its last line says how many events there were, when the first was sent, and the CPU time that they took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from lbg import publishing
from lbg.brokers import base
from lbg.local import children
from lbg.local.pod import URL_VARIABLE

TICK_SECONDS: Final = 0.01
_BODY: Final = b"x" * 100


def main() -> int:
    """Publish; return 0 once everything that was sent is confirmed."""
    parser = argparse.ArgumentParser(prog="python -m bench.publisher", description=__doc__)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="events per second; 0: as fast as it goes")
    parser.add_argument("--burst", type=int, default=0, help="events to send at once, before the rate counts")
    parser.add_argument("--count", type=int, default=0, help="end after so many; 0: at SIGTERM")
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    if not children.die_with(options.parent):
        return 0
    try:
        said = asyncio.run(_publish(os.environ[URL_VARIABLE], options))
    except (base.BrokerError, publishing.PublishError, OSError) as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    sys.stdout.write(f"{json.dumps(said)}\n")
    return 0


def draw_keys(seed: int, keys: int) -> Iterator[str]:
    """Iterate over keys without end; the first is drawn eleven times as often as the last, so none fills a queue."""
    rng = random.Random(seed)
    names = [f"key-{number}" for number in range(keys)]
    weights = [1.0 / (number + keys / 10) for number in range(keys)]
    while True:
        yield from rng.choices(names, weights, k=1000)


async def _publish(url: str, options: argparse.Namespace) -> dict[str, float]:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    keys = draw_keys(options.seed, options.keys)
    with options.rows.open("w", encoding="utf-8") as rows:
        rows.write("key\n")
        async with publishing.Producer.open(url, options.prefix, "bench") as producer:
            began_ms, cpu = time.time() * 1000.0, time.process_time()
            sent = await _send_all(producer, keys, rows, options, stopped)
            await producer.flush()
    return {"count": sent, "began_ms": began_ms, "cpu_seconds": time.process_time() - cpu}


async def _send_all(
    producer: publishing.Producer,
    keys: Iterator[str],
    rows: TextIO,
    options: argparse.Namespace,
    stopped: asyncio.Event,
) -> int:
    began, sent = time.monotonic(), 0
    while not stopped.is_set() and not 0 < options.count <= sent:
        due = sent + 1000
        if options.rate:
            due = options.burst + int(options.rate * (time.monotonic() - began))
        for _ in range(sent, min(due, options.count or due)):
            key = next(keys)
            rows.write(f"{key}\n")
            await producer.send(key, _BODY)
            sent += 1
        if options.rate:
            await asyncio.sleep(TICK_SECONDS)
    return sent


if __name__ == "__main__":
    sys.exit(main())
