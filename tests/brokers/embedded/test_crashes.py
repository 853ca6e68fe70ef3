"""Processes that are killed, stopped and resumed: nothing confirmed is lost, nothing is reordered, no zombie works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from lbg.brokers import base
from lbg.brokers.base import HandoverAbility
from lbg.brokers.embedded.client import EmbeddedAdapter
from lbg.testing.contract import Scene, story

if TYPE_CHECKING:
    from tests.brokers.embedded.conftest import EmbeddedUnderTest, NewBroker

HOLDER = Path(__file__).with_name("holder.py")
SHORT_HEARTBEAT = 3.0
"""Seconds until silence counts, in tests that wait for it: short, and long enough for a busy machine."""


@pytest.fixture
def broker(new_broker: NewBroker) -> EmbeddedUnderTest:
    return new_broker(HandoverAbility.COOPERATIVE)


@pytest.fixture
def quick_broker(new_broker: NewBroker) -> EmbeddedUnderTest:
    return new_broker(HandoverAbility.COOPERATIVE, heartbeat=SHORT_HEARTBEAT)


class HolderProcess:
    """The consumer of holder.py, with the lines that it printed."""

    def __init__(self, scene: Scene, window: int, *options: str) -> None:
        arguments = [scene.broker.url, scene.prefix, "0", str(window), *options]
        self.process = subprocess.Popen([sys.executable, str(HOLDER), *arguments], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.stdout = self.process.stdout
        self.lines: list[str] = []

    async def until(self, word: str, count: int = 1) -> list[str]:
        """Wait until this many lines start with the word, and return what follows it in them."""
        loop = asyncio.get_running_loop()
        while len(found := [line for line in self.lines if line.startswith(word + " ")]) < count:
            line = await loop.run_in_executor(None, self.stdout.readline)
            assert line, f"the holder ended, having said {self.lines}"
            self.lines.append(line.decode().strip())
        return [line.removeprefix(word + " ") for line in found]


@contextlib.contextmanager
def holder(scene: Scene, window: int = 100, *options: str) -> Iterator[HolderProcess]:
    """Run a consumer process for a while."""
    running = HolderProcess(scene, window, *options)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        running.stdout.close()


@story
async def _a_killed_consumer(_: None, scene: Scene) -> None:
    await scene.declare()
    await scene.publish(*"abcdef")
    with holder(scene, 3) as first:
        assert await first.until("got", 3) == ["a", "b", "c"]
        heir = await scene.bind()
        first.process.kill()
        assert await heir.until(6) == list("abcdef")
        assert heir.flags == [True] * 3 + [False] * 3


def test_a_killed_consumer_gives_back_at_once(broker: EmbeddedUnderTest) -> None:
    """Hands what a killed process held to the next link without waiting for a heartbeat."""
    _a_killed_consumer(None, broker)


@story
async def _a_stopped_consumer(_: None, scene: Scene) -> None:
    await scene.declare()
    await scene.publish("a")
    with holder(scene) as zombie:
        await zombie.until("got", 1)
        os.kill(zombie.process.pid, signal.SIGSTOP)
        await scene.publish("b", "c")  # into the socket of the stopped process
        heir = await scene.bind()
        assert await heir.until(3) == ["a", "b", "c"]
        assert heir.flags == [True] * 3
        os.kill(zombie.process.pid, signal.SIGCONT)
        await zombie.until("lost")
        assert [line for line in zombie.lines if line.startswith("got")] == ["got a"]


def test_a_stopped_consumer_loses_its_queue_and_starts_nothing_when_it_resumes(quick_broker: EmbeddedUnderTest) -> None:
    """Moves the queue after a heartbeat of silence; the resumed process drops the deliveries in its socket."""
    _a_stopped_consumer(None, quick_broker)


@story
async def _a_stopped_broker(_: None, scene: Scene) -> None:
    await scene.declare()
    await scene.publish("a")
    taker = await scene.bind()
    await taker.until(1)
    pid = cast("EmbeddedUnderTest", scene.broker).process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert "silent" in await taker.until_lost()
    finally:
        os.kill(pid, signal.SIGCONT)
    heir = await scene.bind()
    assert await heir.until(1) == ["a"]


def test_a_stopped_broker_is_noticed_by_its_clients(quick_broker: EmbeddedUnderTest) -> None:
    """Reports the link as lost after a heartbeat of silence; the resumed broker serves whoever comes."""
    _a_stopped_broker(None, quick_broker)


class SkewedClock:
    """A monotonic clock that can jump, as it does for a process that was stopped."""

    def __init__(self) -> None:
        self.skew = 0.0

    def __call__(self) -> float:
        return asyncio.get_running_loop().time() + self.skew


@story
async def _a_paused_loop(_: None, scene: Scene) -> None:
    await scene.declare()
    clock = SkewedClock()
    session = await EmbeddedAdapter(clock).open_session(scene.broker.url, name="paused")
    taker = await scene.bind(session=session)
    clock.skew = 0.9 * base.DEFAULT_HEARTBEAT
    await scene.publish("a")
    assert "did not run" in await taker.until_lost()
    assert taker.deliveries == []
    assert await session.lost
    await session.close()


def test_a_client_that_was_paused_is_lost_before_it_passes_a_delivery_on(broker: EmbeddedUnderTest) -> None:
    """Judges by its own clock, and earlier than the broker does."""
    _a_paused_loop(None, broker)


class Flow:
    """Publishes numbered messages to one queue and takes them, across deaths of the broker; keeps the evidence.

    A body is `number.life`: a message whose outcome was UNKNOWN is sent again in the next life, as another copy.
    """

    def __init__(self, scene: Scene, queue: int, seed: int) -> None:
        self.scene = scene
        self.queue = queue
        self.random = random.Random(seed)
        self.life = 0
        self.accepted = 0  # messages 0..accepted-1 were confirmed
        self.progress = asyncio.Event()
        self.seen: dict[str, None] = {}  # bodies, in the order of their first delivery
        self.settled: set[str] = set()  # acknowledged, and known to be durable
        self.violations: list[str] = []

    async def publish(self, session: base.Session) -> None:
        """Publish from the first unconfirmed message on, with several batches in flight, until the session is lost."""
        publisher = session.publisher()
        self.life += 1
        number = self.accepted
        flights: list[asyncio.Future[tuple[base.Outcome, ...]]] = []
        while not session.lost.done():
            size = self.random.randint(1, 20)
            batch = [self.scene.outgoing(f"{number + at}.{self.life}", self.queue) for at in range(size)]
            number += size
            flights.append(publisher.submit(batch))
            if len(flights) == 4:
                self.confirm(await flights.pop(0))
        for flight in flights:
            self.confirm(await flight)

    def confirm(self, outcomes: tuple[base.Outcome, ...]) -> None:
        unknown = outcomes.index(base.Outcome.UNKNOWN) if base.Outcome.UNKNOWN in outcomes else len(outcomes)
        if set(outcomes[unknown:]) - {base.Outcome.UNKNOWN}:
            self.violations.append(f"accepted behind unknown: {outcomes}")
        self.accepted += unknown
        self.progress.set()

    async def take(self, session: base.Session) -> None:
        """Take and acknowledge until the session is lost; again and again make sure that it is durable."""
        self.held: dict[int, str] = {}
        self.acked: list[str] = []
        self.link: base.Link | _Early = _Early()
        window = self.random.randint(1, 60)
        self.link = await session.bind(self.scene.prefix, self.queue, name="flow", window=window, listener=self)
        version = 0
        with contextlib.suppress(base.LinkLost):
            while not session.lost.done():
                before = list(self.acked)
                if self.held or before:
                    version += 1
                    await self.link.write_ledger(base.LedgerEntry(self.life, version, b""))
                    self.settled.update(before)  # acknowledged before the write, which is durable now
                await asyncio.sleep(0)

    def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
        """Check each delivery, and acknowledge some, out of order."""
        for delivery in deliveries:
            body = delivery.message.body.decode()
            if body in self.settled:
                self.violations.append(f"{body} came back after its acknowledgement was durable")
            if body in self.seen and not delivery.redelivered:
                self.violations.append(f"{body} came back unmarked")
            self.seen[body] = None
            self.held[delivery.tag] = body
        some = [tag for tag in self.held if self.random.random() < 0.7]
        self.random.shuffle(some)
        self.acked += [self.held.pop(tag) for tag in some]
        self.link.ack(some)

    def on_lost(self, reason: str) -> None:
        """The round ends by the session's own future."""


