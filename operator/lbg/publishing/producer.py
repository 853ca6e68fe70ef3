"""The producer for asyncio: keyed publishing with confirms, order kept under every failure.

Here stands what the application sees. How events are numbered, sent and sent again is the pump's and the window's
business; `threads.SyncProducer` is the same for callers in threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Mapping
from types import TracebackType
from typing import Final, Self

from lbg.core.contract import Contract
from lbg.core.wire import HeaderValue, Identity
from lbg.publishing import flushing
from lbg.publishing.contracts import Stream
from lbg.publishing.errors import NotConfirmed, ProducerClosed, ProducerForked, WrongLoop
from lbg.publishing.events import Body, Event
from lbg.publishing.opening import Opened, Outside, open_pump
from lbg.publishing.options import Options
from lbg.publishing.pump import Stats
from lbg.publishing.rooms import AsyncRoom


class Producer:
    """Publishes to one stream, from one event loop of one process. `Producer.open` makes one.

    Events of one shard, and so of one key, are at the broker in the order in which `publish` and `send` were called.
    Callers who wait for room in the buffer enter it in the order of their calls.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._room = AsyncRoom(options.max_events, options.max_bytes, self._accept)
        self._process = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._since_yield = 0
        self._opened: Opened
        self._is_closed = False

    @staticmethod
    def open(
        url: str,
        stream: Stream,
        name: str | None = None,
        *,
        options: Options | None = None,
        outside: Outside | None = None,
    ) -> Opening:
        """Connect: `await Producer.open(...)`, or `async with Producer.open(...) as producer`.

        Args:
            url: of the broker.
            stream: its prefix, the path of its contract file, or a contract that was read elsewhere.
            name: who publishes, for people and for the order check; None: the host's name and a random number.
            options: bounds and delays.
            outside: replacements for adapter, clock and randomness.

        Raises:
            PublishError: contract or identity is unusable (ContractUnknown, ContractMismatch, InvalidOption).
            brokers.base.BrokerError: the broker is away (Unreachable) or does not let us in (Refused).
        """
        return Opening(url, stream, name, options or Options(), outside or Outside())

    @property
    def contract(self) -> Contract:
        """Return the contract of the stream."""
        return self._opened.contract

    @property
    def name(self) -> str:
        """Return the producer's name, as events carry it."""
        return self._opened.name

    def stats(self) -> Stats:
        """Return what was done since the producer was opened."""
        return self._opened.pump.stats()

    async def publish(
        self,
        key: str,
        body: Body,
        headers: Mapping[str, HeaderValue] | None = None,
        content_type: str | None = None,
    ) -> Identity:
        """Publish an event and wait until the broker has confirmed it; return its identity.

        Cancelled, it may be published all the same. Many may run at once: each waits for its own confirm only.

        Raises:
            InvalidEvent: key, body or a header cannot be published.
            BufferFull: the buffer is full, under `when_full="raise"`.
            ShardStopped: an earlier event of its shard was refused for good.
            NotPublished: it was given up after it had been accepted from the caller.
            ProducerClosed, ProducerForked, WrongLoop: the producer cannot be used, or not from here.
        """
        event = self._event(key, body, headers, content_type)
        waiter: asyncio.Future[Identity] = self._loop.create_future()
        event.waiter = waiter
        if not self._room.try_enter(event):
            await self._enter(event)
        return await waiter

    async def send(
        self,
        key: str,
        body: Body,
        headers: Mapping[str, HeaderValue] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Put an event into the buffer and return; `flush` tells what became of it. The fast way for many events.

        It waits while the buffer is full, and now and then gives the event loop a turn. Raises as `publish`, but for
        NotPublished.
        """
        event = self._event(key, body, headers, content_type)
        if not self._room.try_enter(event):
            await self._enter(event)
        self._since_yield += 1
        if self._since_yield >= self._options.batch:
            # A loop of sends never waits while there is room, and would starve the connection.
            self._since_yield = 0
            await asyncio.sleep(0)

    async def flush(self, within: float | None = None) -> None:
        """Wait until everything published before this call is confirmed, or `within` seconds.

        Raises:
            NotConfirmed: something failed since the last flush, or is still held; it names the events.
        """
        self._check()
        await flushing.flush(self._opened.pump, within)

    def restart(self, shard: int) -> None:
        """Publish to a stopped shard again, behind the hole, under a new incarnation.

        Raises:
            ValueError: the shard is not stopped.
        """
        self._check()
        self._opened.pump.restart(shard, self._opened.new_incarnation())

    async def close(self, within: float | None = None) -> None:
        """Flush for at most `within` seconds (None: `close_timeout` of the options) and end. Idempotent.

        In a forked child it does nothing: the connection is the parent's.

        Raises:
            NotConfirmed: something failed since the last flush, or was still held and is given up.
        """
        if self._is_closed or os.getpid() != self._process:
            return
        self._is_closed = True
        self._room.turn_away(ProducerClosed("the producer was closed while this event waited for room"))
        await flushing.close(self._opened.pump, self._options.close_timeout if within is None else within)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except NotConfirmed as not_confirmed:
            if error is None:
                raise
            # Under Ctrl-C or an error of the application, that one is what ends the block.
            error.add_note(str(not_confirmed))

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise ProducerForked(FORKED)
        if asyncio.get_running_loop() is not self._loop:
            raise WrongLoop("a Producer is used from the event loop that opened it: in threads, open a SyncProducer")
        if self._is_closed:
            raise ProducerClosed("the producer is closed: open a new one")

    def _event(
        self, key: str, body: Body, headers: Mapping[str, HeaderValue] | None, content_type: str | None
    ) -> Event:
        self._check()
        return self._opened.events.event(key, body, headers, content_type)

    def _accept(self, event: Event) -> None:
        self._opened.pump.accept(event)

    async def _enter(self, event: Event) -> None:
        pump = self._opened.pump
        if pump.failure is not None:
            raise pump.failure
        if event.shard in pump.stopped:
            raise pump.stopped_error(event.shard)
        if self._options.when_full == "raise":
            raise self._room.full()
        await self._room.enter(event)


FORKED: Final = (
    "this producer belongs to the parent process: open one in the child, which gives it an incarnation of its own"
)


class Opening:
    """A producer about to be opened: await it, or enter it with `async with`."""

    def __init__(self, url: str, stream: Stream, name: str | None, options: Options, outside: Outside) -> None:
        self._arguments = url, stream, name, options, outside
        self._producer: Producer | None = None

    def __await__(self) -> Generator[object, None, Producer]:
        return self._open().__await__()

    async def __aenter__(self) -> Producer:
        self._producer = await self._open()
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            await self._producer.__aexit__(kind, error, trace)

    async def _open(self) -> Producer:
        url, stream, name, options, outside = self._arguments
        producer = Producer(options)
        producer._opened = await open_pump(url, stream, name, options, outside, producer._room.leave)
        return producer
