"""How many events a second go from a publisher process over the broker process through one consumer process.

The handler is async and does nothing, so that what is measured is the way there. Also where the CPU time goes.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Final

from bench import cpu, figures, handlers, one_consumer
from bench.one_consumer import Stage
from bench.staging import PYTHONPATH
from lbg.local import children, folders
from lbg.local.children import Child
from lbg.local.pod import URL_VARIABLE

TARGET: Final = 5000.0
HANDLER: Final = f"{handlers.__name__}:does_nothing"
KEYS: Final = 1000
_WARM_UP: Final = 200


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement: events per second, and CPU time of the processes in µs per event."""

    rate: float
    publisher: float
    broker: float
    consumer: float


def measure(quick: bool) -> figures.Result:
    """Measure without and with output records, in turn."""
    events, rounds = (10_000, 1) if quick else (50_000, 5)
    plain, recorded = [], []
    for _ in range(rounds):
        plain.append(asyncio.run(_round(events, output=False)))
        recorded.append(asyncio.run(_round(events, output=True)))
    found = [
        figures.figure("events", statistics.median(r.rate for r in plain), "1/s", (">=", TARGET)),
        figures.figure("events, each with its output record", statistics.median(r.rate for r in recorded), "1/s"),
    ]
    for name, samples in (("", plain), (", with output records", recorded)):
        for process in ("publisher", "broker", "consumer"):
            spent = statistics.median(getattr(sample, process) for sample in samples)
            found.append(figures.figure(f"CPU time of the {process} per event{name}", spent, "µs"))
    return figures.Result(
        bench="end to end",
        about="publisher process, broker process, one consumer process with an async handler that does nothing",
        conditions={
            "events": events,
            "rounds": rounds,
            "keys": KEYS,
            "group": "HC 256, QC 12, window 50, lanes 8",
            "clock": "wall, from the first send to the last acknowledgement; medians",
        },
        figures=found,
    )


async def _round(events: int, *, output: bool) -> Round:
    async with (
        one_consumer.stage(one_consumer.group_text(HANDLER, output=output)) as stage,
        stage.as_process() as child,
    ):
        # The first events wait for the process to start and to bind; they are not measured.
        await stage.publish(f"key-{number}" for number in range(_WARM_UP))
        await stage.drained(_WARM_UP)
        before = cpu.seconds(stage.broker.pid), cpu.seconds(child.pid)
        publisher = await _publisher(stage, events)
        await stage.drained(_WARM_UP + events)
        ended_ms = time.time() * 1000.0
        broker, consumer = cpu.seconds(stage.broker.pid) - before[0], cpu.seconds(child.pid) - before[1]
        await publisher.process.wait()
        said = json.loads(children.last_words(publisher.log))
        per_event = 1e6 / events
        return Round(
            rate=events / (ended_ms - said["began_ms"]) * 1000.0,
            publisher=said["cpu_seconds"] * per_event,
            broker=broker * per_event,
            consumer=consumer * per_event,
        )


async def _publisher(stage: Stage, events: int) -> Child:
    command = [sys.executable, "-m", "bench.publisher", "--prefix", stage.contract.prefix, "--count", str(events)]
    command += ["--keys", str(KEYS), "--rows", str(stage.folder / "rows.csv"), "--parent", str(os.getpid())]
    environment = {URL_VARIABLE: stage.broker.url, "PYTHONPATH": PYTHONPATH}
    return await children.spawn("publisher", command, folders.RunFolder(stage.folder).log("publisher"), environment)
