"""A group with one consumer, without supervisor and autoscaler: broker process, topology, membership, and the consumer.

The membership is a state file as in a local run, written once: effective CC 1, so that nothing moves while a bench
measures. The consumer runs in this process (`in_process`) or in one of its own (`as_process`), with the same runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.staging import PYTHONPATH
from lbg.brokers import base, registry
from lbg.brokers.embedded import process as embedded
from lbg.core import assignment, hashing, spec, wire
from lbg.core.contract import Contract
from lbg.core.membership import GroupView
from lbg.local import children, folders, store
from lbg.local.children import Child
from lbg.local.pod import URL_VARIABLE
from lbg_consumer import consumer, settings

POLL_SECONDS: Final = 0.005
PATIENCE: Final = 300.0
_BATCH: Final = 500

GROUP: Final = """
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {{name: bench}}
spec:
  hashing: {{count: {shards}}}
  queues: {{count: {queues}}}
  consumers:
    window: {window}
    lanes: {lanes}
    handler: {{python: '{handler}'}}
    {output}
  autoscaling: {{mode: "Off"}}
"""


def group_text(
    handler: str, *, shards: int = 256, queues: int = 12, window: int = 50, lanes: int = 8, output: bool = False
) -> str:
    """Return the YAML of a group; the defaults are those of the object."""
    written = "output: {to: out}" if output else ""
    return GROUP.format(shards=shards, queues=queues, window=window, lanes=lanes, handler=handler, output=written)


@dataclass(slots=True)
class Stage:
    """A group that waits for its consumer."""

    folder: Path
    broker: embedded.BrokerProcess
    contract: Contract
    session: base.Session
    admin: base.Admin

    async def publish(self, keys: Iterable[str]) -> int:
        """Publish one event per key, in order, under one identity, and wait for the confirms; return their number.

        Call it once: sequences start at 0 each time.
        """
        shard_of = hashing.sharder(self.contract.count, self.contract.algorithm)
        prefix, sequences, batch, count = self.contract.prefix, dict[int, int](), list[base.Outgoing](), 0
        publisher = self.session.publisher()
        for key in keys:
            shard = shard_of(key)
            sequence = sequences[shard] = sequences.get(shard, -1) + 1
            message = wire.stamped(wire.Message(b"x" * 100), key, wire.Identity("bench", 1, shard, sequence), 1)
            batch.append(base.Outgoing(base.ToShard(prefix, shard), message))
            count += 1
            if len(batch) == _BATCH:
                _check(await publisher.submit(batch))
                batch = []
        _check(await publisher.submit(batch))
        return count

    async def drained(self, published: int) -> None:
        """Wait until so many events were published and all of them are acknowledged."""
        async with asyncio.timeout(PATIENCE):
            while True:
                states = await self.admin.observe(self.contract.prefix)
                if sum(s.published or 0 for s in states) >= published and not any(s.backlog for s in states):
                    return
                await asyncio.sleep(POLL_SECONDS)

    @contextlib.asynccontextmanager
    async def in_process(self) -> AsyncIterator[None]:
        """Run the consumer on this event loop."""
        stopped = asyncio.Event()
        process = consumer.Process(settings.Identity("consumer-1", "uid", "nonce"), self.broker.url)
        membership = store.SqliteMembership(store.open_existing(self.folder / "state.db"))
        running = asyncio.ensure_future(consumer.run(process, membership, stopped))
        try:
            yield
        finally:
            self._end()
            stopped.set()
            await running
            await membership.close()

    @contextlib.asynccontextmanager
    async def as_process(self) -> AsyncIterator[Child]:
        """Run the consumer as a local run does."""
        command = [sys.executable, "-m", "lbg.local.pod", "--run", str(self.folder), "--name", "consumer-1"]
        command += ["--uid", "uid", "--parent", str(os.getpid())]
        environment = {URL_VARIABLE: self.broker.url, "PYTHONPATH": PYTHONPATH}
        child = await children.spawn(
            "consumer-1", command, folders.RunFolder(self.folder).log("consumer-1"), environment
        )
        try:
            yield child
        finally:
            self._end()
            await child.stop(30.0)

    def _end(self) -> None:
        # Nobody is there to take over: an effective CC of 0 lets the consumer go without waiting for a successor.
        with contextlib.closing(store.open_existing(self.folder / "state.db")) as state:
            view = state.view()
            assert view is not None
            state.write_view(GroupView(view.group, view.spec, 0, 0, view.generation + 1, view.table_version))


@contextlib.asynccontextmanager
async def stage(text: str, ability: base.HandoverAbility = base.HandoverAbility.COOPERATIVE) -> AsyncIterator[Stage]:
    """Bring up everything but the consumer; everything is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="lbg-bench-"))
    try:
        folders.RunFolder(folder).create()
        group = spec.load(text, "the bench's group")
        contract = spec.contract(group)
        with contextlib.closing(store.create(folder / "state.db")) as state:
            state.create_seat(0)
            state.write_view(GroupView(group.name, text, 1, 1, 1, assignment.TABLE_VERSION))
        broker = await embedded.launch(folder / "broker.db", f"embedded://{folder}/broker.sock", handover=ability)
        try:
            adapter = registry.adapter(broker.url)
            admin = await adapter.open_admin(broker.url)
            stream = group.spec.consumers.output_to
            await admin.declare(base.Topology(contract, "bench", outputs=() if stream is None else (stream,)))
            session = await adapter.open_session(broker.url, name="bench")
            yield Stage(folder, broker, contract, session, admin)
            await session.close()
            await admin.close()
        finally:
            broker.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(outcomes: Iterable[base.Outcome]) -> None:
    refused = set(outcomes) - {base.Outcome.ACCEPTED}
    if refused:
        raise RuntimeError(f"the broker did not accept what the bench published: {refused}")


def distinct_shard_keys(count: int, contract: Contract) -> list[str]:
    """Return keys of which no two share a shard."""
    shard_of = hashing.sharder(contract.count, contract.algorithm)
    found: dict[int, str] = {}
    for number in range(1_000_000):
        found.setdefault(shard_of(f"key-{number}"), f"key-{number}")
        if len(found) == count:
            return list(found.values())
    raise ValueError(f"count {count}: the contract has {contract.count} shards")
