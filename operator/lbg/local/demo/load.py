"""The demo's publisher: a process of its own that follows the load curve and knows nothing of the consumers.

`python -m lbg.local.demo.load ...` writes what it is going to publish to a source file, publishes it, and prints how
many events the broker has confirmed. It never waits for the consumers: the load is the load.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lbg import publishing
from lbg.brokers import base
from lbg.local import children
from lbg.local.demo import curve, flights
from lbg.local.demo.flights import Departure
from lbg.local.errors import LocalError
from lbg.local.pod import URL_VARIABLE

PRODUCER: Final = "flights"
TICK_SECONDS: Final = 0.02


def main() -> int:
    """Publish; return 0 once every event is confirmed."""
    parser = argparse.ArgumentParser(prog="python -m lbg.local.demo.load", description=__doc__)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    if not children.die_with(options.parent):
        return 0
    try:
        rows = flights.departures(options.rows)
        write_source(options.source, rows)
        load = curve.fitted(curve.BLACK_FRIDAY, len(rows), options.seconds)
        asyncio.run(_publish(os.environ[URL_VARIABLE], options.prefix, rows, load))
    except (LocalError, base.BrokerError, publishing.PublishError, OSError) as failed:
        sys.stderr.write(f"{failed}\n")
        return 1
    sys.stdout.write(f"{len(rows)} events confirmed\n")
    return 0


def write_source(path: Path, rows: Sequence[Departure]) -> None:
    """Write what will be published, in order, for the validator: `key` and the columns that identify the row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("key", "year", "month", "day", "sched_dep_time", "carrier", "flight", "origin"))
        for row in rows:
            identity = (row.year, row.month, row.day, row.sched_dep_time, row.carrier, row.flight, row.origin)
            writer.writerow((row.key, *identity))


async def _publish(url: str, prefix: str, rows: Sequence[Departure], load: curve.Curve) -> None:
    async with publishing.Producer.open(url, prefix, PRODUCER) as producer:
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        while sent < len(rows):
            # The last event must not hang on a rounding error of the area.
            passed = loop.time() - began
            due = len(rows) if passed >= load.seconds else min(len(rows), int(load.due(passed)))
            for row in rows[sent:due]:
                await producer.send(row.key, row.body, content_type="application/json")
            sent = max(sent, due)
            await asyncio.sleep(TICK_SECONDS)
        await producer.flush()


if __name__ == "__main__":
    sys.exit(main())
