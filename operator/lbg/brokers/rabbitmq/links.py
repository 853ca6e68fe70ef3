"""A link: one channel on one queue, and the planned end of it.

The queue has a single active consumer, so that links wait in order of registration. Release sends the acknowledgements
(they are on the wire already), then the bare Channel.Close: the broker puts the rest back at the head in its order and
activates the next. Nothing that was put back was ever handed to a handler that finished, so nothing is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pika
from pika import spec

from lbg.brokers import base
from lbg.brokers.base import Delivery
from lbg.brokers.rabbitmq import connection, messages, names
from lbg.brokers.rabbitmq.ledgers import Ledger

if TYPE_CHECKING:
    from lbg.brokers.rabbitmq.client import RabbitSession

MAX_PREFETCH: Final = 65_535
MAX_TAG_BYTES: Final = 255
"""A consumer tag is a short string of the protocol."""


class RabbitLink:
    """See `base.Link`."""

    def __init__(
        self,
        session: RabbitSession,
        channel: connection.Channel,
        group: names.Names,
        queue: int,
        listener: base.LinkListener,
    ) -> None:
        self._session = session
        self._channel = channel
        self._name = group.queue(queue)
        self._queue = queue
        self._listener = listener
        self._ledger = Ledger(channel, group, queue)
        self._buffer: list[Delivery] = []
        self._unacked: set[int] = set()
        self._was_active = False
        self._started = False
        self._over: str | None = None  # why nothing more may happen on this link

    async def open(self, name: str, window: int) -> None:
        """Consume. The name becomes the consumer tag, which the broker's own tools show.

        Raises:
            Missing: no such queue.
            Refused: no permission to read it.
            LinkLost: the connection is gone.
        """
        raw = self._channel.raw
        raw.add_on_cancel_callback(lambda _: self._end("the broker has cancelled the consumer: the queue was deleted"))
        await self._channel.call(raw.basic_qos, prefetch_count=min(window, MAX_PREFETCH))
        tag = name.encode()[:MAX_TAG_BYTES].decode(errors="ignore")
        await self._channel.call(
            raw.basic_consume, queue=self._name, on_message_callback=self._on_message, consumer_tag=tag or None
        )
        self._channel.ended.add_done_callback(lambda ended: self._end(connection.describe(ended.result())))

    def start(self) -> None:
        """Let deliveries through: those that came before whoever bound has the link have waited."""
        self._started = True
        self._hand_over()

    @property
    def queue(self) -> int:
        """Return the index of the queue."""
        return self._queue

    def _on_message(self, _: object, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes) -> None:
        if self._over is not None:
            return
        if not self._buffer and self._started:
            # pika hands over one message at a time; those of one read from the socket go to the listener together.
            asyncio.get_running_loop().call_soon(self._hand_over)
        message = messages.from_properties(properties, body)
        self._buffer.append(Delivery(self._queue, method.delivery_tag, message, bool(method.redelivered)))

    def _hand_over(self) -> None:
        buffered, self._buffer = self._buffer, []
        if buffered and self._over is None:
            self._was_active = True
            self._unacked.update(delivery.tag for delivery in buffered)
            self._listener.on_deliveries(buffered)

    def ack(self, tags: Sequence[int]) -> None:
        """Acknowledge; tags that are not open are ignored, since a wrong one would end the channel.

        One by one: the ledger's copies are numbered on the same channel, and a cumulative acknowledgement would take
        them along.
        """
        raw = self._channel.raw
        if self._over is not None or not raw.is_open:
            return
        for tag in tags:
            if tag in self._unacked:
                self._unacked.discard(tag)
                raw.basic_ack(tag)

    async def ack_and_publish(self, tag: int, outgoing: base.Outgoing) -> None:  # noqa: ARG002  # the contract's names
        """Refuse: the broker cannot do both in one step."""
        raise base.Unsupported("RabbitMQ cannot acknowledge and publish in one step: publish, then acknowledge")

    async def release(self) -> None:
        """End the link; see `base.Link.release`."""
        if self._over is None:
            self._over = "the link was released"
        self._buffer.clear()
        await self._channel.close()
        self._session.forget(self)

    def _end(self, reason: str) -> None:
        if self._over is not None:
            return
        self._over = reason
        self._buffer.clear()
        # After a cancel from the broker the channel is still there, with what is unacknowledged.
        self._channel.start_close()
        self._session.forget(self)
        self._listener.on_lost(reason)

    async def read_ledger(self) -> base.LedgerEntry | None:
        """Read the ledger; see `base.Link.read_ledger`."""
        self._require_active()
        return await self._ledger.read()

    async def write_ledger(self, entry: base.LedgerEntry) -> None:
        """Write the ledger; see `base.Link.write_ledger`."""
        self._require_active()
        await self._ledger.write(entry)

    def _require_active(self) -> None:
        if self._over is not None:
            raise base.LinkLost(f"link to {self._name}: {self._over}")
        if not self._was_active:
            raise base.LinkLost(f"link to {self._name} is not active: the ledger is its active link's")
