"""Reading an output: a stream queue, from an offset, on a channel of its own.

Streams are read without being consumed: acknowledgements only move the window. The broker starts at the chunk that
contains the offset, so that records before it are skipped here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import pika
from pika import spec

from lbg.brokers import base
from lbg.brokers.rabbitmq import messages
from lbg.brokers.rabbitmq.connection import Channel, Connection, translated
from lbg.brokers.rabbitmq.routes import Routes
from lbg.core.wire import Message

WINDOW: Final = 1_000
"""Records under way. Half of it is acknowledged at a time, so that the broker never waits for a reader that reads."""


class _Reader:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.records: deque[tuple[int, int, Message]] = deque()  # offset, tag, message
        self.cancelled = False
        self._came = asyncio.Event()
        channel.ended.add_done_callback(lambda _: self._came.set())
        channel.raw.add_on_cancel_callback(self._on_cancel)

    def on_message(self, _: object, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes) -> None:
        offset = int((properties.headers or {})["x-stream-offset"])
        self.records.append((offset, method.delivery_tag, messages.from_properties(properties, body)))
        self._came.set()

    def _on_cancel(self, _: object) -> None:
        self.cancelled = True
        self._came.set()

    async def next(self) -> tuple[int, int, Message] | None:
        """Return the next record, None at the end."""
        while not self.records:
            if self.cancelled or self.channel.ended.done():
                return None
            self._came.clear()
            await self._came.wait()
        return self.records.popleft()


async def read(
    connection: Connection, routes: Routes, prefix: str, name: str, start: int
) -> AsyncIterator[tuple[int, Message]]:
    """Follow an output; see `base.Session.read_output`.

    Raises:
        Missing: there is no such output, or none any more.
        LinkLost: the connection is gone.
    """
    queue = (await routes.names(prefix)).output(name)
    channel = await connection.channel()
    reader = _Reader(channel)
    raw = channel.raw
    try:
        await channel.call(raw.basic_qos, prefetch_count=WINDOW)
        await channel.call(
            raw.basic_consume,
            queue=queue,
            on_message_callback=reader.on_message,
            arguments={"x-stream-offset": start},
        )
        acked = 0
        while (record := await reader.next()) is not None:
            offset, tag, message = record
            if offset >= start:
                yield offset, message
            if tag - acked >= WINDOW // 2 and raw.is_open:
                raw.basic_ack(tag, multiple=True)
                acked = tag
        if reader.cancelled:
            raise base.Missing(f"output {name!r} of {prefix!r} was deleted")
        raise translated(channel.ended.result())
    finally:
        channel.start_close()
