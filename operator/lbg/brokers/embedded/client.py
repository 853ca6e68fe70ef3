"""The adapter for the embedded broker: sessions and admins over its socket.

A session belongs to one event loop, in one thread, of one process: after `fork` neither side may use it, and from
another thread it must not be touched.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from lbg.brokers import base
from lbg.brokers.embedded import protocol
from lbg.brokers.embedded.connection import Connection, parse_url
from lbg.brokers.embedded.links import EmbeddedLink, EmbeddedPublisher, Records, Submissions
from lbg.brokers.embedded.protocol import Frame, Op
from lbg.core.wire import Message


def _abilities(welcome: list[Any]) -> base.Abilities:
    return base.Abilities(
        handover=base.HandoverAbility(welcome[0]),
        ack_and_publish=True,
        ack_singly=True,
        ordered_rejects=True,
        size_limit=True,
        outputs=True,
    )


class EmbeddedSession:
    """One data-plane connection; see `base.Session`."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.connection = Connection(parse_url(url), self, clock)
        self.connection.before_send = self._send_acks
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._abilities: base.Abilities | None = None
        self._links: dict[int, EmbeddedLink] = {}
        self._acking: list[EmbeddedLink] = []
        self._submissions = Submissions(self.connection)
        self._records: dict[int, Records] = {}
        self._last_number = 0

    async def open(self, name: str) -> None:
        """Connect. Raises as `base.Adapter.open_session`."""
        self._abilities = _abilities(await self.connection.open(name))

    @property
    def abilities(self) -> base.Abilities:
        """Return what this broker can do."""
        if self._abilities is None:
            raise base.Unreachable("the session is not open: open it through the adapter")
        return self._abilities

    @property
    def lost(self) -> asyncio.Future[str]:
        """Return a future that resolves with a reason when the connection is gone."""
        return self._lost

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    async def bind(
        self, prefix: str, queue: int, *, name: str, window: int, listener: base.LinkListener, priority: int = 0
    ) -> EmbeddedLink:
        """Bind a link. Nothing reaches the listener before a caller that awaits this directly has the link.

        Raises, beyond `base.Session`:
            ValueError: the window allows no delivery.
            BindRefused: this session is bound to the queue already.
        """
        if window < 1:
            raise ValueError(f"window is {window}: at least one delivery must be allowed")
        link = EmbeddedLink(self, self._next_number(), queue, listener)
        self._links[link.number] = link
        try:
            await self.connection.request(Op.BIND, link.number, prefix, queue, name, window, priority)
        except base.Unreachable as error:
            self.forget(link)
            raise base.LinkLost(error.message) from None
        except BaseException as error:
            self.forget(link)
            if not isinstance(error, base.BrokerError) and self.connection.lost_because is None:
                # Cancelled: the broker may have bound it, and nobody would ever release it.
                self.connection.send([Op.RELEASE, 0, link.number])
            raise
        # Not at once: the caller must get the link before its listener is called.
        asyncio.get_running_loop().call_soon(link.open)
        return link

    def publisher(self) -> EmbeddedPublisher:
        """Open a publisher on this session."""
        return EmbeddedPublisher(self._next_number(), self._submissions)

    def read_output(self, prefix: str, name: str, start: int = 0) -> AsyncIterator[tuple[int, Message]]:
        """Follow an output.

        The iterator raises Missing when there is no such output, or none any more, and LinkLost when the connection is
        gone. It reads ahead by a few pages, and stops that when it is closed.
        """
        number = self._next_number()
        records = self._records[number] = Records(self.connection, number, lambda n: self._records.pop(n, None))
        return records.iterate(prefix, name, max(start, 0))

    async def close(self) -> None:
        """Release every link, wait for the outcomes of what was submitted, and hang up.

        A broker that does not answer holds this up for a heartbeat at most; the connection counts as lost then.
        """
        await asyncio.gather(*(link.release() for link in tuple(self._links.values())))
        waiting = {submission.future for submission in self._submissions.open.values()}
        if waiting and self.connection.lost_because is None:
            await asyncio.wait(waiting)
        await self.connection.close()
        self._submissions.on_lost()  # what was submitted after the look above
        for records in tuple(self._records.values()):
            records.on_ended(base.LinkLost("the session was closed"))

    # From links.

    def ack_soon(self, link: EmbeddedLink) -> None:
        """Send a link's acknowledgements at the end of this turn of the loop."""
        self._acking.append(link)
        self.connection.flush_soon()

    def _send_acks(self) -> None:
        acking, self._acking = self._acking, []
        for link in acking:
            link.send_acks()

    def forget(self, link: EmbeddedLink) -> None:
        """Drop a link that ended."""
        self._links.pop(link.number, None)

    # From the connection.

    def on_push(self, frame: Frame) -> None:
        """Pass a frame to the part it concerns; one that ended meanwhile is gone from the tables."""
        op, number = frame[0], frame[1]
        if op == Op.DELIVER:
            if number in self._links:
                self._links[number].on_deliver(*frame[2:])
        elif op == Op.OUTCOMES:
            self._on_outcomes(number, frame[2])
        elif op == Op.LOST:
            if number in self._links:
                self._links.pop(number).on_lost(frame[2])
        elif op == Op.RECORDS:
            if number in self._records:
                self._records[number].on_records(*frame[2:])
        elif op == Op.ENDED and number in self._records:
            self._records.pop(number).on_ended(base.Missing(frame[2]))

    def _on_outcomes(self, batch: int, codes: list[int] | None) -> None:
        if batch:  # 0 made an address known and was no batch
            self._submissions.on_outcomes(batch, codes)

    def on_lost(self, reason: str) -> None:
        """Tell everybody, once; ownership first, since work on the queues must stop soonest."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.on_lost(reason)
        self._submissions.on_lost()
        for records in self._records.values():
            records.on_ended(base.LinkLost(f"the connection is gone: {reason}"))
        if not self._lost.done():
            self._lost.set_result(reason)


class EmbeddedAdmin:
    """The control plane; see `base.Admin`. Every method raises Unreachable when the connection is gone."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self._connection = Connection(parse_url(url), self, clock)
        self._abilities: base.Abilities | None = None

    async def open(self) -> None:
        """Connect. Raises as `base.Adapter.open_admin`."""
        self._abilities = _abilities(await self._connection.open("admin"))

    @property
    def abilities(self) -> base.Abilities:
        """Return what this broker can do."""
        if self._abilities is None:
            raise base.Unreachable("the admin is not open: open it through the adapter")
        return self._abilities

    async def declare(self, topology: base.Topology) -> None:
        """Create what is missing; durable on return."""
        await self._connection.request(Op.DECLARE, protocol.topology_to_mapping(topology))

    async def delete(self, prefix: str, owner: str, *, only_if_empty: bool) -> None:
        """Delete a group's objects. Dead letters count as messages that remain; outputs do not."""
        await self._connection.request(Op.DELETE, prefix, owner, only_if_empty)

    async def find(self, prefix: str) -> base.Topology | None:
        """Return the stored topology of a stream, or None."""
        value = await self._connection.request(Op.FIND, prefix)
        return None if value is None else protocol.topology_from_mapping(value)

    async def list(self) -> tuple[base.Topology, ...]:
        """Return every topology, by prefix."""
        return tuple(protocol.topology_from_mapping(value) for value in await self._connection.request(Op.LIST))

    async def observe(self, prefix: str) -> tuple[base.QueueState, ...]:
        """Look at all queues of a stream; nothing is unknown here."""
        return tuple(base.QueueState(*state) for state in await self._connection.request(Op.OBSERVE, prefix))

    async def dead_letters(self, prefix: str, limit: int = 100) -> tuple[Message, ...]:
        """Return the oldest dead letters; fewer than `limit` when they are large."""
        blobs = await self._connection.request(Op.DEAD_LETTERS, prefix, limit)
        return tuple(protocol.unpack_message(data) for data in blobs)

    async def close(self) -> None:
        """Close. Idempotent."""
        await self._connection.close()

    def on_push(self, frame: Frame) -> None:
        """Ignore: nothing is pushed to an admin."""

    def on_lost(self, reason: str) -> None:
        """Ignore: the next request says so."""


class EmbeddedAdapter:
    """Opens sessions and admins from `embedded:` and `embedded+tcp:` URLs; see `base.Adapter`.

    Args:
        clock: monotonic seconds, by which silence and pauses are judged.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    async def open_admin(self, url: str) -> EmbeddedAdmin:
        """Connect the control plane."""
        admin = EmbeddedAdmin(url, self._clock)
        await admin.open()
        return admin

    async def open_session(self, url: str, *, name: str) -> EmbeddedSession:
        """Connect the data plane."""
        session = EmbeddedSession(url, self._clock)
        await session.open(name)
        return session
