"""What a contract test stands on: the broker under test with its back door, and a scene that tidies up after itself.

A test never sleeps. It waits for a condition with a limit, and where it says that something does *not* happen, it first
lets a probe travel the same way (`Scene.settle`): what was under way has arrived when the probe has.
"""

from __future__ import annotations

import abc
import asyncio
import functools
import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from lbg.brokers import base
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.wire import Message

HANG_LIMIT: Final = 60.0
"""Seconds for a whole test. It only ever ends a hang, so it is far above what a busy machine needs."""

POLL: Final = 0.002
"""Seconds between two looks at figures that nobody announces."""

QUEUES: Final = 8
FIRST_PROBE: Final = 4
"""Queues from here on are for probes, one for each session that is probed; tests use those before."""


class BrokerUnderTest(abc.ABC):
    """One running broker, its adapter, and a back door that does not lead through the adapter.

    The back door is what makes the suite a check: an adapter that loses a message and forgets having had it would
    agree with itself. Read it from the broker's own tools or files.
    """

    adapter: base.Adapter
    url: str
    queue_type: str = "quorum"  # asked for in every topology; a broker with several runs the suite once for each

    @abc.abstractmethod
    async def count_messages(self, prefix: str, queue: int) -> int:
        """Return how many messages a queue holds, ready and unacknowledged."""

    @abc.abstractmethod
    async def ledger(self, prefix: str, queue: int) -> bytes | None:
        """Return the data of a queue's ledger, or None."""

    @abc.abstractmethod
    async def count_records(self, prefix: str, output: str) -> int:
        """Return how many records an output holds; only where `Abilities.outputs`."""

    @abc.abstractmethod
    async def cut(self, session: base.Session) -> None:
        """Break the connection of a session as a crash of its process would: nothing more is sent or received."""

    async def restart(self) -> None:
        """Kill the broker (SIGKILL) and start it again on what it stored; only for `Restarts`."""
        raise NotImplementedError


class Taker:
    """A listener that keeps what it gets. It acknowledges nothing unless told to."""

    def __init__(self, *, acks: bool = False) -> None:
        self.deliveries: list[base.Delivery] = []
        self.reasons: list[str] = []
        self.link: base.Link | None = None
        self._acks = acks
        self._changed = asyncio.Event()

    def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
        """Keep them, and acknowledge where that was asked for."""
        self.deliveries += deliveries
        if self._acks and self.link is not None:
            self.link.ack([delivery.tag for delivery in deliveries])
        self._changed.set()

    def on_lost(self, reason: str) -> None:
        """Keep the reason."""
        self.reasons.append(reason)
        self._changed.set()

    @property
    def bodies(self) -> list[str]:
        """Return the bodies so far as text."""
        return [delivery.message.body.decode(errors="replace") for delivery in self.deliveries]

    @property
    def flags(self) -> list[bool]:
        """Return the redelivered flags so far."""
        return [delivery.redelivered for delivery in self.deliveries]

    def tag(self, body: str) -> int:
        """Return the tag of the last delivery with this body."""
        return next(d.tag for d in reversed(self.deliveries) if d.message.body == body.encode())

    async def until(self, count: int) -> list[str]:
        """Wait for this many deliveries in all, and return the bodies."""
        await self._wait(lambda: len(self.deliveries) >= count)
        return self.bodies

    async def until_lost(self) -> str:
        """Wait for the loss of the link, and return the reason."""
        await self._wait(lambda: bool(self.reasons))
        return self.reasons[0]

    async def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    # The link, once there is one.

    @property
    def bound(self) -> base.Link:
        """Return the link."""
        assert self.link is not None, "bind first"
        return self.link

    def ack(self, *bodies: str) -> None:
        """Acknowledge deliveries by their body."""
        self.bound.ack([self.tag(body) for body in bodies])


