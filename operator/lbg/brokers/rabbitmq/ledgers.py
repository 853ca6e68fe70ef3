"""The ledger of a queue: a small single-active durable queue beside it, consumed on the channel of its active link.

Theory of operation
-------------------
*Who may.* The ledger queue is consumed only after the main queue's first delivery, on the same channel. When that
channel ends, both queues change hands; the broker hands neither to the next owner before it has taken it from the last.

*Reading.* Copies carry (epoch, version); the highest counts. There is no frame that says "these were all", so the
reader publishes a probe and waits until it comes back: a queue is first in, first out, and what a former owner held is
put back at the head, so every copy stands before the probe. The probe also waits as long as the former owner is still
there, and tells an empty ledger from one that is held elsewhere. Probes that a dead reader left are dropped.

*Writing.* A new copy is published on the same channel, so that an owner whose channel is gone cannot write. Older
copies are acknowledged only after the newer one is confirmed: at each moment at least one copy is durable.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

import pika
from pika import spec

from lbg.brokers import base
from lbg.brokers.base import LedgerEntry, Outcome
from lbg.brokers.rabbitmq import names
from lbg.brokers.rabbitmq.confirms import Confirms
from lbg.brokers.rabbitmq.connection import Channel
from lbg.core.wire import Message

EPOCH: Final = "lbg-ledger-epoch"
VERSION: Final = "lbg-ledger-version"
PROBE: Final = "lbg-ledger-probe"

LIMIT: Final = 15.0
"""Seconds to wait for the ledger. A silent former owner is cut off by its heartbeat, and the main queue with it."""


class Ledger:
    """The ledger as its queue's active link sees it."""

    def __init__(self, channel: Channel, group: names.Names, number: int) -> None:
        self._channel = channel
        self._group = group
        self._number = number
        self._confirms = Confirms(channel)
        self._held: dict[tuple[int, int], tuple[int, bytes]] = {}  # (epoch, version) -> tag, data
        self._stored: LedgerEntry | None = None
        self._damage: str | None = None
        self._nonce = uuid.uuid4().hex
        self._probed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opening: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def read(self) -> LedgerEntry | None:
        """Return the entry; see `base.Link.read_ledger`."""
        await self._open()
        return self._stored

    async def write(self, entry: LedgerEntry) -> None:
        """Replace the entry; see `base.Link.write_ledger`."""
        await self._open()
        async with self._writing:
            stored = self._stored
            if stored is not None and (entry.epoch, entry.version) <= (stored.epoch, stored.version):
                raise base.LinkLost(
                    f"ledger of {self._name}: epoch {stored.epoch} version {stored.version} is stored,"
                    f" so {entry.epoch}, {entry.version} comes from a former owner"
                )
            await self._publish({EPOCH: entry.epoch, VERSION: entry.version}, entry.data)
            self._stored = entry
            self._drop_older()

    @property
    def _name(self) -> str:
        return self._group.queue(self._number)

    async def _open(self) -> None:
        if self._opening is None:
            # A task of its own: a caller that stops waiting must not leave a consumer without its probe.
            self._opening = asyncio.ensure_future(self._consume())
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        done, _ = await asyncio.wait((self._opening,), timeout=LIMIT)
        if not done:
            raise base.LedgerUnreadable(f"ledger of {self._name} is held elsewhere: it will be tried again")
        self._opening.result()
        if self._damage is not None:
            raise base.LedgerUnreadable(self._damage)

    async def _consume(self) -> None:
        raw = self._channel.raw
        try:
            await self._confirms.start()
            await self._channel.call(raw.basic_qos, prefetch_count=0)
            await self._channel.call(
                raw.basic_consume, queue=self._group.ledger(self._number), on_message_callback=self._on_copy
            )
        except base.Missing as error:
            raise base.LinkLost(error.message) from None  # the channel, and ownership with it, went with the answer
        await self._publish({PROBE: self._nonce}, b"")
        await self._channel.first_of(self._probed)
        if self._held:
            (epoch, version), (_, data) = max(self._held.items())
            self._stored = LedgerEntry(epoch, version, data)
            self._drop_older()

    async def _publish(self, headers: dict[str, int | str], data: bytes) -> None:
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def take(outcome: Outcome) -> None:
            if not answered.done():
                answered.set_result(outcome)

        self._confirms.publish(self._group.group, names.ledger_key(self._number), Message(data, headers), take)
        outcome = await answered
        if outcome is Outcome.UNKNOWN:
            raise base.LinkLost(f"the link to {self._name} ended before its ledger was stored")
        if outcome is not Outcome.ACCEPTED:
            raise base.LedgerUnreadable(f"ledger of {self._name} does not take a copy ({outcome}): declare it again")

    def _on_copy(self, _: object, method: spec.Basic.Deliver, properties: pika.BasicProperties, body: bytes) -> None:
        headers = properties.headers or {}
        if PROBE in headers:
            self._ack(method.delivery_tag)
            if headers[PROBE] == self._nonce and not self._probed.done():
                self._probed.set_result(None)
            return
        epoch, version = headers.get(EPOCH), headers.get(VERSION)
        if not isinstance(epoch, int) or not isinstance(version, int):
            self._damage = f"ledger of {self._name} holds a message that is no copy of it: remove that message"
            return
        self._held[epoch, version] = (method.delivery_tag, body)
        if self._stored is not None:
            self._drop_older()

    def _drop_older(self) -> None:
        assert self._stored is not None
        newest = (self._stored.epoch, self._stored.version)
        for key in [key for key in self._held if key < newest]:
            tag, _ = self._held.pop(key)
            self._ack(tag)

    def _ack(self, tag: int) -> None:
        if self._channel.raw.is_open:
            self._channel.raw.basic_ack(tag)
