"""The broker contract: what every adapter promises, in one place, and nothing about how.

An adapter has two halves. `Admin` is the control plane (topology, ownership marks, backlog). `Session` is the data
plane: one connection, over which a process publishes, binds queues and writes ledgers. The shipped contract suite
(`lbg.testing.contract`) checks every sentence marked MUST below; an adapter outside this repository runs the same one.

Theory of operation
-------------------
*Exclusive queue.* Any number of links may be bound to a queue (one, where handover is EXCLUSIVE); the broker delivers
to one of them at a time, the *active* one. A link learns that it is active by its first delivery, never earlier:
brokers that tell sooner tell it late or wrongly. Deliveries arrive in queue order, at most `window` unacknowledged.

*Giving back.* When a link ends in whatever way (release, lost connection, SIGKILL, silence), the broker MUST put its
unacknowledged messages back at the head of the queue in their order, marked redelivered, before another link receives
anything later. So the next owner may see a repeated suffix and never a reordered one. An adapter whose broker does not
do that by itself (`basic.cancel` on AMQP 0-9-1 leaves them with the old channel) MUST reach it by another way or not
offer the operation.

*Fencing.* `ack`, `ack_and_publish` and `write_ledger` of a link that is no longer active MUST have no effect on the
queue. A lost connection is lost ownership: an adapter never reconnects a link behind its owner's back; it reports
`on_lost` once, and the owner binds anew.

*Confirms.* A publish outcome is ACCEPTED only when the message survives `kill -9` of the broker process. Within one
publisher link, messages to one address are accepted in the order of submission. Where `Abilities.ordered_rejects`,
a refused message blocks the later ones to the same address on that link until `resume`; elsewhere the caller keeps one
message in flight per limited queue, since a later one could be accepted after an earlier was refused.

*Threads.* Everything is called from, and calls back on, one asyncio event loop. Methods that are not `async` only
enqueue.

Errors say whose fault it is and carry one line for a person, with the remedy. Credentials never appear in them.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from lbg.brokers.errors import (
    BindRefused as BindRefused,
)
from lbg.brokers.errors import (
    BrokerError as BrokerError,
)
from lbg.brokers.errors import (
    Conflict as Conflict,
)
from lbg.brokers.errors import (
    LedgerUnreadable as LedgerUnreadable,
)
from lbg.brokers.errors import (
    LinkLost as LinkLost,
)
from lbg.brokers.errors import (
    Missing as Missing,
)
from lbg.brokers.errors import (
    NotEmpty as NotEmpty,
)
from lbg.brokers.errors import (
    Refused as Refused,
)
from lbg.brokers.errors import (
    StoreDamaged as StoreDamaged,
)
from lbg.brokers.errors import (
    Unreachable as Unreachable,
)
from lbg.brokers.errors import (
    Unsupported as Unsupported,
)
from lbg.core.contract import Contract
from lbg.core.wire import Message


class HandoverAbility(enum.StrEnum):
    """How a queue moves from one link to the next on this broker (design note on handover)."""

    COOPERATIVE = "cooperative"  # links wait in order of registration; the active one must release
    BROKER = "broker"  # a strictly higher priority quiesces the active link, then the broker switches
    EXCLUSIVE = "exclusive"  # a second bind is refused until the first link has ended


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a connected broker can do; found at connect time, never configured."""

    handover: HandoverAbility
    ack_and_publish: bool = False  # acknowledge a delivery and append to an output in one atomic step
    ack_singly: bool = True  # False: only cumulative acknowledgement; the runtime then acks in prefix order
    ordered_rejects: bool = False  # a refused message blocks later ones to the same address until resume()
    size_limit: bool = False  # queues can refuse messages beyond a limit
    outputs: bool = False  # append-only output streams that can be read from an offset


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything a group owns on a broker. Declaring the same topology twice changes nothing."""

    contract: Contract
    owner: str  # ownership mark: cluster UID / namespace / name, or host / path
    queue_type: str = "quorum"  # a hint; brokers with one kind of queue ignore it
    size_limit: int | None = None  # messages per queue; beyond it publishes are refused, nothing is dropped
    outputs: tuple[str, ...] = ()
    join: bool = False  # a second group on the same stream: contract must be equal in prefix, count, algorithm


@dataclass(frozen=True, slots=True)
class QueueState:
    """One look at a queue. None is *unknown* and must never be read as 0."""

    queue: int
    ready: int | None
    unacknowledged: int | None
    links: int | None = None  # bound links, active and waiting
    active: str | None = None  # the name its active link was bound under
    published: int | None = None  # messages accepted since declaration, monotonic

    @property
    def backlog(self) -> int | None:
        """Return ready plus unacknowledged, or None when either is unknown."""
        if self.ready is None or self.unacknowledged is None:
            return None
        return self.ready + self.unacknowledged


@dataclass(frozen=True, slots=True)
class ToShard:
    """Address of a shard of a stream; the broker routes it to the queue `shard % queues`."""

    prefix: str
    shard: int


@dataclass(frozen=True, slots=True)
class ToOutput:
    """Address of an append-only output stream of a group."""

    prefix: str
    name: str


@dataclass(frozen=True, slots=True)
class ToDeadLetters:
    """Address of a group's dead-letter queue."""

    prefix: str


