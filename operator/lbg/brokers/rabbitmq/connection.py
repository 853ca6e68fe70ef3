"""pika on our event loop: one connection, its channels, and its errors in the words of the contract.

Theory of operation
-------------------
pika is callback style and belongs to one event loop; what has to be waited for becomes a future here. A channel ends in
one of three ways, and all of them resolve `Channel.ended`: we closed it, the broker did, the connection broke.

The one rule that everything rests on: **a channel is closed without cancelling its consumers first.** `basic.cancel`
leaves unacknowledged messages with the old channel while the next consumer starts on later ones, and pika's own
`Channel.close` and `Connection.close` cancel every consumer before they close. So `Channel.close` here sends the bare
Channel.Close of the specification, and `Connection.close` closes the channels that way before it lets pika close.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pika
from pika import exceptions, spec
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel as PikaChannel

from lbg.brokers import base
from lbg.brokers.rabbitmq import features
from lbg.brokers.rabbitmq.urls import Address

BLOCKED_LIMIT: Final = 300.0
"""Seconds the broker may hold a connection back (memory or disk alarm) before it counts as lost."""

CONNECT_LIMIT: Final = 15.0
"""Seconds for one host: TCP, TLS and AMQP handshake."""

NOT_FOUND: Final = 404
ACCESS_REFUSED: Final = 403

Answer = TypeVar("Answer")


class Channel:
    """One channel, with calls that can be awaited."""

    def __init__(self, connection: Connection, raw: PikaChannel) -> None:
        self._connection = connection
        self.raw = raw
        self.ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        raw.add_on_close_callback(self._on_ended)

    def _on_ended(self, _: object, reason: BaseException) -> None:
        self._connection.channels.discard(self)
        if not self.ended.done():
            self.ended.set_result(reason)

    async def call(self, method: Callable[..., object], **arguments: object) -> Any:
        """Call a method of the channel that takes a `callback`, and wait for its answer.

        Raises:
            Missing, Refused, LinkLost: what ended the channel instead.
        """
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def take(frame: object) -> None:
            if not answered.done():
                answered.set_result(frame)

        try:
            method(callback=take, **arguments)
        except exceptions.AMQPError as error:
            raise translated(error) from None
        return await self.first_of(answered)

    async def first_of(self, answered: asyncio.Future[Answer]) -> Answer:
        """Wait for an answer or for the end of the channel. Raises as `call`."""
        await asyncio.wait((answered, self.ended), return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            return answered.result()
        raise translated(self.ended.result())

    def start_close(self) -> None:
        """Send Channel.Close, without a basic.cancel before it. What was sent earlier reaches the broker earlier."""
        raw = self.raw
        if raw.is_closed or raw.is_closing:
            return
        # As pika's own close, less the cancelling; pika offers no other way to leave it out.
        raw._closing_reason = exceptions.ChannelClosedByClient(200, "released")
        raw._set_state(raw.CLOSING)
        raw._rpc(spec.Channel.Close(200, "released", 0, 0), raw._on_closeok, [spec.Channel.CloseOk])

    async def close(self) -> None:
        """Close, and wait until the broker has taken it or the connection is gone. Idempotent; raises nothing."""
        self.start_close()
        await asyncio.wait((self.ended,))


class Connection:
    """One AMQP connection."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.channels: set[Channel] = set()
        self.on_lost: Callable[[str], None] = lambda _: None
        self.lost_because: str | None = None
        self.closing = False
        self.raw: AsyncioConnection
        self.features: features.Features
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, name: str) -> None:
        """Connect to the first host that answers.

        Raises:
            Unreachable: none answers.
            Refused: one answers and does not let us in.
        """
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def settle(outcome: object) -> None:
            if not done.done():
                done.set_result(outcome)

        workflow = AsyncioConnection.create_connection(
            _parameters(self.address, name), settle, custom_ioloop=asyncio.get_running_loop()
        )
        try:
            outcome = await done
        except BaseException:
            workflow.abort()
            raise
        if isinstance(outcome, BaseException):
            raise _unopened(self.address, outcome)
        self.raw = outcome
        self.raw.add_on_close_callback(self._on_closed)
        properties = outcome.server_properties or {}
        self.features = features.of(str(properties.get("product")), str(properties.get("version")))
        features.require_supported(self.features)

    def _on_closed(self, _: object, reason: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        if not self.closing and self.lost_because is None:
            self.lost_because = describe(reason)
            self.on_lost(self.lost_because)

    async def channel(self) -> Channel:
        """Open a channel. Raises LinkLost when the connection is gone."""
        if self.lost_because is not None or self.closing:
            raise base.LinkLost(f"the connection to {self.address.shown} is gone: {self.lost_because or 'closed'}")
        opened: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def take(_: object) -> None:
            if not opened.done():
                opened.set_result(None)

        try:
            raw = self.raw.channel(on_open_callback=take)
        except exceptions.AMQPError as error:
            raise base.LinkLost(describe(error)) from None
        channel = Channel(self, raw)
        self.channels.add(channel)
        await channel.first_of(opened)
        return channel

    async def exchange_exists(self, name: str) -> bool:
        """Look whether an exchange exists: publishing to a missing one would end the publisher's channel."""
        channel = await self.channel()
        try:
            await channel.call(channel.raw.exchange_declare, exchange=name, passive=True)
        except base.Missing:
            return False
        except base.Refused:
            return True  # some versions want the right to configure for a look; publishing will tell
        finally:
            await channel.close()
        return True

    async def close(self) -> None:
        """Close every channel without cancelling, then the connection. Idempotent."""
        self.closing = True
        await asyncio.gather(*(channel.close() for channel in tuple(self.channels)))
        if self.raw.is_open:
            self.raw.close()
        if not self.raw.is_closed:
            await asyncio.wait((self._ended,))


def _parameters(address: Address, name: str) -> list[pika.ConnectionParameters]:
    options = None
    if address.tls:
        context = ssl.create_default_context(cafile=address.cafile)
        if address.certfile:
            context.load_cert_chain(address.certfile, address.keyfile)
    found = []
    for host, port in address.hosts:
        if address.tls:
            options = pika.SSLOptions(context, host)
        found.append(
            pika.ConnectionParameters(
                host=host,
                port=port,
                virtual_host=address.vhost,
                credentials=pika.PlainCredentials(address.user, address.password),
                heartbeat=int(base.DEFAULT_HEARTBEAT),
                blocked_connection_timeout=BLOCKED_LIMIT,
                socket_timeout=CONNECT_LIMIT,
                stack_timeout=CONNECT_LIMIT,
                ssl_options=options,
                client_properties={"connection_name": name, "product": "load-balanced-groups"},
            )
        )
    return found


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and all that it was made of: pika wraps what happened at each host several times."""
    found = [error]
    for inner in getattr(error, "exceptions", ()):
        found += _causes(inner)
    inner = getattr(error, "exception", None)
    return found + (_causes(inner) if isinstance(inner, BaseException) else [])


def _unopened(address: Address, error: BaseException) -> base.BrokerError:
    causes = _causes(error)
    where = address.shown
    for cause in causes:
        if isinstance(cause, (exceptions.ProbableAuthenticationError, exceptions.AuthenticationError)):
            return base.Refused(f"{where}: wrong user or password for user {address.user!r}: correct the broker URL")
        text = str(cause)
        if isinstance(cause, exceptions.ProbableAccessDeniedError) or getattr(cause, "reply_code", None) == 530:
            if "not found" in text:
                return base.Refused(f"{where}: virtual host {address.vhost!r} does not exist: create it or correct it")
            return base.Refused(
                f"{where}: user {address.user!r} may not use virtual host {address.vhost!r}: grant it permissions"
            )
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return base.Refused(
                f"{where}: TLS failed ({cause.reason or 'handshake'}): check cafile, certfile, host name"
            )
        if isinstance(cause, exceptions.IncompatibleProtocolError):
            return base.Unreachable(f"{where}: this is no AMQP 0-9-1 listener: check the port, and amqp against amqps")
    details = next((describe(c) for c in reversed(causes) if isinstance(c, OSError)), describe(causes[-1]))
    return base.Unreachable(f"{where}: nothing answers ({details}): check host and port, and that the broker runs")


def describe(reason: BaseException) -> str:
    """Return a reason in one line. pika's errors carry no credentials, but line breaks now and then."""
    code = getattr(reason, "reply_code", None)
    text = str(getattr(reason, "reply_text", "") or str(reason) or type(reason).__name__)
    text = " ".join(text.split())
    return f"{code} {text}" if code is not None else text


def translated(reason: BaseException) -> base.BrokerError:
    """Return the contract's error for what ended a channel."""
    code = getattr(reason, "reply_code", None)
    if code == NOT_FOUND:
        return base.Missing(f"{describe(reason)}: declare the topology first")
    if code == ACCESS_REFUSED:
        return base.Refused(f"{describe(reason)}: grant the permission")
    return base.LinkLost(f"the channel ended: {describe(reason)}")
