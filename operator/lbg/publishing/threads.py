"""The producer for threads and plain scripts: the pump of a `Producer`, on an event loop in a thread of its own.

Callers check and hash their events themselves and put them into an inbox under one lock; the loop takes them out in
that order. So the order of calls is kept, per thread and for every key. The loop is woken once per burst of events.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, Self

from lbg.core.contract import Contract
from lbg.core.wire import HeaderValue, Identity
from lbg.publishing import flushing
from lbg.publishing.contracts import Stream
from lbg.publishing.errors import NotConfirmed, ProducerClosed, ProducerForked, PublishError, ShardStopped
from lbg.publishing.events import Body, Event
from lbg.publishing.opening import Opened, Outside, open_pump
from lbg.publishing.options import Options
from lbg.publishing.producer import FORKED
from lbg.publishing.pump import Stats
from lbg.publishing.replies import Reply
from lbg.publishing.rooms import ThreadRoom

_TURN: Final = 1_000
"""Items taken from the inbox in one turn of the loop, so that a burst does not keep the connection waiting."""

_log = logging.getLogger("lbg.publishing")


class SyncProducer:
    """Publishes to one stream from any thread of one process. `SyncProducer.open` makes one.

    Events of one shard are at the broker in the order in which `publish` and `send` were called, as far as calls of
    different threads have an order. A process that ends without `close` flushes at exit, for `close_timeout` seconds.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._inbox: deque[Event] = deque()
        self._room = ThreadRoom(options.max_events, options.max_bytes, self._inbox.append)
        self._process = os.getpid()
        self._is_woken = False
        self._calls: set[asyncio.Task[None]] = set()  # held, because a loop holds its tasks weakly
        self._closing = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread: threading.Thread
        self._opened: Opened

    @staticmethod
    def open(
        url: str,
        stream: Stream,
        name: str | None = None,
        *,
        options: Options | None = None,
        outside: Outside | None = None,
    ) -> SyncProducer:
        """Connect; arguments and errors as `Producer.open`."""
        producer = SyncProducer(options or Options())
        producer._start(url, stream, name, outside or Outside())
        return producer

    @property
    def contract(self) -> Contract:
        """Return the contract of the stream."""
        return self._opened.contract

    @property
    def name(self) -> str:
        """Return the producer's name, as events carry it."""
        return self._opened.name

    def stats(self) -> Stats:
        """Return what was done since the producer was opened; events still in the inbox are not counted."""
        return self._opened.pump.stats()

    def publish(
        self,
        key: str,
        body: Body,
        headers: Mapping[str, HeaderValue] | None = None,
        content_type: str | None = None,
        *,
        within: float | None = None,
    ) -> Identity:
        """Publish an event and wait until the broker has confirmed it; return its identity.

        Raises:
            TimeoutError: no confirm within `within` seconds; the event stays in the buffer and is published later.
            PublishError: as `Producer.publish`.
        """
        event = self._event(key, body, headers, content_type)
        waiter: Reply[Identity] = Reply(self._thread.is_alive)
        event.waiter = waiter
        self._put(event)
        try:
            return waiter.result(within)
        except TimeoutError:
            raise TimeoutError(f"no confirm within {within:g} s: the event stays in the buffer") from None
        except ConnectionAbortedError:
            raise ProducerClosed(_ENDED) from None

    def send(
        self,
        key: str,
        body: Body,
        headers: Mapping[str, HeaderValue] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Put an event into the buffer, waiting while it is full; `flush` tells what became of it.

        Raises as `Producer.send`. Of several threads, the one that sends behind a refused event may learn of it only
        from `flush`.
        """
        self._put(self._event(key, body, headers, content_type))

    def flush(self, within: float | None = None) -> None:
        """Wait until everything published before this call is confirmed; raises as `Producer.flush`."""
        self._check()
        self._call(lambda: self._flush(within))

    def restart(self, shard: int) -> None:
        """Publish to a stopped shard again, as `Producer.restart`. Events sent before this call stay failed."""
        self._check()
        self._call(lambda: self._restart(shard))

    def close(self, within: float | None = None) -> None:
        """Flush for at most `within` seconds and end the thread; as `Producer.close`. Idempotent."""
        if os.getpid() != self._process:
            return
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            atexit.unregister(self._close_at_exit)
            self._room.turn_away(ProducerClosed("the producer is closed: open a new one"))
            try:
                most = self._options.close_timeout if within is None else within
                self._call(lambda: self._flush_and_end(most))
            finally:
                self._loop.call_soon_threadsafe(self._stopped.set)
                self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except NotConfirmed as not_confirmed:
            if error is None:
                raise
            # Under Ctrl-C or an error of the application, that one is what ends the block.
            error.add_note(str(not_confirmed))

    # In the caller's thread.

    def _start(self, url: str, stream: Stream, name: str | None, outside: Outside) -> None:
        opening = open_pump(url, stream, name, self._options, outside, self._room.leave)
        # A daemon: a script that forgets `close` must end; what it sent is flushed at exit.
        self._thread = threading.Thread(target=lambda: self._serve(opening, ready), name="lbg-producer", daemon=True)
        ready: Reply[Opened] = Reply(self._thread.is_alive)
        self._thread.start()
        try:
            self._opened = ready.result()
        except Exception:
            self._thread.join()
            raise
        except BaseException:
            # Ctrl-C while connecting: whatever comes of it then ends at once.
            with contextlib.suppress(RuntimeError):  # the loop is closed: it could not connect
                self._loop.call_soon_threadsafe(self._stopped.set)
            raise
        atexit.register(self._close_at_exit)

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise ProducerForked(FORKED)
        if self._is_closed:
            raise ProducerClosed("the producer is closed: open a new one")

    def _event(
        self, key: str, body: Body, headers: Mapping[str, HeaderValue] | None, content_type: str | None
    ) -> Event:
        self._check()
        return self._opened.events.event(key, body, headers, content_type)

    def _put(self, event: Event) -> None:
        pump = self._opened.pump
        if pump.failure is not None:
            raise pump.failure
        if (why := pump.stopped.get(event.shard)) is not None:
            raise ShardStopped(event.shard, why)
        try:
            self._room.enter(event, wait=self._options.when_full == "wait")
        finally:
            # Also when Ctrl-C strikes: the event may be in by then.
            self._wake()

    def _wake(self) -> None:
        if self._is_woken:
            return
        try:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._drain)
        except BaseException:
            # Ctrl-C: with the flag set and the call not made, nobody would wake the loop again.
            self._is_woken = False
            raise

    def _call(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do something on the loop, and wait for it."""
        reply: Reply[None] = Reply(self._thread.is_alive)

        async def run() -> None:
            try:
                await act()
            except BaseException as error:
                reply.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                reply.set_result(None)

        def start() -> None:
            task = self._loop.create_task(run())
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

        try:
            self._loop.call_soon_threadsafe(start)
        except RuntimeError:  # the loop is closed
            raise ProducerClosed(_ENDED) from None
        try:
            reply.result()
        except (ConnectionAbortedError, asyncio.CancelledError):  # it ended meanwhile
            raise ProducerClosed(_ENDED) from None

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except PublishError as error:
            _log.error("producer %s: %s", self._opened.name, error)

    # In the loop's thread.

    def _serve(self, opening: Coroutine[Any, Any, Opened], ready: Reply[Opened]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._main(opening, ready))

    async def _main(self, opening: Coroutine[Any, Any, Opened], ready: Reply[Opened]) -> None:
        try:
            opened = await opening
        except BaseException as error:
            ready.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        ready.set_result(opened)
        await self._stopped.wait()
        await opened.pump.stop(ProducerClosed(_ENDED))

    def _drain(self, most: int = _TURN) -> None:
        # Before taking: what is put in from here on wakes us again.
        self._is_woken = False
        inbox, pump = self._inbox, self._opened.pump
        while inbox:
            if not most:
                self._is_woken = True
                self._loop.call_soon(self._drain)
                return
            most -= 1
            event = inbox.popleft()
            try:
                pump.accept(event)
            except PublishError as error:
                pump.reject(event, error)

    async def _flush(self, within: float | None) -> None:
        self._drain(len(self._inbox))
        await flushing.flush(self._opened.pump, within)

    async def _flush_and_end(self, within: float) -> None:
        self._drain(len(self._inbox))
        await flushing.close(self._opened.pump, within)

    async def _restart(self, shard: int) -> None:
        # First what was sent before: a restart must not revive it.
        self._drain(len(self._inbox))
        self._opened.pump.restart(shard, self._opened.new_incarnation())


_ENDED: Final = "the producer was closed meanwhile: open a new one"