Address: TypeAlias = ToShard | ToOutput | ToDeadLetters


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message and where it goes."""

    to: Address
    message: Message


class Outcome(enum.StrEnum):
    """What became of one submitted message."""

    ACCEPTED = "accepted"  # durable
    FULL = "full"  # the queue is at its limit; try again later, in order
    BLOCKED = "blocked"  # an earlier message to the same address was refused; resume() first
    UNROUTABLE = "unroutable"  # no such stream, shard or output: the contract is stale
    REFUSED = "refused"  # permission or size; trying again does not help
    UNKNOWN = "unknown"  # the link was lost before the broker answered: re-send, in order


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivered message. `tag` grows with delivery order and is valid on its own link only."""

    queue: int
    tag: int
    message: Message
    redelivered: bool


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The stored form of a queue's ledger; the highest (epoch, version) wins."""

    epoch: int
    version: int
    data: bytes


class LinkListener(Protocol):
    """Receives what happens on a link, on the event loop. Must not block and must not raise."""

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Take messages in queue order."""

    def on_lost(self, reason: str) -> None:
        """Learn, once, that the link ended without having been asked to; ownership is gone."""


class Link(Protocol):
    """One process bound to one queue, active or waiting."""

    @property
    def queue(self) -> int:
        """Return the index of the queue."""
        ...

    def ack(self, tags: Sequence[int]) -> None:
        """Acknowledge deliveries. Enqueues only; earlier acks reach the broker before any later call's effect."""
        ...

    async def ack_and_publish(self, tag: int, outgoing: Outgoing) -> None:
        """Acknowledge and append to an output in one atomic step; both are durable on return.

        Raises:
            LinkLost: neither happened, or it cannot be known; the event will be redelivered if it did not.
            Unsupported: `Abilities.ack_and_publish` is False.
        """
        ...

    async def release(self) -> None:
        """End the link: acks first, then what is unacknowledged goes back in order. Idempotent; never raises LinkLost.

        On return the broker has taken the release, so that the next owner may be active already. Deliveries that
        arrive during the call are dropped. `on_lost` is not called for a released link.
        """
        ...

    async def read_ledger(self) -> LedgerEntry | None:
        """Read the queue's ledger; allowed only after the first delivery. None if it was never written.

        Raises:
            LinkLost: the link is not active any more.
            LedgerUnreadable: the store does not answer or holds damage.
        """
        ...

    async def write_ledger(self, entry: LedgerEntry) -> None:
        """Replace the queue's ledger; durable on return. `(epoch, version)` MUST exceed the stored one.

        Raises:
            LinkLost: the link is not active any more, or a newer entry exists: ownership was lost.
            LedgerUnreadable: the store does not answer.
        """
        ...


