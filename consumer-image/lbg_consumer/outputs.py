"""Publishing from inside a consumer: output records and dead letters, confirmed before the event is acknowledged."""

from __future__ import annotations

import asyncio

from lbg.brokers import base


class NotAccepted(Exception):
    """The broker did not take a message; `outcome` says why."""

    def __init__(self, outcome: base.Outcome) -> None:
        super().__init__(f"the broker did not take the message: {outcome}")
        self.outcome = outcome


class Writer:
    """Collects what one turn of the event loop writes into one batch; confirms come back per message."""

    def __init__(self, publisher: base.PublisherLink) -> None:
        self._publisher = publisher
        self._batch: list[tuple[base.Outgoing, asyncio.Future[None]]] = []
        self._loop = asyncio.get_running_loop()

    def write(self, outgoing: base.Outgoing) -> asyncio.Future[None]:
        """Send one message; the future ends when it is durable.

        The future raises NotAccepted: the broker refused it, or the connection was lost before it answered.
        """
        if not self._batch:
            self._loop.call_soon(self._flush)
        done: asyncio.Future[None] = self._loop.create_future()
        self._batch.append((outgoing, done))
        return done

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        answers = self._publisher.submit([outgoing for outgoing, _ in batch])
        answers.add_done_callback(lambda future: self._answer(batch, future))

    def _answer(
        self,
        batch: list[tuple[base.Outgoing, asyncio.Future[None]]],
        answers: asyncio.Future[tuple[base.Outcome, ...]],
    ) -> None:
        if answers.cancelled() or answers.exception() is not None:
            outcomes: tuple[base.Outcome, ...] = (base.Outcome.UNKNOWN,) * len(batch)
        else:
            outcomes = answers.result()
        for (outgoing, done), outcome in zip(batch, outcomes, strict=True):
            if outcome in (base.Outcome.FULL, base.Outcome.BLOCKED):
                # Outputs carry no sequence that a hole could break; the caller tries this message again by itself.
                self._publisher.resume(outgoing.to)
            if done.cancelled():
                continue
            if outcome is base.Outcome.ACCEPTED:
                done.set_result(None)
            else:
                done.set_exception(NotAccepted(outcome))
