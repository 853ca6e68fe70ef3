"""A pipelined publisher: a channel of its own, opened when it is first needed.

Order is that of submission: a batch is sent at once unless something before it still waits, for the channel to open or
for a first look at a stream. When the broker closes the channel (a deleted exchange, a missing permission), what was in
flight is UNKNOWN and the next batch opens a new one; only a lost connection is final.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Sequence

from lbg.brokers import base
from lbg.brokers.base import Outcome
from lbg.brokers.rabbitmq.confirms import Confirms
from lbg.brokers.rabbitmq.connection import Connection
from lbg.brokers.rabbitmq.routes import Routes


class Submission:
    """One batch, and the answers to it so far."""

    def __init__(self, batch: Sequence[base.Outgoing]) -> None:
        self.batch = tuple(batch)
        self.future: asyncio.Future[tuple[Outcome, ...]] = asyncio.get_running_loop().create_future()
        self._outcomes = [Outcome.UNKNOWN] * len(self.batch)
        self._missing = len(self.batch)
        self._finish_if_whole()

    def settle(self, at: int, outcome: Outcome) -> None:
        """Take one outcome; each position settles once."""
        self._outcomes[at] = outcome
        self._missing -= 1
        self._finish_if_whole()

    def give_up(self) -> None:
        """Answer UNKNOWN for a batch that was never sent."""
        self._missing = 0
        self._finish_if_whole()

    def _finish_if_whole(self) -> None:
        if not self._missing and not self.future.done():  # done: the caller has cancelled its wait
            self.future.set_result(tuple(self._outcomes))


class RabbitPublisher:
    """See `base.PublisherLink`."""

    def __init__(
        self, connection: Connection, routes: Routes, opened: set[asyncio.Future[tuple[Outcome, ...]]]
    ) -> None:
        self._connection = connection
        self._routes = routes
        self._opened = opened
        self._confirms: Confirms | None = None
        self._waiting: deque[Submission] = deque()
        self._pump: asyncio.Task[None] | None = None

    def submit(self, batch: Sequence[base.Outgoing]) -> asyncio.Future[tuple[Outcome, ...]]:
        """Send a batch; see `base.PublisherLink.submit`."""
        submission = Submission(batch)
        self._opened.add(submission.future)
        submission.future.add_done_callback(self._opened.discard)
        if not submission.batch:
            pass  # answered already
        elif self._connection.closing or self._connection.lost_because is not None:
            submission.give_up()
        elif self._pump is None and self._is_ready(submission):
            self._send(submission)
        else:
            self._waiting.append(submission)
            if self._pump is None:
                self._pump = asyncio.ensure_future(self._send_waiting())
        return submission.future

    def resume(self, address: base.Address) -> None:
        """Do nothing: a refusal blocks nothing here."""

    def _is_ready(self, submission: Submission) -> bool:
        return (
            self._confirms is not None
            and self._confirms.channel.raw.is_open
            and all(self._routes.known(outgoing.to) is not None for outgoing in submission.batch)
        )

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                await self._prepare(self._waiting[0])
                self._send(self._waiting.popleft())
        except base.BrokerError:
            pass  # the outcomes say it
        finally:
            self._pump = None
            while self._waiting:
                self._waiting.popleft().give_up()

    async def _prepare(self, submission: Submission) -> None:
        for address in dict.fromkeys(outgoing.to for outgoing in submission.batch):
            if self._routes.known(address) is None:
                await self._routes.learn(address)
        if self._confirms is None or not self._confirms.channel.raw.is_open:
            self._confirms = None
            confirms = Confirms(await self._connection.channel())
            await confirms.start()
            confirms.channel.ended.add_done_callback(lambda _: self._routes.forget())
            self._confirms = confirms

    def _send(self, submission: Submission) -> None:
        assert self._confirms is not None
        for at, outgoing in enumerate(submission.batch):
            route = self._routes.known(outgoing.to)
            done = functools.partial(submission.settle, at)
            if route is None:
                done(Outcome.UNROUTABLE)
            else:
                self._confirms.publish(*route, outgoing.message, done)
