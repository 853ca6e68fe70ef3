"""What hangs on a session of the embedded broker: links to queues, publishers, followers of outputs.

The session passes them the frames that concern them. All of it runs on the session's event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lbg.brokers import base
from lbg.brokers.embedded import protocol
from lbg.brokers.embedded.connection import Connection
from lbg.brokers.embedded.protocol import Op
from lbg.core.wire import Message

PAGES_AHEAD: Final = 4
"""Pages of records that may be under way to a follower; it asks for one more for each that it took."""


class SessionParts(Protocol):
    """What links and publishers need of their session."""

    connection: Connection

    def ack_soon(self, link: EmbeddedLink) -> None:
        """Have the link's acknowledgements sent in this turn of the loop."""

    def forget(self, link: EmbeddedLink) -> None:
        """Drop a link that ended."""


class EmbeddedLink:
    """A link to one queue; see `base.Link`.

    Between the broker's answer and the moment at which the caller of `bind` has the link in hand, deliveries and a loss
    may already arrive. The listener would have no link to acknowledge them with, so they wait until `open`.
    """

    def __init__(self, session: SessionParts, number: int, queue: int, listener: base.LinkListener) -> None:
        self.number = number
        self._session = session
        self._queue = queue
        self._listener = listener
        self._acks: list[int] = []
        self._early: list[base.Delivery] | None = []  # None once the caller of `bind` has the link in hand
        self._ended: str | None = None  # why nothing goes through this link any more
        self._lost: str | None = None  # a reason that the listener has not heard yet
        self._releasing: asyncio.Future[None] | None = None

    @property
    def queue(self) -> int:
        """Return the index of the queue."""
        return self._queue

    def ack(self, tags: Sequence[int]) -> None:
        """Acknowledge; leaves with the other acknowledgements of this turn of the loop."""
        if self._ended is None:
            if not self._acks:
                self._session.ack_soon(self)
            self._acks.extend(tags)

    def send_acks(self) -> None:
        """Send what was acknowledged so far, ahead of whatever is sent next."""
        if self._acks:
            tags, self._acks = self._acks, []
            self._session.connection.send([Op.ACK, self.number, tags])

    async def ack_and_publish(self, tag: int, outgoing: base.Outgoing) -> None:
        """Acknowledge and append in one transaction. Raises, beyond `base.Link`, Missing and Refused."""
        try:
            data = protocol.pack_message(outgoing.message)
        except ValueError as error:
            raise base.Refused(str(error)) from None
        await self._request(Op.ACK_PUBLISH, tag, *protocol.address_key(outgoing.to), data)

    async def release(self) -> None:
        """End the link; on return the broker has taken it, and what was acknowledged is durable."""
        if self._releasing is None:
            if self._ended is not None:
                return
            # Acknowledgements first: what they leave unacknowledged is what goes back.
            self.send_acks()
            self._ended = "the link was released"
            self._session.forget(self)
            self._releasing = asyncio.ensure_future(self._release())
        # Two callers may wait for one release, and a cancelled one must not take it from the other.
        await asyncio.shield(self._releasing)

    async def _release(self) -> None:
        try:
            await self._session.connection.request(Op.RELEASE, self.number)
        except base.Unreachable:
            # The broker takes a lost connection for a release of everything it had.
            return

    async def read_ledger(self) -> base.LedgerEntry | None:
        """Read the queue's ledger."""
        value = await self._request(Op.READ_LEDGER)
        return None if value is None else base.LedgerEntry(*value)

    async def write_ledger(self, entry: base.LedgerEntry) -> None:
        """Replace the queue's ledger."""
        await self._request(Op.WRITE_LEDGER, entry.epoch, entry.version, entry.data)

    async def _request(self, op: Op, *values: object) -> Any:
        if self._ended is not None:
            raise base.LinkLost(f"queue {self._queue}: {self._ended}")
        self.send_acks()
        try:
            return await self._session.connection.request(op, self.number, *values)
        except base.Unreachable as error:
            raise base.LinkLost(error.message) from None

    # From the session.

    def open(self) -> None:
        """Let deliveries through, and a loss; called after the owner got the link from `bind`."""
        early, self._early = self._early, None
        if self._lost is not None:
            self._listener.on_lost(self._lost)
        elif early and self._ended is None:
            self._listener.on_deliveries(early)

    def on_deliver(self, first_tag: int, redelivered: int, blobs: Sequence[bytes]) -> None:
        """Unpack deliveries and pass them on. Those of a link that has ended belong to the next owner already."""
        if self._ended is not None:
            return
        queue, unpack, repeated = self._queue, protocol.unpack_message, first_tag + redelivered
        deliveries = [
            base.Delivery(queue, tag, unpack(data), tag < repeated) for tag, data in enumerate(blobs, first_tag)
        ]
        if self._early is not None:
            self._early += deliveries
        else:
            self._listener.on_deliveries(deliveries)

    def on_lost(self, reason: str) -> None:
        """Tell the listener once, unless the link was released."""
        if self._ended is not None:
            return
        self._ended = reason
        self._acks.clear()
        if self._early is None:
            self._listener.on_lost(reason)
        else:
            self._lost = reason


