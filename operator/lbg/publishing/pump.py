"""The pump: carries events from the buffer through the window to the broker, and what became of them back.

It owns the session, reconnects it, and drives `publish_window` on one event loop. It has no bound of its own and never
waits: the rooms in front of it bound what they let in. One task keeps the connection; events cost none, and those of
one turn of the loop leave together in batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lbg.brokers import base
from lbg.core.publish_line import Entry, Verdict
from lbg.core.publish_window import Confirm, Fail, Fate, PublishWindow, Stopped, Submit
from lbg.core.wire import Identity
from lbg.publishing import events
from lbg.publishing.connecting import Connected, Connector
from lbg.publishing.errors import (
    ContractMismatch,
    NotPublished,
    ProducerClosed,
    PublishError,
    ShardStopped,
    Unconfirmed,
)
from lbg.publishing.events import Event
from lbg.publishing.options import Options
from lbg.publishing.tally import Tally

CONNECT_TIMEOUT: Final = 30.0
"""Seconds for one attempt to connect; a broker that accepts and stays silent must not end the attempts."""

CLOSE_TIMEOUT: Final = 5.0
"""Seconds for a session to close in good order; after that it is left to the broker to notice."""

_VERDICTS: Final = {
    base.Outcome.ACCEPTED: Verdict.ACCEPTED,
    base.Outcome.FULL: Verdict.LATER,
    base.Outcome.BLOCKED: Verdict.LATER,
    base.Outcome.UNKNOWN: Verdict.UNKNOWN,
    base.Outcome.UNROUTABLE: Verdict.NEVER,
    base.Outcome.REFUSED: Verdict.NEVER,
}

_WHY: Final = {
    base.Outcome.UNROUTABLE: "the broker has no such shard: the stream was deleted, or its queues are not bound",
    base.Outcome.REFUSED: "the broker refuses it: check the publisher's permission and the size of the event",
}


@dataclass(frozen=True, slots=True)
class Stats:
    """What a producer did since it was opened."""

    accepted: int  # from the application
    confirmed: int
    failed: int
    resent: int  # submissions that were not the first of their event
    waiting: int  # to be sent, or to be sent again
    in_flight: int  # sent and not answered
    reconnects: int
    is_connected: bool
    trouble: str | None  # why the connection is away


@dataclass(frozen=True, slots=True)
class _Submitted:
    """A batch at the broker."""

    entries: tuple[Entry[Event], ...]
    answer: asyncio.Future[tuple[base.Outcome, ...]]


class Pump:
    """One producer's way to the broker. Everything on one event loop.

    Args:
        connector: opens sessions.
        incarnation: of this life.
        rng: for jitter.
        leave: called with (events, bytes) that left the buffer.
    """

    def __init__(
        self,
        connector: Connector,
        incarnation: int,
        options: Options,
        rng: random.Random,
        leave: Callable[[int, int], None],
    ) -> None:
        self._connector = connector
        self._options = options
        self._rng = rng
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._window: PublishWindow[Event] = PublishWindow(
            incarnation,
            max_in_flight=options.max_in_flight,
            window=options.max_in_flight,
            batch=options.batch,
            retry_delay=lambda attempt: options.retry.delay(attempt, rng),
        )
        contract = connector.agreed.contract
        self._addresses = [base.ToShard(contract.prefix, shard) for shard in range(contract.count)]
        self._session: base.Session | None = None
        self._publisher: base.PublisherLink | None = None
        self._submitted: dict[int, _Submitted] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._reconnects = 0
        self._trouble: str | None = None
        self.tally = Tally()
        self.stopped: dict[int, str] = {}  # shard and why; other threads may look
        self.failure: PublishError | None = None  # why the producer can never publish again

    # The application's side.

    def accept(self, event: Event) -> None:
        """Number an event and have it sent in the next turn of the loop.

        Raises:
            ShardStopped: an earlier event of its shard was refused for good.
            PublishError: the producer has failed for good.
        """
        if self.failure is not None:
            raise self.failure
        try:
            self._window.publish(event.shard, event)
        except Stopped as stopped:
            raise self.stopped_error(stopped.shard) from None
        self.tally.accept(event)
        self._schedule()

    def stopped_error(self, shard: int) -> ShardStopped:
        """Return the error of publishing to a stopped shard."""
        return ShardStopped(shard, self.stopped[shard])

    def restart(self, shard: int, incarnation: int) -> None:
        """Open a stopped shard under a new incarnation. Raises ValueError if it is not stopped."""
        self._window.restart(shard, incarnation)
        del self.stopped[shard]
        self._schedule()

    def stats(self) -> Stats:
        """Return what was done so far."""
        return Stats(
            accepted=self.tally.accepted,
            confirmed=self.tally.confirmed,
            failed=self.tally.failed,
            resent=self._window.resent,
            waiting=self._window.unsent if self.failure is None else 0,
            in_flight=self._window.in_flight,
            reconnects=self._reconnects,
            is_connected=self._window.is_connected,
            trouble=self._trouble,
        )

    def unconfirmed(self) -> list[Unconfirmed]:
        """Return what is held, in order per shard, each with the reason why it still is."""
        if self.failure is not None:
            return []  # all failed
        full = set(self._window.refused_now()) if self._window.is_connected else set()
        why = "no answer from the broker yet" if self._window.is_connected else f"the broker is away: {self._trouble}"
        return [
            self._unconfirmed(entry, "its queue is full" if entry.shard in full else why)
            for entry in self._window.held()
        ]

    # The connection.

    def start(self, connected: Connected) -> None:
        """Begin with an open session."""
        self._attach(connected)
        self._keeper = self._loop.create_task(self._keep(), name="connection of an lbg producer")
        self._keeper.add_done_callback(self._kept)

    async def stop(self, why: PublishError) -> None:
        """End: fail what is held, and close the session. Idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait({keeper})
        self._detach(None)
        self._give_up(why)
        session, self._session = self._session, None
        if session is not None:
            await _close(session)

    async def _keep(self) -> None:
        while self._session is not None:
            session = self._session
            await asyncio.wait({session.lost})
            self._session = None
            self._detach(session.lost.result())
            await _close(session)
            connected = await self._reconnect()
            if connected is not None:
                self._reconnects += 1
                self._attach(connected)

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            # A defect in us or in the adapter. Without the keeper nothing would ever be sent again.
            self._detach(None)
            self._give_up(ProducerClosed(f"the producer failed: {type(error).__name__}: {error}"))
            self._loop.call_exception_handler({"message": "connection of an lbg producer failed", "exception": error})

    async def _reconnect(self) -> Connected | None:
        attempt = 0
        while True:
            await asyncio.sleep(self._options.reconnect.delay(attempt, self._rng))
            attempt += 1
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    return await self._connector.reopen()
            except ContractMismatch as error:
                self._give_up(error)
                return None
            except (base.BrokerError, PublishError) as error:
                self._trouble = str(error)
            except TimeoutError:
                self._trouble = f"it accepts connections and does not answer within {CONNECT_TIMEOUT:.0f} s"

    def _attach(self, connected: Connected) -> None:
        self._session = connected.session
        self._publisher = connected.session.publisher()
        self._trouble = None
        self._window.connected(
            ordered_rejects=connected.session.abilities.ordered_rejects, limited=connected.is_limited
        )
        self._schedule()

    def _detach(self, reason: str | None) -> None:
        """Forget the publisher link. Answers that came with the loss count: each saves a repetition."""
        for number, submitted in list(self._submitted.items()):
            if submitted.answer.done():
                self._answered(number, submitted.answer)
        self._submitted.clear()
        self._publisher = None
        self._trouble = reason
        self._window.lost()
        self._set_timer()

    def _give_up(self, why: PublishError) -> None:
        if self.failure is not None:
            return
        # Set before room is made: whoever waits for it would otherwise be let in to wait for ever.
        self.failure = why
        for entry in self._window.held():
            self._fail(entry, str(why))

    # The turn of the loop.

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        session, publisher = self._session, self._publisher
        if session is None or publisher is None or session.lost.done():
            return  # the keeper is on its way
        for action in self._window.poll(self._loop.time()):
            if isinstance(action, Submit):
                self._submit(publisher, action)
            else:
                publisher.resume(self._addresses[action.shard])
        self._set_timer()

    def _submit(self, publisher: base.PublisherLink, action: Submit[Event]) -> None:
        name, addresses = self._connector.name, self._addresses
        batch = [events.outgoing(name, addresses[entry.shard], entry) for entry in action.entries]
        answer = publisher.submit(batch)
        self._submitted[action.number] = _Submitted(action.entries, answer)
        answer.add_done_callback(functools.partial(self._answered, action.number))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakes_at = self._window.wakes_at
        if wakes_at is not None:
            self._timer = self._loop.call_at(wakes_at, self._schedule)

    def _answered(self, number: int, answer: asyncio.Future[tuple[base.Outcome, ...]]) -> None:
        submitted = self._submitted.pop(number, None)
        if submitted is None:
            return  # of a connection that is gone, or taken by `_detach` already
        verdicts = _judge(submitted.entries, answer)
        for action in self._window.answered(number, verdicts, self._loop.time()):
            if isinstance(action, Confirm):
                self._confirm(action.entries)
            else:
                self._refuse(action)
        if self._window.can_send or self._window.wakes_at is not None:
            self._schedule()

    # What became of events.

    def _confirm(self, entries: tuple[Entry[Event], ...]) -> None:
        size = 0
        for entry in entries:
            event = entry.event
            size += event.size
            if event.waiter is not None and not event.waiter.done():
                event.waiter.set_result(self._identity(entry))
        self.tally.confirm(entries)
        self._leave(len(entries), size)

    def _refuse(self, action: Fail[Event]) -> None:
        why = _why(action.cause.event)
        if action.fate is Fate.REFUSED:
            self.stopped[action.entry.shard] = f"event {self._identity(action.cause).message_id}: {why}"
        else:
            why = f"it stood behind event {self._identity(action.cause).message_id}, which failed: {why}"
        self._fail(action.entry, why)

    def _fail(self, entry: Entry[Event], why: str) -> None:
        event, failure = entry.event, self._unconfirmed(entry, why)
        self.tally.fail(event)
        self._tell(event, NotPublished(failure), failure)

    def reject(self, event: Event, error: PublishError) -> None:
        """Fail an event that `accept` refused, where its caller may have gone on meanwhile."""
        self.tally.reject()
        self._tell(event, error, Unconfirmed(event.key, event.shard, None, str(error), is_uncertain=False))

    def _tell(self, event: Event, error: PublishError, failure: Unconfirmed) -> None:
        # Who waits for the event is told; otherwise it is for the next flush to say.
        if event.waiter is not None and not event.waiter.done():
            event.waiter.set_exception(error)
        else:
            self.tally.note(failure)
        self._leave(1, event.size)

    def _identity(self, entry: Entry[Event]) -> Identity:
        return events.identity_of(self._connector.name, entry)

    def _unconfirmed(self, entry: Entry[Event], why: str) -> Unconfirmed:
        return Unconfirmed(entry.event.key, entry.shard, self._identity(entry), why, entry.is_uncertain)


def _judge(entries: Sequence[Entry[Event]], answer: asyncio.Future[tuple[base.Outcome, ...]]) -> list[Verdict]:
    # An answer that cannot be read is no answer; the contract of `submit` knows none, and order must not hang on it.
    if answer.cancelled() or answer.exception() is not None or len(answer.result()) != len(entries):
        return [Verdict.UNKNOWN] * len(entries)
    outcomes = answer.result()
    verdicts = [_VERDICTS[outcome] for outcome in outcomes]
    if Verdict.NEVER in verdicts:
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.event.outcome = outcome
    return verdicts


def _why(event: Event) -> str:
    return _WHY.get(event.outcome, "refused") if event.outcome is not None else "refused"


async def _close(session: base.Session) -> None:
    with contextlib.suppress(base.BrokerError, TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await session.close()
