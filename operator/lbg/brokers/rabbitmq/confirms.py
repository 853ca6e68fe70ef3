"""Publishing on one channel with confirms: which message the broker answered, and how.

Every message is persistent and `mandatory`: without that, a message that no queue takes is confirmed and lost. The
broker returns an unroutable message before it confirms it, so that the pair means UNROUTABLE.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

import pika
from pika import exceptions, spec

from lbg.brokers import base
from lbg.brokers.base import Outcome
from lbg.brokers.rabbitmq import connection, messages
from lbg.core.wire import Message

Done: TypeAlias = Callable[[Outcome], None]


class Confirms:
    """The messages in flight on one channel, by the number that the broker counts."""

    def __init__(self, channel: connection.Channel) -> None:
        self.channel = channel
        self._last = 0
        self._open: dict[int, tuple[str, Done]] = {}
        self._returned: set[int] = set()

    async def start(self) -> None:
        """Ask for confirms. Raises as `Channel.call`."""
        raw = self.channel.raw
        raw.add_on_return_callback(self._on_returned)
        await self.channel.call(raw.confirm_delivery, ack_nack_callback=self._on_answer)
        self.channel.ended.add_done_callback(lambda ended: self._on_ended(ended.result()))

    def publish(self, exchange: str, key: str, message: Message, done: Done) -> None:
        """Send a message; `done` is called once, from the event loop."""
        if not self.channel.raw.is_open:
            done(Outcome.UNKNOWN)
            return
        self._last += 1
        self._open[self._last] = (exchange, done)
        properties = messages.to_properties(message, self._last)
        try:
            self.channel.raw.basic_publish(exchange, key, message.body, properties, mandatory=True)
        except (exceptions.UnsupportedAMQPFieldException, exceptions.ShortStringTooLong, struct.error):
            # Nothing was sent: the protocol has no form for a header, or a name is too long. The broker did not count.
            del self._open[self._last]
            self._last -= 1
            done(Outcome.REFUSED)

    def _on_returned(self, _: object, __: object, properties: pika.BasicProperties, ___: bytes) -> None:
        self._returned.add(int(properties.correlation_id or 0))

    def _on_answer(self, frame: pika.frame.Method[spec.Basic.Ack]) -> None:
        method = frame.method
        outcome = Outcome.ACCEPTED if isinstance(method, spec.Basic.Ack) else Outcome.FULL
        if not method.multiple:
            self._settle(method.delivery_tag, outcome)
            return
        # The oldest come first in the table, so that this looks at those that are answered and one more.
        answered = []
        for number in self._open:
            if number > method.delivery_tag > 0:
                break
            answered.append(number)
        for number in answered:
            self._settle(number, outcome)

    def _settle(self, number: int, outcome: Outcome) -> None:
        if number in self._returned:
            self._returned.discard(number)
            outcome = Outcome.UNROUTABLE
        _, done = self._open.pop(number, ("", None))
        if done is not None:
            done(outcome)

    def _on_ended(self, reason: BaseException) -> None:
        waiting, self._open = self._open, {}
        refused = connection.describe(reason) if isinstance(connection.translated(reason), base.Refused) else ""
        for exchange, done in waiting.values():
            # The broker names the exchange. What else was in flight may or may not have been accepted.
            done(Outcome.REFUSED if refused and f"'{exchange}'" in refused else Outcome.UNKNOWN)