class _Early:
    """Stands in for the link until bind has returned; nothing is delivered before that."""

    def ack(self, tags: Sequence[int]) -> None:
        raise AssertionError("delivered before bind returned")


async def _rounds(scene: Scene, flows: list[Flow], seed: int, count: int) -> None:
    dice = random.Random(seed)
    for _ in range(count):
        sessions = [await scene.broker.adapter.open_session(scene.broker.url, name="flow") for _ in range(2)]
        goal = sum(flow.accepted for flow in flows) + dice.randint(50, 1_500)
        work = [asyncio.create_task(flow.publish(sessions[0])) for flow in flows]
        work += [asyncio.create_task(flow.take(sessions[1])) for flow in flows]
        while sum(flow.accepted for flow in flows) < goal:
            flows[0].progress.clear()
            await flows[0].progress.wait()
        await scene.broker.restart()
        await asyncio.gather(*work)
        for session in sessions:
            await session.close()


@story
async def _a_broker_killed_again_and_again(_: None, scene: Scene, seed: int) -> None:
    await scene.declare()
    flows = [Flow(scene, queue, seed + queue) for queue in range(3)]
    await _rounds(scene, flows, seed, 8)
    await scene.reopen_admin()
    for flow in flows:
        rest = await scene.bind(flow.queue, window=500, acks=True)
        await scene.until_count(0, flow.queue)
        flow.seen.update(dict.fromkeys(rest.bodies))
        numbers = list(dict.fromkeys(int(body.partition(".")[0]) for body in flow.seen))
        assert flow.violations == []
        assert numbers == list(range(len(numbers))), "first deliveries are out of order or have a hole"
        assert len(numbers) >= flow.accepted, "a confirmed message was never delivered"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killing_the_broker_at_random_loses_and_reorders_nothing(broker: EmbeddedUnderTest, seed: int) -> None:
    """Keeps what was confirmed, in order, and what was durably acknowledged gone, through eight kills under load."""
    _a_broker_killed_again_and_again(None, broker, seed=seed)
