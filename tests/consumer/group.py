"""A small group for tests: a real broker process, real consumers in this event loop, and a membership in memory.

The coordinator's part is played by hand (`scale`, `look`), so that a test says itself when the effective CC moves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lbg.brokers import base, registry
from lbg.brokers.embedded import process as embedded
from lbg.core import assignment, hashing, spec, wire
from lbg.core.contract import Contract
from lbg.core.membership import GroupView, Membership, Request, Seat, StaleSeat, StoreUnavailable
from lbg.core.outputs import OutputRecord, from_message
from lbg_consumer import consumer, settings

PATIENCE = 20.0  # seconds a condition may take on a busy machine

YAML = """
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {{name: orders}}
spec:
  hashing: {{count: {shards}}}
  queues: {{count: {queues}}}
  consumers:
    max: {queues}
    window: {window}
    lanes: {lanes}
    handler: {handler}
    output: {{to: out}}
    retry: {{maxAttempts: {attempts}, backoff: 1ms}}
    onPoison: {poison}
    drainBudget: 5s
"""


@dataclass
class Records:
    """The membership of one test, shared by its consumers and written by hand."""

    view: GroupView
    seats: dict[int, Seat] = field(default_factory=dict)
    away: bool = False
    version: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, seat: Seat) -> Seat:
        """Write a seat whatever its version."""
        self.touch()
        self.seats[seat.ordinal] = replace(seat, version=str(self.version))
        return self.seats[seat.ordinal]

    def show(self, **fields: object) -> None:
        """Change the view."""
        self.view = replace(self.view, **fields)  # type: ignore[arg-type]
        self.touch()

    def touch(self) -> None:
        """Wake everybody who waits."""
        self.version += 1
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()

    async def changed(self, at_most: float, since: int) -> None:
        """Wait until the version is beyond `since`."""
        if self.version == since:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), at_most)


@dataclass
class MemoryMembership:
    """One consumer's access to the records."""

    records: Records
    _seen: int = -1

    async def observe(self) -> Membership:
        """Read everything."""
        self._answer()
        self._seen = self.records.version
        return Membership(self.records.view, tuple(self.records.seats[i] for i in sorted(self.records.seats)))

    async def replace(self, seat: Seat) -> Seat:
        """Compare and swap."""
        self._answer()
        if self.records.seats[seat.ordinal].version != seat.version:
            raise StaleSeat
        return self.records.put(seat)

    async def changed(self, at_most: float) -> None:
        """Wait for a change since the last look."""
        await self.records.changed(at_most, self._seen)

    async def close(self) -> None:
        """Nothing to close."""

    def _answer(self) -> None:
        if self.records.away:
            raise StoreUnavailable("the store is away")


@dataclass
class Running:
    """One consumer of the test."""

    name: str
    stopped: asyncio.Event
    task: asyncio.Task[int]

    async def stop(self) -> int:
        """Ask it to end, and wait for its exit code."""
        self.stopped.set()
        return await asyncio.wait_for(self.task, PATIENCE)