class Scene:
    """A fresh stream on the broker under test, and everything that a test opened there."""

    def __init__(self, broker: BrokerUnderTest, admin: base.Admin) -> None:
        self.broker = broker
        self.admin = admin
        self.prefix = f"contract-{uuid.uuid4().hex[:12]}"
        self.owner = f"contract/{self.prefix}"
        self.topology = self.variant()
        self._sessions: list[base.Session] = []
        self._declared: list[base.Topology] = []
        self._free_probes = iter(range(FIRST_PROBE, QUEUES))
        self._probes: dict[int, tuple[base.PublisherLink, Taker]] = {}

    def variant(self, *, prefix: str | None = None, owner: str | None = None, **changes: Any) -> base.Topology:
        """Return the topology of this scene with other values; `count`, `algorithm`, `queues` go into the contract."""
        contract = Contract(
            prefix or self.prefix,
            changes.pop("count", 16),
            changes.pop("algorithm", Algorithm.XXH64),
            changes.pop("queues", QUEUES),
        )
        changes.setdefault("queue_type", self.broker.queue_type)
        return base.Topology(contract, owner or self.owner, **changes)

    async def reopen_admin(self) -> None:
        """Open a new admin, after a restart."""
        await self.admin.close()
        self.admin = await self.broker.adapter.open_admin(self.broker.url)

    async def declare(self, topology: base.Topology | None = None, **changes: Any) -> base.Topology:
        """Declare a topology and remember to delete it."""
        topology = topology or self.variant(**changes)
        await self.admin.declare(topology)
        self._declared.append(topology)
        return topology

    async def session(self, name: str = "taker") -> base.Session:
        """Open a session that is closed with the scene."""
        session = await self.broker.adapter.open_session(self.broker.url, name=name)
        self._sessions.append(session)
        return session

    async def bind(
        self,
        queue: int = 0,
        *,
        session: base.Session | None = None,
        name: str = "taker",
        window: int = 100,
        priority: int = 0,
        acks: bool = False,
    ) -> Taker:
        """Bind a taker to a queue, on a session of its own unless one is given."""
        session = session or await self.session(name)
        taker = Taker(acks=acks)
        taker.link = await session.bind(self.prefix, queue, name=name, window=window, listener=taker, priority=priority)
        return taker

    async def rebind(self, queue: int = 0, **options: Any) -> Taker:
        """Bind, again and again while the broker still refuses for the sake of a link that is just ending."""
        session = options.pop("session", None) or await self.session()
        while True:
            try:
                return await self.bind(queue, session=session, **options)
            except base.BindRefused:
                await self.admin.observe(self.prefix)  # as good a way as any to let the broker work

    def outgoing(self, body: str | bytes, queue: int = 0) -> base.Outgoing:
        """Return a message for a shard of a queue."""
        data = body.encode() if isinstance(body, str) else body
        return base.Outgoing(base.ToShard(self.prefix, queue), Message(data))

    async def publish(self, *bodies: str, queue: int = 0, session: base.Session | None = None) -> None:
        """Publish bodies to a queue, in order, and see them accepted."""
        publisher = (session or await self.session("publisher")).publisher()
        outcomes = await publisher.submit([self.outgoing(body, queue) for body in bodies])
        assert outcomes == (base.Outcome.ACCEPTED,) * len(bodies)

    async def settle(self, session: base.Session) -> None:
        """Let a probe go to the broker and back on this session: what was under way to it has arrived after that."""
        if id(session) not in self._probes:
            taker = await self.bind(next(self._free_probes), session=session, acks=True, name="probe")
            self._probes[id(session)] = (session.publisher(), taker)
        publisher, taker = self._probes[id(session)]
        for _ in range(2):  # the second passes through after everything that the first set going
            seen = len(taker.deliveries)
            await publisher.submit([self.outgoing("probe", taker.bound.queue)])
            await taker.until(seen + 1)

    async def state(self, queue: int = 0) -> base.QueueState:
        """Look at one queue through the adapter."""
        return (await self.admin.observe(self.prefix))[queue]

    async def until_state(self, condition: Callable[[base.QueueState], bool], queue: int = 0) -> base.QueueState:
        """Look at a queue until the condition holds, for figures that a broker updates in its own time."""
        while not condition(state := await self.state(queue)):  # noqa: ASYNC110  # no broker announces its figures
            await asyncio.sleep(POLL)
        return state

    async def count(self, queue: int = 0) -> int:
        """Count the messages of a queue through the back door."""
        return await self.broker.count_messages(self.prefix, queue)

    async def until_count(self, want: int, queue: int = 0) -> None:
        """Wait until the back door counts this many: acknowledgements have no answer to wait for."""
        while await self.count(queue) != want:  # noqa: ASYNC110  # no broker announces it
            await asyncio.sleep(POLL)

    async def tidy(self) -> None:
        """Close what is open, delete what was declared."""
        for session in self._sessions:
            await session.close()
        await self.reopen_admin()  # whatever a test did to the broker or to the first one
        for topology in self._declared:
            await self.admin.delete(topology.contract.prefix, topology.owner, only_if_empty=False)
        await self.admin.close()


@asynccontextmanager
async def scene_on(broker: BrokerUnderTest) -> AsyncIterator[Scene]:
    """Open a scene and tidy up after it."""
    scene = Scene(broker, await broker.adapter.open_admin(broker.url))
    try:
        yield scene
    finally:
        await scene.tidy()


Suite = TypeVar("Suite")
Story = Callable[..., Awaitable[None]]


def story(function: Story) -> Callable[..., None]:
    """Turn `async def test(self, scene, ...)` into a test that pytest can run, bounded by HANG_LIMIT.

    The test gets the fixture `broker` (a `BrokerUnderTest`) from the adapter's own conftest, and any other argument by
    its name, so that parametrization works as usual.
    """

    @functools.wraps(function)
    def run(self: Suite, broker: BrokerUnderTest, **arguments: Any) -> None:
        async def play() -> None:
            async with asyncio.timeout(HANG_LIMIT), scene_on(broker) as scene:
                await function(self, scene, **arguments)

        asyncio.run(play())

    signature = inspect.signature(function)
    fixtures = [
        parameter.replace(name="broker") if name == "scene" else parameter
        for name, parameter in signature.parameters.items()
    ]
    # pytest reads the names of fixtures from here; through __wrapped__ it would find `scene`.
    del run.__wrapped__
    run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
    return run
