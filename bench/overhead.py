"""What the runtime costs per event against calling the handler in a loop, in CPU time of the consumer's process.

Between the two stands a bare client, which takes the same deliveries and acknowledges them: what the runtime adds to
that is its own. The broker is another process, and its CPU time is not counted.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Final

from bench import figures, handlers, one_consumer
from bench.one_consumer import Stage
from lbg.brokers import base
from lbg_consumer.events import Event

KEYS: Final = 1000
LOOP, CLIENT, RUNTIME, RECORDS = "handler in a loop", "bare client", "runtime", "runtime with output records"


def measure(quick: bool) -> figures.Result:
    """Measure the four sides in turn."""
    events, rounds = (5_000, 2) if quick else (20_000, 7)
    samples: dict[str, list[float]] = {LOOP: [], CLIENT: [], RUNTIME: [], RECORDS: []}
    for _ in range(rounds):
        samples[LOOP].append(asyncio.run(_loop(events)))
        samples[CLIENT].append(asyncio.run(_client(events)))
        samples[RUNTIME].append(asyncio.run(_runtime(events, output=False)))
        samples[RECORDS].append(asyncio.run(_runtime(events, output=True)))
    found = [
        figures.figure(f"{name}: CPU time per event", statistics.median(spent) / events * 1e6, "µs")
        for name, spent in samples.items()
    ]
    added = statistics.median(a - b for a, b in zip(samples[RUNTIME], samples[LOOP], strict=True))
    found += [
        figures.figure("runtime beyond the loop, per event", added / events * 1e6, "µs"),
        figures.figure("runtime over the bare client", figures.ratio(samples[RUNTIME], samples[CLIENT]), "times"),
        figures.figure("runtime over the loop", figures.ratio(samples[RUNTIME], samples[LOOP]), "times"),
    ]
    return figures.Result(
        bench="overhead",
        about="what the runtime adds to a handler, which is async and does nothing",
        conditions={
            "events": events,
            "rounds": rounds,
            "group": "HC 256, QC 12, window 50, lanes 8",
            "clock": "CPU time of the consumer's process, medians",
        },
        figures=found,
    )


async def _loop(events: int) -> float:
    event = Event(b"x" * 100, "key", 1, 1, 1, "id", "bench", 1, 0, False, 1, False, {}, None)
    began = time.process_time()
    for _ in range(events):
        await handlers.does_nothing(event)
    return time.process_time() - began


async def _runtime(events: int, *, output: bool) -> float:
    text = one_consumer.group_text(f"{handlers.__name__}:does_nothing", output=output)
    async with one_consumer.stage(text) as stage:
        await _fill(stage, events)
        began = time.process_time()
        async with stage.in_process():
            await stage.drained(events)
            return time.process_time() - began


class _Acknowledging:
    """Acknowledges what it is given."""

    def __init__(self) -> None:
        self.link: base.Link | None = None
        self._early: list[int] = []

    def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
        """Acknowledge."""
        tags = [delivery.tag for delivery in deliveries]
        if self.link is None:
            self._early += tags
        else:
            self.link.ack(tags)

    def on_lost(self, reason: str) -> None:
        """Fail: nothing is measured any more."""
        raise RuntimeError(f"the broker took a queue from the bench: {reason}")

    def bound(self, link: base.Link) -> None:
        """Acknowledge what came before the bind had returned."""
        self.link = link
        if self._early:
            link.ack(self._early)


async def _client(events: int) -> float:
    async with one_consumer.stage(one_consumer.group_text(f"{handlers.__name__}:does_nothing")) as stage:
        await _fill(stage, events)
        began = time.process_time()
        for queue in range(stage.contract.queues):
            listener = _Acknowledging()
            link = await stage.session.bind(stage.contract.prefix, queue, name="bench", window=50, listener=listener)
            listener.bound(link)
        await stage.drained(events)
        return time.process_time() - began


async def _fill(stage: Stage, events: int) -> None:
    await stage.publish(f"key-{number % KEYS}" for number in range(events))
