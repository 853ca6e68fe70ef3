"""Sockets, heartbeats and the commit loop around one engine.

One event loop does everything but wait for the disk: `COMMIT` runs on a thread of its own, and whatever arrives
meanwhile becomes the next transaction, so the group grows with the load. Rows are inserted on the loop thread on
purpose: SQLite's module drops the interpreter lock at every row, and a second thread would queue up for it each time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, cast

from lbg.brokers import base
from lbg.brokers.embedded import protocol
from lbg.brokers.embedded.administration import Administration
from lbg.brokers.embedded.engine import Client, Engine, Sealed
from lbg.brokers.embedded.operations import Operations
from lbg.brokers.embedded.protocol import Frame, Op
from lbg.brokers.embedded.store import Store

UNSENT_LIMIT: Final = 4 * 1024 * 1024
"""Bytes that may wait for one client to read them; beyond that it gets nothing new until it has caught up."""

HANG_UP_LIMIT: Final = 2.0
"""Seconds that a stopping broker waits for clients to take their last frames."""

_log: Final = logging.getLogger(__name__)


class Server:
    """One broker over an open store. `failed` resolves with the error that stops it.

    Args:
        store: stays the caller's to close, after `stop`.
        ability: the handover that queues follow.
        heartbeat: seconds of silence after which a client counts as gone.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        ability: base.HandoverAbility,
        *,
        heartbeat: float = base.DEFAULT_HEARTBEAT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = Engine(store, ability)
        Operations(self.engine)
        Administration(self.engine)
        self.heartbeat = heartbeat
        self.clock = clock
        self.peers: set[Peer] = set()
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[base.BrokerError] = self._loop.create_future()
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._committing: asyncio.Future[None] | None = None
        self._kick_due = False
        self._listeners: list[asyncio.Server] = []
        self._timer = self._loop.call_later(heartbeat / protocol.PINGS_PER_HEARTBEAT, self._tick)

    async def listen_unix(self, path: str) -> None:
        """Serve a Unix socket at a free path; only its owner may connect."""
        self._listeners.append(await self._loop.create_unix_server(self._peer, path))

    async def listen_tcp(self, host: str, port: int) -> int:
        """Serve a TCP port, and return its number (a free one for 0)."""
        listener = await self._loop.create_server(self._peer, host, port)
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    def _peer(self) -> Peer:
        return Peer(self)

    async def stop(self) -> None:
        """Stop taking clients, make what was taken durable, answer it, and hang up.

        After a failure it only hangs up: what is not in the store must not be confirmed.
        """
        for listener in self._listeners:
            listener.close()
        self._timer.cancel()
        if not self.failed.done():
            await self._drain()
        peers = tuple(self.peers)
        for peer in peers:
            peer.hang_up()
        if peers:
            await asyncio.wait([peer.closed for peer in peers], timeout=HANG_UP_LIMIT)
        self._thread.shutdown()

    async def _drain(self) -> None:
        # Exact marks can be written only when nothing is under way that would deliver after them.
        await self._until_idle()
        self.engine.retire()
        await self._until_idle()

    async def _until_idle(self) -> None:
        self._kick()
        while self._committing is not None:
            # Our own callback was there first: when the wait is over, it has run and perhaps begun the next commit.
            await asyncio.wait([self._committing])

    # The commit cycle.

    def arrived(self, peer: Peer, frames: list[Frame]) -> None:
        """Take a burst of operations of one client, and plan to commit them."""
        if self.failed.done():
            return  # memory is ahead of the store: nothing that follows from it may be seen by anybody
        try:
            for frame in frames:
                self.engine.handle(peer.client, frame)
            self.engine.settle()
        except base.StoreDamaged as error:
            self._fail(error)
        self.kick()

    def gone(self, peer: Peer) -> None:
        """Take back what a client held; idempotent."""
        self.engine.disconnect(peer.client)
        self.arrived(peer, [])  # the next link of each of its queues is due

    def caught_up(self, peer: Peer) -> None:
        """Send a client what was held back while it did not read."""
        try:
            self.engine.look_again(peer.client)
        except base.StoreDamaged as error:
            self._fail(error)
        self.arrived(peer, [])

    def kick(self) -> None:
        """Commit soon: after the other sockets that are readable now have been read."""
        if not self._kick_due:
            self._kick_due = True
            self._loop.call_soon(self._kick)

    def _kick(self) -> None:
        self._kick_due = False
        if self._committing is not None or self.failed.done():
            return
        try:
            sealed = self.engine.seal()
            # Answers that wait for nothing on disk go at once, and may bring about something to write.
            while sealed is not None and sealed.writes is None:
                self.engine.committed(sealed)
                sealed = self.engine.seal()
            if sealed is None or sealed.writes is None:
                return
            self._store.write(sealed.writes)
        except base.StoreDamaged as error:
            self._fail(error)
            return
        self._committing = self._loop.run_in_executor(self._thread, self._store.commit)
        self._committing.add_done_callback(lambda done: self._on_committed(done, sealed))

    def _on_committed(self, done: asyncio.Future[None], sealed: Sealed) -> None:
        self._committing = None
        try:
            done.result()
            self.engine.committed(sealed)
        except base.StoreDamaged as error:
            self._fail(error)
            return
        self._kick()

    def _fail(self, error: base.StoreDamaged) -> None:
        """Hang up on everybody, before anything could be confirmed that the store does not hold."""
        if self.failed.done():
            return
        self.failed.set_result(error)
        for peer in tuple(self.peers):
            peer.abort()

    # Heartbeats.

    def _tick(self) -> None:
        """Say that we are alive, and give up clients that have not done so for a heartbeat.

        Any bytes count as a sign of life; a client that is alive sends at least a ping every fifth of a heartbeat.
        """
        interval = self.heartbeat / protocol.PINGS_PER_HEARTBEAT
        self._timer = self._loop.call_later(interval, self._tick)
        now = self.clock()
        for peer in tuple(self.peers):
            if now - peer.heard_at > self.heartbeat:
                peer.abort()
            else:
                peer.send([Op.PING])


