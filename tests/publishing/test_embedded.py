"""The producer on the embedded broker, a process of its own: limits, crashes and restarts while it publishes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from lbg.brokers import base
from lbg.brokers.embedded import client, process
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.wire import Message
from lbg.publishing import Backoff, NotConfirmed, NotPublished, Options, Producer, ShardStopped, SyncProducer
from tests.publishing.fakes import PATIENCE, raised, run
from tests.publishing.fakes import until_elsewhere as until

CONTRACT = Contract("orders", 16, Algorithm.XXH64, 4)
QUICK = Options(reconnect=Backoff(0.005, 0.02), retry=Backoff(0.001, 0.01))


class Broker:
    """A broker process that can be killed and started again on the same store."""

    def __init__(self, folder: Path) -> None:
        self._store, self.url = folder / "store.db", f"embedded://{folder}/socket"
        self.process = process.launch_and_wait(self._store, self.url)

    def crash(self) -> None:
        self.process.kill()

    def start(self) -> None:
        self.process = process.launch_and_wait(self._store, self.url)

    async def declare(self, *, size_limit: int | None = None) -> None:
        admin = await client.EmbeddedAdapter().open_admin(self.url)
        await admin.declare(base.Topology(CONTRACT, "test", size_limit=size_limit))
        await admin.close()

    async def delete(self) -> None:
        admin = await client.EmbeddedAdapter().open_admin(self.url)
        await admin.delete("orders", "test", only_if_empty=False)
        await admin.close()

    async def take(self, count: int | None = None) -> list[Message]:
        """Consume so many messages, or all there are, in queue order."""
        admin = await client.EmbeddedAdapter().open_admin(self.url)
        backlog = sum(state.backlog or 0 for state in await admin.observe("orders"))
        await admin.close()
        session = await client.EmbeddedAdapter().open_session(self.url, name="taker")
        taker = Taker(backlog if count is None else count)
        for queue in range(CONTRACT.queues):
            taker.links[queue] = await session.bind("orders", queue, name="taker", window=500, listener=taker)
        await until(lambda: len(taker.messages) >= taker.wanted)
        await session.close()
        return taker.messages


class Taker:
    """Takes messages, and acknowledges the ones it wanted."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.messages: list[Message] = []
        self.links: dict[int, base.Link] = {}

    def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
        for delivery in deliveries:
            if len(self.messages) < self.wanted:
                self.messages.append(delivery.message)
                self.links[delivery.queue].ack([delivery.tag])

    def on_lost(self, reason: str) -> None:
        raise AssertionError(reason)


@asynccontextmanager
async def running(folder: Path, *, size_limit: int | None = None) -> AsyncIterator[Broker]:
    broker = Broker(folder)
    try:
        await broker.declare(size_limit=size_limit)
        yield broker
    finally:
        broker.process.stop()


def assert_in_order(messages: Sequence[Message], count: int) -> int:
    """Check, per shard, dense sequences in published order with repeated suffixes only; return the repetitions."""
    shards: dict[tuple[int, int], list[int]] = defaultdict(list)
    for message in messages:
        identity = message.identity
        assert identity is not None
        shards[identity.shard, identity.incarnation].append(identity.sequence)
    for sequences in shards.values():
        assert sequences[0] == 0
        assert all(after <= before + 1 for before, after in pairwise(sequences))
    assert sum(len(set(sequences)) for sequences in shards.values()) == count
    return len(messages) - count


def assert_key_order(messages: Sequence[Message]) -> None:
    """Check that the numbers in the bodies of each key grow, at their first occurrence."""
    last: dict[str, int] = {}
    seen: set[str] = set()
    for message in messages:
        assert message.key is not None
        assert message.message_id is not None
        if message.message_id not in seen:
            assert int(message.body) > last.get(message.key, -1)
            last[message.key] = int(message.body)
        seen.add(message.message_id)


def test_events_arrive_as_published(tmp_path: Path) -> None:
    """What is confirmed is at the broker once, with the contract's shards."""

    async def story() -> list[Message]:
        async with running(tmp_path) as broker:
            async with Producer.open(broker.url, "orders", options=QUICK) as producer:
                for i in range(2_000):
                    await producer.send(f"key-{i % 37}", b"%d" % i)
                await producer.flush()
                assert producer.stats().resent == 0
            return await broker.take()

    messages = run(story())
    assert assert_in_order(messages, 2_000) == 0
    assert_key_order(messages)


def test_a_broker_killed_while_publishing_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    """kill -9 and a restart, several times: nothing is lost, order is kept, repetitions are suffixes only."""
    options = replace(QUICK, max_in_flight=100, batch=20, max_events=500)

    async def story() -> tuple[list[Message], int, int]:
        async with running(tmp_path) as broker:
            async with Producer.open(broker.url, "orders", options=options) as producer:
                for i in range(3_000):
                    await producer.send(f"key-{i % 37}", b"%d" % i)
                    if i % 700 == 650:
                        await until(lambda: producer.stats().in_flight > 0)
                        broker.crash()
                        await until(lambda: not producer.stats().is_connected)
                        broker.start()
                await producer.flush()
                stats = producer.stats()
            return await broker.take(), stats.reconnects, stats.confirmed

    messages, reconnects, confirmed = run(story())
    assert (reconnects, confirmed) == (4, 3_000)
    assert assert_in_order(messages, 3_000) <= 4 * 100
    assert_key_order(messages)