class PublisherLink(Protocol):
    """A pipelined publisher on a session."""

    def submit(self, batch: Sequence[Outgoing]) -> asyncio.Future[tuple[Outcome, ...]]:
        """Send a batch; the future gives one outcome per message, in order. Several batches may be in flight.

        Order of submission is order at the broker per address. A lost connection resolves the future with UNKNOWN
        for what was not answered; it does not raise. The caller bounds what is in flight.
        """
        ...

    def resume(self, address: Address) -> None:
        """Lift the block that a refused message put on an address (only where `ordered_rejects`)."""
        ...


class Session(Protocol):
    """One data-plane connection of one process. Not reconnecting: when it is lost, open a new one."""

    @property
    def abilities(self) -> Abilities:
        """Return what this broker can do."""
        ...

    @property
    def lost(self) -> asyncio.Future[str]:
        """Return a future that resolves with a reason when the connection is gone (never on `close`)."""
        ...

    async def bind(
        self, prefix: str, queue: int, *, name: str, window: int, listener: LinkListener, priority: int = 0
    ) -> Link:
        """Bind a link to a queue. At most one link per queue and session.

        Args:
            prefix: the stream.
            queue: index below the contract's queue count.
            name: who binds, for people and for `QueueState.active`.
            window: bound of unacknowledged deliveries, >= 1.
            listener: receives deliveries and loss.
            priority: only where handover is BROKER: a strictly higher number takes over; equal never switches.

        Raises:
            BindRefused: handover is EXCLUSIVE and another link is bound.
            Missing: no such queue.
            LinkLost: the connection is gone.
        """
        ...

    def publisher(self) -> PublisherLink:
        """Open a publisher on this session."""
        ...

    def read_output(self, prefix: str, name: str, start: int = 0) -> AsyncIterator[tuple[int, Message]]:
        """Follow an output stream from an offset, oldest first, without end; offsets are dense from 0."""
        ...

    async def close(self) -> None:
        """Release every link in the safe way, answer open submits, and close. Idempotent."""
        ...


class Admin(Protocol):
    """The control plane of a broker."""

    @property
    def abilities(self) -> Abilities:
        """Return what this broker can do."""
        ...

    async def declare(self, topology: Topology) -> None:
        """Create what is missing; idempotent for the same owner and contract. Nothing is created on a conflict.

        Raises:
            Conflict: a name is in use by another owner, or the stored contract differs; every conflict is named.
        """
        ...

    async def delete(self, prefix: str, owner: str, *, only_if_empty: bool) -> None:
        """Delete a group's objects; absent ones are fine. All or nothing as far as emptiness goes.

        Raises:
            NotEmpty: `only_if_empty` and messages remain; the queues and their counts are named.
            Conflict: the stream belongs to another owner.
        """
        ...

    async def find(self, prefix: str) -> Topology | None:
        """Return the stored topology of a stream, or None."""
        ...

    async def list(self) -> tuple[Topology, ...]:
        """Return every stream that carries an ownership mark, by prefix."""
        ...

    async def observe(self, prefix: str) -> tuple[QueueState, ...]:
        """Look at all queues of a stream, by index. Unknown figures are None.

        Raises:
            Missing: no such stream.
        """
        ...

    async def dead_letters(self, prefix: str, limit: int = 100) -> tuple[Message, ...]:
        """Return the oldest dead letters without consuming them."""
        ...

    async def close(self) -> None:
        """Close. Idempotent."""
        ...


class Adapter(Protocol):
    """Opens both halves of a broker from one URL. The registry maps URL schemes to adapters."""

    async def open_admin(self, url: str) -> Admin:
        """Connect the control plane.

        Raises:
            Unreachable: nothing answers.
            Refused: it answers and does not let us in.
        """
        ...

    async def open_session(self, url: str, *, name: str) -> Session:
        """Connect the data plane under a name that people see in the broker's own tools. Raises as `open_admin`."""
        ...


DEFAULT_HEARTBEAT: Final = 10.0
"""Seconds of silence after which a peer counts as gone (embedded broker; RabbitMQ's heartbeat is negotiated)."""
