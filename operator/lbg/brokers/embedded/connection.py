"""One client connection to the embedded broker: frames, requests and their answers, signs of life.

Knows nothing of links or publishers; whoever owns the connection gets the pushed frames and learns, once, that it is
lost. It is never reopened: a lost connection is lost ownership.

*The zombie rule.* A process that was stopped (SIGSTOP, a blocked event loop) finds deliveries in its socket that the
broker has given to another one since. So the first thing that happens with received bytes is a look at the clock: if
this process has not run for most of a heartbeat, or has heard nothing for a whole one, the connection is lost and the
bytes are dropped.
"""

from __future__ import annotations

import asyncio
import os
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from lbg.brokers import base
from lbg.brokers.embedded import protocol
from lbg.brokers.embedded.protocol import Frame, Op

UNIX_SCHEME: Final = "embedded"
TCP_SCHEME: Final = "embedded+tcp"
MAX_SOCKET_PATH: Final = 107
"""Bytes that the kernel takes for the path of a Unix socket (108 with the closing zero)."""

_ERRORS: Final[Mapping[str, type[base.BrokerError]]] = {
    error.__name__: error
    for error in (
        base.Refused,
        base.Conflict,
        base.Missing,
        base.NotEmpty,
        base.BindRefused,
        base.LinkLost,
        base.LedgerUnreadable,
        base.Unsupported,
    )
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens: a Unix socket, or a port of the loopback interface."""

    url: str
    path: str | None = None
    host: str = ""
    port: int = 0
    owner: str | None = None  # whose group a prefix means, on a stream that several groups share


def parse_url(url: str) -> Endpoint:
    """Read `embedded:///path/to.sock` or `embedded+tcp://127.0.0.1:PORT`, each with an optional `?owner=`.

    Raises:
        Unreachable: the URL names no place where a broker could listen.
    """
    parts = urllib.parse.urlsplit(url)
    owner = dict(urllib.parse.parse_qsl(parts.query)).get("owner")
    if parts.scheme == UNIX_SCHEME:
        path = urllib.parse.unquote(parts.path)
        if parts.netloc or not path:
            raise base.Unreachable(f"{url}: write the path of the socket as embedded:///path/to.sock")
        require_short(path)
        return Endpoint(url, path=path, owner=owner)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != TCP_SCHEME or not parts.hostname or port is None:
        raise base.Unreachable(f"{url}: write the address as embedded+tcp://127.0.0.1:PORT")
    return Endpoint(url, host=parts.hostname, port=port, owner=owner)


def require_short(path: str) -> None:
    """Check that the kernel takes the path of a Unix socket.

    Raises:
        Unreachable: it is too long; the line says by how much and what helps.
    """
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise base.Unreachable(
            f"socket path has {length} bytes, the kernel takes {MAX_SOCKET_PATH}: choose a shorter folder ({path})"
        )


class Owner(Protocol):
    """Whoever opened a connection."""

    def on_push(self, frame: Frame) -> None:
        """Take a frame that answers no request."""

    def on_lost(self, reason: str) -> None:
        """Learn, once, that the connection is gone without having been closed."""


class Connection(asyncio.Protocol):
    """A connection that is being opened or open. Belongs to one event loop of one thread of one process."""

    def __init__(self, endpoint: Endpoint, owner: Owner, clock: Callable[[], float]) -> None:
        self.endpoint = endpoint
        self.heartbeat = base.DEFAULT_HEARTBEAT
        self.lost_because: str | None = None
        self.before_send: Callable[[], None] | None = None  # called before frames leave; may send more
        self._owner = owner
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = protocol.FrameReader()
        self._out: list[bytes] = []
        self._flush_due = False
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._last_request = 0
        self._is_closing = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._ran_at = self._heard_at = clock()
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, name: str) -> Any:
        """Connect and greet; return the broker's welcome.

        Raises:
            Unreachable: nothing answers, or not in time.
            Refused: it answers and does not let us in.
        """
        try:
            async with asyncio.timeout(base.DEFAULT_HEARTBEAT):
                await self._connect()
                welcome = await self.request(Op.HELLO, protocol.VERSION, name, self.endpoint.owner)
        except TimeoutError:
            self.abort("opening took too long")
            url = self.endpoint.url
            raise base.Unreachable(f"{url}: the broker does not answer; is its process stopped?") from None
        except BaseException:
            # Also when the caller gives up waiting: nobody else knows this socket.
            self.abort("it was not opened")
            raise
        self.heartbeat = welcome[1]
        self._tick()
        return welcome

    async def _connect(self) -> None:
        at = self.endpoint
        try:
            if at.path is not None:
                await self._loop.create_unix_connection(lambda: self, at.path)
            else:
                await self._loop.create_connection(lambda: self, at.host, at.port)
        except PermissionError:
            raise base.Refused(f"{at.url}: the socket belongs to another user") from None
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise base.Unreachable(f"{at.url}: no broker listens there ({why}): start it, or correct the URL") from None

    # Sending.

    async def request(self, op: Op, *values: object) -> Any:
        """Send a request and return the value that answers it.

        Many may be open at once; the broker answers each when what it asks for is durable, so not always in order.

        Raises:
            Unreachable: the connection is gone, so that it cannot be known whether the request took effect.
            BrokerError: whatever the broker answers.
        """
        if self.lost_because is not None or self._is_closing:
            raise base.Unreachable(f"{self.endpoint.url}: {self.lost_because or 'the connection was closed'}")
        self._last_request += 1
        number = self._last_request
        future: asyncio.Future[Any] = self._loop.create_future()
        self._requests[number] = future
        self.send([op, number, *values])
        try:
            return await future
        finally:
            self._requests.pop(number, None)

    def send(self, frame: Frame) -> None:
        """Send a frame with the others of this turn of the loop, in order.

        On a connection that is gone it does nothing: whoever waits for an answer has been told.
        """
        self.flush_soon()
        self._out.append(protocol.encode(frame))

    def flush_soon(self) -> None:
        """Have `before_send` called and the frames sent in this turn of the loop."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self.before_send is not None:
            self.before_send()
        self._flush_due = False
        out, self._out = self._out, []
        if self._transport is not None and out:
            self._transport.write(b"".join(out))

    async def close(self) -> None:
        """Send what is due and hang up; idempotent."""
        self._is_closing = True
        self._flush()
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait([self._closed], timeout=self.heartbeat)
        if self._transport is not None:
            self._transport.abort()  # it does not take our last frames
        self._end("the connection was closed")

    def abort(self, reason: str) -> None:
        """Hang up at once, as after a crash; the owner is told."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    # Receiving.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._ran_at = self._heard_at = self._clock()

    def data_received(self, data: bytes) -> None:
        """Pass on what arrived, unless this process was away for too long (the zombie rule above)."""
        if self.lost_because is not None or self._is_late():
            return
        self._heard_at = self._clock()
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except protocol.ProtocolError as error:
            # Before the greeting most likely: the URL leads to a server of another kind.
            self.abort(f"what answers is no embedded broker ({error})")

    def _take(self, frame: Frame) -> None:
        op = frame[0]
        if self.lost_because is not None:
            return  # a listener hung up in the middle of a burst
        if op == Op.REPLY:
            future = self._requests.get(frame[1])
            if future is not None and not future.done():
                future.set_result(frame[2])
        elif op == Op.ERROR:
            future = self._requests.get(frame[1])
            if future is not None and not future.done():
                future.set_exception(_error(*frame[2:]))
        elif op != Op.PING:
            self._owner.on_push(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Learn that the socket is closed; by us, where that was meant or has been reported, and else it is a loss."""
        self._transport = None
        if not self._closed.done():
            self._closed.set_result(None)
        if not self._is_closing:
            self._end("the broker closed the connection" if exc is None else f"the connection broke: {exc}")

    # Signs of life.

    def _tick(self) -> None:
        if self.lost_because is not None or self._is_closing or self._is_late():
            return
        self._ran_at = self._clock()
        self.send([Op.PING])
        self._timer = self._loop.call_later(self.heartbeat / protocol.PINGS_PER_HEARTBEAT, self._tick)

    def _is_late(self) -> bool:
        """Tell whether we or the broker were silent for too long, and give the connection up if so.

        The broker counts from the arrival of our last ping, which is not before `_ran_at`; so our count of its patience
        ends first.
        """
        now = self._clock()
        if self._timer is not None and now - self._ran_at > protocol.PAUSE_LIMIT * self.heartbeat:
            self.abort(f"this process did not run for {now - self._ran_at:.1f} s: another consumer may own the queues")
        elif now - self._heard_at > self.heartbeat:
            self.abort(f"the broker was silent for {now - self._heard_at:.1f} s")
        else:
            return False
        return True

    def _end(self, reason: str) -> None:
        """Fail what waits for an answer, then tell the owner; only the first reason counts."""
        if self.lost_because is not None:
            return
        self.lost_because = reason
        if self._timer is not None:
            self._timer.cancel()
        for future in self._requests.values():
            if not future.done():
                future.set_exception(base.Unreachable(f"{self.endpoint.url}: {reason}"))
        if not self._is_closing:
            self._owner.on_lost(reason)


def _error(name: str, message: str, extra: Any) -> base.BrokerError:
    kind = _ERRORS.get(name, base.Refused)
    if kind is base.Conflict:
        return base.Conflict(message, names=tuple(extra or ()))
    if kind is base.NotEmpty:
        return base.NotEmpty(message, remaining=dict(extra or ()))
    return kind(message)