@dataclass(slots=True, eq=False)
class Submission:
    """One submitted batch: its future, and the outcomes of the frames that it was split into.

    Each part starts as UNKNOWN, so that a loss at any moment needs no more than to stop waiting.
    """

    future: asyncio.Future[tuple[base.Outcome, ...]]
    missing: int
    parts: dict[int, tuple[base.Outcome, ...]] = field(default_factory=dict)  # by number of the frame, ascending

    def take(self, batch: int, codes: Sequence[int] | None) -> None:
        """Note the outcomes of one frame, and resolve the future with the last one."""
        size = len(self.parts[batch])
        if codes is not None:
            self.parts[batch] = tuple(protocol.OUTCOMES[code] for code in codes)
        else:
            self.parts[batch] = (base.Outcome.ACCEPTED,) * size
        self.missing -= 1
        if not self.missing and not self.future.done():
            self.future.set_result(tuple(outcome for part in self.parts.values() for outcome in part))

    def give_up(self) -> None:
        """Resolve the future now: UNKNOWN for what was not answered."""
        if not self.future.done():
            self.future.set_result(tuple(outcome for part in self.parts.values() for outcome in part))


class Submissions:
    """The submissions of a session that wait for outcomes, and the numbers that addresses travel under.

    An address travels once, in the first frame that uses it; after that its number does. Numbers are per connection, as
    is the order of frames, so that the broker always knows a number before it meets it.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.open: dict[int, Submission] = {}
        self._addresses: dict[base.Address, int] = {}
        self._last_batch = 0

    def address_id(self, address: base.Address, fresh: list[list[object]]) -> int:
        """Return the number of an address; one not seen before is added to `fresh`."""
        number = self._addresses.get(address)
        if number is None:
            number = self._addresses[address] = len(self._addresses)
            fresh.append([number, *protocol.address_key(address)])
        return number

    def send(self, publisher: int, batch: Sequence[base.Outgoing]) -> Submission:
        """Send a batch in as many frames as its size needs."""
        submission = Submission(asyncio.get_running_loop().create_future(), 0)
        if self.connection.lost_because is not None:
            submission.future.set_result((base.Outcome.UNKNOWN,) * len(batch))
            return submission
        fresh: list[list[object]] = []
        ids: list[int] = []
        blobs: list[bytes | None] = []
        size = 0
        for outgoing in batch:
            ids.append(self.address_id(outgoing.to, fresh))
            data = _packed(outgoing.message)
            blobs.append(data)
            size += len(data or b"")
            if size >= protocol.FRAME_TARGET:
                self._send_frame(submission, publisher, fresh, ids, blobs)
                fresh, ids, blobs, size = [], [], [], 0
        if ids:
            self._send_frame(submission, publisher, fresh, ids, blobs)
        if not submission.missing:
            submission.future.set_result(())
        return submission

    def _send_frame(
        self,
        submission: Submission,
        publisher: int,
        fresh: list[list[object]],
        ids: list[int],
        blobs: list[bytes | None],
    ) -> None:
        self._last_batch += 1
        submission.parts[self._last_batch] = (base.Outcome.UNKNOWN,) * len(ids)
        submission.missing += 1
        self.open[self._last_batch] = submission
        self.connection.send([Op.PUBLISH, self._last_batch, publisher, fresh, ids, blobs])

    def on_outcomes(self, batch: int, codes: Sequence[int] | None) -> None:
        """Note what became of one frame."""
        self.open.pop(batch).take(batch, codes)

    def on_lost(self) -> None:
        """Resolve everything that is open: whether it was accepted cannot be known any more."""
        submissions, self.open = list(self.open.values()), {}
        for submission in submissions:
            submission.give_up()


def _packed(message: Message) -> bytes | None:
    # None is refused by the broker in its turn, so that the outcome keeps its place and blocks what follows.
    try:
        return protocol.pack_message(message)
    except ValueError:
        return None


class EmbeddedPublisher:
    """A pipelined publisher; see `base.PublisherLink`."""

    def __init__(self, number: int, submissions: Submissions) -> None:
        self._number = number
        self._submissions = submissions

    def submit(self, batch: Sequence[base.Outgoing]) -> asyncio.Future[tuple[base.Outcome, ...]]:
        """Send a batch. A message that cannot be carried (size, header types) gets REFUSED."""
        return self._submissions.send(self._number, batch).future

    def resume(self, address: base.Address) -> None:
        """Lift the block on an address."""
        fresh: list[list[object]] = []
        number = self._submissions.address_id(address, fresh)
        if not fresh:
            self._submissions.connection.send([Op.RESUME, self._number, number])
            return
        # Never submitted to, so nothing is blocked; but its number is taken now and must become known.
        self._submissions.connection.send([Op.PUBLISH, 0, self._number, fresh, [], []])


class Records:
    """One follower of an output, as an iterator of (offset, message). Ends only by `aclose`, deletion or loss."""

    def __init__(self, connection: Connection, number: int, forget: Callable[[int], object]) -> None:
        self._connection = connection
        self._number = number
        self._forget = forget
        self._pages: deque[tuple[int, list[bytes]]] = deque()
        self._arrived = asyncio.Event()
        self._ended: base.BrokerError | None = None

    async def iterate(self, prefix: str, name: str, start: int) -> AsyncIterator[tuple[int, Message]]:
        """Follow the output."""
        await self._connection.request(Op.FOLLOW, self._number, prefix, name, start, PAGES_AHEAD)
        try:
            while True:
                while not self._pages:
                    if self._ended is not None:
                        raise self._ended
                    self._arrived.clear()
                    await self._arrived.wait()
                first, blobs = self._pages.popleft()
                self._connection.send([Op.CREDIT, self._number, 1])
                for offset, data in enumerate(blobs, first):
                    yield offset, protocol.unpack_message(data)
        finally:
            self._forget(self._number)
            if self._ended is None:
                self._connection.send([Op.UNFOLLOW, self._number])

    def on_records(self, first: int, blobs: list[bytes]) -> None:
        """Take a page."""
        self._pages.append((first, blobs))
        self._arrived.set()

    def on_ended(self, error: base.BrokerError) -> None:
        """Raise this at the reader once it has taken what arrived before."""
        self._ended = error
        self._arrived.set()
