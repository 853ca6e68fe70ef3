"""A broker in memory for the producer's tests: it does what it is told, and keeps what it accepted."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lbg.brokers import base
from lbg.brokers.base import Outcome
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.wire import Message
from lbg.publishing import Backoff, Options, Outside, Producer

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds a condition may take on a busy machine."""

URL = "fake://user:secret@broker"
CONTRACT = Contract("orders", 8, Algorithm.MODULO, 2)
"""Under modulo a key names its shard: key "3" is in shard 3, and "11" too."""

_TICK = 0.001

QUICK = Options(reconnect=Backoff(0.0001, 0.001), retry=Backoff(0.0001, 0.001))


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run a test's story on a fresh loop, within PATIENCE."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await story

    return asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until the condition holds; `run` bounds the wait."""
    while not condition():  # noqa: ASYNC110  # an event would have to be set by the code under test
        await asyncio.sleep(0)


async def until_elsewhere(condition: Callable[[], bool]) -> None:
    """Like `until`, for what another process has to do: it leaves that one the processor."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(_TICK)


def wait_until(condition: Callable[[], bool]) -> None:
    """Block this thread until the condition holds, within PATIENCE."""
    deadline, tick = time.monotonic() + PATIENCE, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        tick.wait(_TICK)


@dataclass
class FakeBroker:
    """Accepts in order of submission, per address. It is an adapter too; every session is told when it goes down."""

    topology: base.Topology | None = field(default_factory=lambda: base.Topology(CONTRACT, "test"))
    abilities: base.Abilities = field(
        default_factory=lambda: base.Abilities(
            base.HandoverAbility.COOPERATIVE, ordered_rejects=True, size_limit=True, outputs=True
        )
    )
    refusal: base.BrokerError | None = None  # raised by whoever opens an admin or a session
    admin_refusal: base.BrokerError | None = None  # raised by whoever opens an admin
    defect: Exception | None = None  # raised by whoever opens a session
    verdicts: dict[int, Outcome] = field(default_factory=dict)  # by shard, where it is not ACCEPTED
    holds_answers: bool = False  # until `answer`
    log: list[Message] = field(default_factory=list)  # what it accepted
    submits: list[int] = field(default_factory=list)  # sizes of the batches
    opens: int = 0
    sessions: list[FakeSession] = field(default_factory=list)
    attempts: Counter[int] = field(default_factory=Counter)  # submissions by shard, accepted or not

    async def open_admin(self, url: str) -> base.Admin:
        refusal = self.refusal or self.admin_refusal
        if refusal is not None:
            raise refusal
        return FakeAdmin(self)

    async def open_session(self, url: str, *, name: str) -> base.Session:
        self.opens += 1
        refusal = self.defect or self.refusal
        if refusal is not None:
            raise refusal
        session = FakeSession(self)
        self.sessions.append(session)
        return session

    def answer(self) -> None:
        """Answer what is open, now."""
        for session in self.sessions:
            session.answer()

    def drop(self, *, accepted: bool = True) -> None:
        """Lose every connection; what was submitted and not answered was accepted, or was not, and nobody is told."""
        sessions, self.sessions = self.sessions, []
        for session in sessions:
            session.drop(accepted)

    def ids(self, shard: int) -> list[int]:
        """Return the sequences accepted in a shard, repetitions included."""
        return [m.identity.sequence for m in self.log if m.identity is not None and m.shard == shard]

    def bodies(self, shard: int) -> list[bytes]:
        """Return the bodies accepted in a shard, repetitions included."""
        return [message.body for message in self.log if message.shard == shard]