def test_threads_publish_across_a_crash(tmp_path: Path) -> None:
    """Publishers that wait for each confirm, in several threads, go on after the restart in their order."""

    async def prepare(broker: Broker) -> None:
        await broker.declare()

    broker = Broker(tmp_path)
    try:
        run(prepare(broker))
        half, counts = threading.Barrier(4), []
        with SyncProducer.open(broker.url, "orders", options=QUICK) as producer:

            def publish(thread: int) -> None:
                for i in range(100):
                    if i == 50:
                        half.wait(PATIENCE)
                    producer.publish(f"thread-{thread}", b"%d" % i, within=PATIENCE)
                counts.append(thread)

            threads = [threading.Thread(target=publish, args=(thread,)) for thread in range(3)]
            for thread in threads:
                thread.start()
            half.wait(PATIENCE)
            broker.crash()
            broker.start()
            for thread in threads:
                thread.join(PATIENCE)
        messages = run(broker.take())
    finally:
        broker.process.stop()
    assert sorted(counts) == [0, 1, 2]
    assert_in_order(messages, 300)
    assert_key_order(messages)


def test_a_broker_that_stands_still_for_a_while_loses_nothing(tmp_path: Path) -> None:
    """A stopped broker (SIGSTOP) holds events back and loses none once it goes on."""

    async def story() -> list[Message]:
        async with running(tmp_path) as broker:
            async with Producer.open(broker.url, "orders", options=QUICK) as producer:
                await producer.publish("a", b"0")
                os.kill(broker.process.pid, signal.SIGSTOP)
                for i in range(1, 50):
                    await producer.send("a", b"%d" % i)
                late = await raised(producer.flush(0.05), NotConfirmed)
                assert late.count == 49
                os.kill(broker.process.pid, signal.SIGCONT)
                await producer.flush()
            return await broker.take()

    messages = run(story())
    assert_in_order(messages, 50)
    assert_key_order(messages)


def test_full_queues_fill_and_drain_without_disorder(tmp_path: Path) -> None:
    """With a limit of 20 messages per queue everything gets through in order while a consumer makes room."""

    async def story() -> list[Message]:
        async with running(tmp_path, size_limit=20) as broker:
            async with Producer.open(broker.url, "orders", options=QUICK) as producer:
                for i in range(400):
                    await producer.send(f"key-{i % 37}", b"%d" % i)
                late = await raised(producer.flush(0.05), NotConfirmed)
                assert {event.reason for event in late.events} == {"its queue is full"}
                messages = []
                while producer.stats().confirmed < 400:
                    messages += await broker.take()
                assert producer.stats().failed == 0
            return messages + await broker.take()

    messages = run(story())
    assert assert_in_order(messages, 400) == 0
    assert_key_order(messages)


def test_a_deleted_stream_is_refused_and_a_restart_goes_on(tmp_path: Path) -> None:
    """Without the stream an event is unroutable and stops its shard; declared again, the shard is restarted."""

    async def story() -> list[Message]:
        async with running(tmp_path) as broker:
            async with Producer.open(broker.url, "orders", options=QUICK) as producer:
                shard = (await producer.publish("a", b"0")).shard
                await broker.delete()
                error = await raised(producer.publish("a", b"1"), NotPublished)
                assert "no such shard" in str(error)
                await raised(producer.publish("a", b"2"), ShardStopped)
                await broker.declare()
                producer.restart(shard)
                await producer.publish("a", b"3")
            return await broker.take()

    (message,) = run(story())
    assert message.body == b"3"
    assert message.identity is not None
    assert message.identity.sequence == 0


def test_an_absent_broker_is_named(tmp_path: Path) -> None:
    """Nothing at the address: one line from the adapter, for both doors."""
    url = f"embedded://{tmp_path}/nothing"

    async def story() -> base.Unreachable:
        return await raised(Producer.open(url, "orders"), base.Unreachable)

    assert "\n" not in str(run(story()))
    with pytest.raises(base.Unreachable):
        SyncProducer.open(url, "orders")


def test_an_unknown_scheme_is_named() -> None:
    """A URL that no adapter serves is refused with the ones that are known."""

    async def story() -> base.Unsupported:
        return await raised(Producer.open("smtp://broker", "orders"), base.Unsupported)

    assert "embedded" in str(run(story()))


def test_a_body_that_the_broker_cannot_carry_is_refused_here(tmp_path: Path) -> None:
    """Above `max_body` nothing is sent; above the broker's own limit the event is refused and stops its shard."""

    async def story() -> None:
        async with running(tmp_path) as broker:
            options = replace(QUICK, max_body=20 * 1024 * 1024)
            async with Producer.open(broker.url, "orders", options=options) as producer:
                error = await raised(producer.publish("a", b"x" * (17 * 1024 * 1024)), NotPublished)
                assert "the size of the event" in str(error)
                await producer.publish("another", b"x")

    run(story())


def test_several_tasks_of_one_producer_share_its_connection(tmp_path: Path) -> None:
    """A hundred publishers at once, each waiting for its confirms, keep the order of each."""

    async def publish(producer: Producer, task: int) -> None:
        for i in range(20):
            await producer.publish(f"task-{task}", b"%d" % i)

    async def story() -> list[Message]:
        async with running(tmp_path) as broker:
            async with Producer.open(broker.url, "orders", options=QUICK) as producer:
                await asyncio.gather(*(publish(producer, task) for task in range(100)))
            return await broker.take()

    messages = run(story())
    assert assert_in_order(messages, 2_000) == 0
    assert_key_order(messages)