class Peer(asyncio.Protocol):
    """One accepted connection: frames to and from its `Client` in the engine.

    A protocol class and not streams: there is no task per connection to wake, and a burst of frames is one call.
    """

    def __init__(self, server: Server) -> None:
        self.client = Client(self.send)
        self.heard_at = server.clock()
        self._server = server
        self._reader = protocol.FrameReader()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._greeted = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to count this client."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_LIMIT)
        self._server.peers.add(self)

    def data_received(self, data: bytes) -> None:
        """Pass complete frames on, in bursts."""
        self.heard_at = self._server.clock()
        try:
            frames = [frame for frame in self._reader.feed(data) if frame[0] != Op.PING]
            if frames and not self._greeted:
                self._greet(frames.pop(0))
            if frames:
                self._server.arrived(self, frames)
        except (protocol.ProtocolError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            # A client that does not speak the protocol: hang up on it, and on nobody else.
            _log.warning("hung up on client %r, which sent a malformed frame: %r", self.client.name, error)
            self.abort()

    def _greet(self, frame: Frame) -> None:
        op, request, version, name, owner = frame
        if op != Op.HELLO:
            raise protocol.ProtocolError("expected HELLO")
        if version != protocol.VERSION:
            reason = f"the broker speaks protocol version {protocol.VERSION}, the client {version}: use equal releases"
            self.send([Op.ERROR, request, base.Refused.__name__, reason, None])
            self.hang_up()
            return
        self._greeted = True
        self.client.name, self.client.owner = name, owner
        self.client.reply(request, [self._server.engine.ability.value, self._server.heartbeat])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio names it
        """Take back what the client held: a closed socket is a dead client."""
        self._transport = None
        self._server.peers.discard(self)
        self._server.gone(self)
        self.closed.set_result(None)

    def send(self, frame: Frame) -> None:
        """Send a frame with the others of this turn of the loop."""
        if self._transport is None:
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        data = protocol.encode(frame)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > UNSENT_LIMIT:
            # Only the transport knows what the client has read, so it must see large amounts at once.
            self._flush()

    def pause_writing(self) -> None:
        """Have the engine hold back: the client does not read as fast as it is sent to."""
        self.client.is_congested = True

    def resume_writing(self) -> None:
        """Have the engine go on."""
        self.client.is_congested = False
        self._server.caught_up(self)

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if self._transport is not None and out:
            self._transport.write(b"".join(out))

    def hang_up(self) -> None:
        """Send what is due and close; `closed` resolves when the client has taken it."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Hang up at once and take back what the client held."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._out.clear()
        self._server.gone(self)