class FakeSession:
    """A connection to a FakeBroker."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.blocked: set[base.Address] = set()
        self.open: list[tuple[asyncio.Future[tuple[Outcome, ...]], Sequence[base.Outgoing]]] = []
        self.is_closed = False

    @property
    def abilities(self) -> base.Abilities:
        return self.broker.abilities

    @property
    def lost(self) -> asyncio.Future[str]:
        return self._lost

    def publisher(self) -> base.PublisherLink:
        return self

    def submit(self, batch: Sequence[base.Outgoing]) -> asyncio.Future[tuple[Outcome, ...]]:
        self.broker.submits.append(len(batch))
        future: asyncio.Future[tuple[Outcome, ...]] = asyncio.get_running_loop().create_future()
        if self._lost.done():
            future.set_result((Outcome.UNKNOWN,) * len(batch))
            return future
        self.open.append((future, batch))
        if not self.broker.holds_answers:
            asyncio.get_running_loop().call_soon(self.answer)
        return future

    def resume(self, address: base.Address) -> None:
        self.blocked.discard(address)

    def answer(self) -> None:
        submitted, self.open = self.open, []
        for future, batch in submitted:
            outcomes = tuple(self._take(outgoing) for outgoing in batch)
            if not future.done():
                future.set_result(outcomes)

    def drop(self, accepted: bool) -> None:
        submitted, self.open = self.open, []
        for future, batch in submitted:
            for outgoing in batch if accepted else ():
                self._take(outgoing)
            future.set_result((Outcome.UNKNOWN,) * len(batch))
        self._lost.set_result("the line was cut")

    def _take(self, outgoing: base.Outgoing) -> Outcome:
        assert isinstance(outgoing.to, base.ToShard)
        self.broker.attempts[outgoing.to.shard] += 1
        if outgoing.to in self.blocked:
            return Outcome.BLOCKED
        verdict = self.broker.verdicts.get(outgoing.to.shard, Outcome.ACCEPTED)
        if verdict is not Outcome.ACCEPTED:
            if self.abilities.ordered_rejects:
                self.blocked.add(outgoing.to)
            return verdict
        self.broker.log.append(outgoing.message)
        return Outcome.ACCEPTED

    async def bind(
        self, prefix: str, queue: int, *, name: str, window: int, listener: base.LinkListener, priority: int = 0
    ) -> base.Link:
        raise _unused()

    def read_output(self, prefix: str, name: str, start: int = 0) -> AsyncIterator[tuple[int, Message]]:
        raise _unused()

    async def close(self) -> None:
        self.is_closed = True
        if self in self.broker.sessions:
            self.broker.sessions.remove(self)


class FakeAdmin:
    """The control plane of a FakeBroker: a producer may only look."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker

    @property
    def abilities(self) -> base.Abilities:
        return self.broker.abilities

    async def find(self, prefix: str) -> base.Topology | None:
        topology = self.broker.topology
        return topology if topology is not None and topology.contract.prefix == prefix else None

    async def declare(self, topology: base.Topology) -> None:
        raise _unused()

    async def delete(self, prefix: str, owner: str, *, only_if_empty: bool) -> None:
        raise _unused()

    async def list(self) -> tuple[base.Topology, ...]:
        raise _unused()

    async def observe(self, prefix: str) -> tuple[base.QueueState, ...]:
        raise _unused()

    async def dead_letters(self, prefix: str, limit: int = 100) -> tuple[Message, ...]:
        raise _unused()

    async def close(self) -> None:
        pass


def _unused() -> AssertionError:
    return AssertionError("a producer has no business here")


class Clock:
    """A wall clock in ns that moves when told."""

    def __init__(self, now: int = 1_700_000_000_123_456_789) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def outside(broker: FakeBroker, clock: Callable[[], int] | None = None) -> Outside:
    """Return a world with this broker, a fixed seed and, if given, this clock."""
    return Outside(adapter=broker, rng=random.Random(1), clock_ns=clock or Clock())


async def opened(broker: FakeBroker, options: Options = QUICK, name: str = "shop") -> Producer:
    """Open a producer to the broker."""
    return await Producer.open(URL, "orders", name, options=options, outside=outside(broker))


async def raised(awaitable: Awaitable[object], kind: type[T]) -> T:
    """Await and return the exception of this kind."""
    try:
        await awaitable
    except BaseException as error:
        if isinstance(error, kind):
            return error
        raise
    raise AssertionError(f"no {kind.__name__} was raised")