@dataclass
class Group:
    """Everything a test talks to."""

    url: str
    broker: embedded.BrokerProcess
    store: Records
    contract: Contract
    session: base.Session
    admin: base.Admin
    consumers: list[Running] = field(default_factory=list)
    _sequences: dict[int, int] = field(default_factory=dict)

    async def scale(self, cc: int) -> None:
        """Set desired and, once their seats are connected, effective CC."""
        for ordinal in range(cc):
            if ordinal not in self.store.seats:
                self.store.put(Seat(ordinal, "0"))
        self.store.show(desired=cc)
        if cc > self.store.view.effective:
            await self.until(lambda: all(self.store.seats[i].summary.connected for i in range(cc)))
        self.store.show(effective=cc, generation=self.store.view.generation + 1)

    def start(self, name: str, **given: object) -> Running:
        """Start a consumer."""
        stopped = asyncio.Event()
        who = settings.Identity(name, f"uid-{name}", f"{len(self.consumers)}")
        process = consumer.Process(who, self.url, **given)  # type: ignore[arg-type]
        running = Running(
            name, stopped, asyncio.ensure_future(consumer.run(process, MemoryMembership(self.store), stopped))
        )
        self.consumers.append(running)
        return running

    async def publish(self, keys: list[str], producer: str = "p", incarnation: int = 1) -> None:
        """Publish one event per key, in order, and wait for the confirms."""
        batch = []
        shard_of = hashing.sharder(self.contract.count, self.contract.algorithm)
        for key in keys:
            shard = shard_of(key)
            sequence = self._sequences.get(shard, 0)
            self._sequences[shard] = sequence + 1
            identity = wire.Identity(producer, incarnation, shard, sequence)
            message = wire.stamped(wire.Message(key.encode()), key, identity, 1)
            batch.append(base.Outgoing(base.ToShard(self.contract.prefix, shard), message))
        outcomes = await self.session.publisher().submit(batch)
        assert set(outcomes) == {base.Outcome.ACCEPTED}

    async def follow(self) -> AsyncIterator[OutputRecord]:
        """Read output records in arrival order, without end."""
        async for _, message in self.session.read_output(self.contract.prefix, "out"):
            yield from_message(message)

    async def outputs(self, count: int) -> list[OutputRecord]:
        """Read the first `count` output records, in arrival order."""
        records: list[OutputRecord] = []

        async def read() -> None:
            async for record in self.follow():
                records.append(record)
                if len(records) >= count:
                    return

        await asyncio.wait_for(read(), PATIENCE)
        return records

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the membership."""

        async def wait() -> None:
            while not condition():
                for running in self.consumers:
                    if running.task.done() and running.task.exception() is not None:
                        running.task.result()  # it will never happen: say why
                await self.store.changed(0.05, self.store.version)

        await asyncio.wait_for(wait(), PATIENCE)

    async def until_drained(self) -> None:
        """Wait until every queue is empty, acknowledgements included."""

        async def wait() -> None:
            while any(state.backlog for state in await self.admin.observe(self.contract.prefix)):
                await self.store.changed(0.02, self.store.version)

        await asyncio.wait_for(wait(), PATIENCE)

    async def until_settled(self) -> None:
        """Wait until every queue is active at the consumer that the table names (events must be flowing)."""
        view = self.store.view
        table = assignment.assign(self.contract.queues, view.effective, view.group)

        def is_settled() -> bool:
            return all(q in self.store.seats[o].summary.epochs for q, o in enumerate(table.owners))

        await self.until(is_settled)

    @contextlib.asynccontextmanager
    async def load(self, keys: list[str]) -> AsyncIterator[Load]:
        """Publish the keys over and over until `end`, a batch at a time."""
        load = Load(self, keys)
        try:
            yield load
        finally:
            load.task.cancel()

    async def relaunched(self) -> embedded.BrokerProcess:
        """Start a broker on the same store and address as the one that is gone."""
        return await embedded.launch(self.broker.store, self.url, handover=self.session.abilities.handover)

    async def restart_broker(self) -> None:
        """Kill the broker with SIGKILL and start it anew on the same store and address."""
        await self.session.close()
        await self.admin.close()
        self.broker.kill()
        self.broker = await self.relaunched()
        adapter = registry.adapter(self.url)
        self.admin = await adapter.open_admin(self.url)
        self.session = await adapter.open_session(self.url, name="test")

    def ask(self, request: Request) -> None:
        """File a request, as `lbg skip` does."""
        self.store.show(requests=(*self.store.view.requests, request))

    def serving(self) -> dict[int, str | None]:
        """Return who says to be active, per queue."""
        return {q: s.holder for s in self.store.seats.values() for q in s.summary.epochs}


class Load:
    """A publisher in the background."""

    def __init__(self, group: Group, keys: list[str]) -> None:
        self._ending = False
        self._group = group
        self._keys = keys
        self.task = asyncio.ensure_future(self._run())

    async def end(self) -> int:
        """Publish the last batch and return how many events there were."""
        self._ending = True
        return await self.task

    async def _run(self) -> int:
        count = 0
        while not self._ending:
            await self._group.publish(self._keys)
            count += len(self._keys)
            await self._group.store.changed(0.02, self._group.store.version)  # a moderate rate, whatever the machine
        return count


@contextlib.asynccontextmanager
async def running_group(
    folder: Path,
    *,
    handler: str = "{republish: {to: out}}",
    ability: str = "cooperative",
    shards: int = 64,
    queues: int = 6,
    window: int = 20,
    lanes: int = 4,
    attempts: int = 3,
    poison: str = "Block",
) -> AsyncIterator[Group]:
    """Bring a group up; everything is gone afterwards."""
    text = YAML.format(**{k: v for k, v in locals().items() if k not in ("folder", "ability")})
    broker = await embedded.launch(
        folder / "b.db", f"embedded://{folder}/b.sock", handover=base.HandoverAbility(ability)
    )
    adapter = registry.adapter(broker.url)
    admin = await adapter.open_admin(broker.url)
    contract = spec.contract(spec.load(text, "orders.yaml"))
    await admin.declare(base.Topology(contract, "test", outputs=("out",)))
    session = await adapter.open_session(broker.url, name="test")
    store = Records(GroupView("orders", text, 0, 0, 0, assignment.TABLE_VERSION))
    group = Group(broker.url, broker, store, contract, session, admin)
    try:
        yield group
        store.show(suspended=True)  # nobody is left to take over: do not wait for a successor
        for running in group.consumers:
            if not running.task.done():
                await running.stop()
    finally:
        for running in group.consumers:
            running.task.cancel()
        await asyncio.gather(*(r.task for r in group.consumers), return_exceptions=True)
        await group.session.close()
        await group.admin.close()
        group.broker.stop()
