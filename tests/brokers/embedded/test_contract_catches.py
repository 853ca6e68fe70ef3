"""The contract suite against adapters with a planted fault each: a suite that passes them would be worth nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from lbg.brokers import base
from lbg.brokers.base import HandoverAbility
from lbg.brokers.embedded.client import EmbeddedAdapter, EmbeddedAdmin, EmbeddedSession
from lbg.brokers.embedded.links import EmbeddedLink, EmbeddedPublisher
from lbg.core.wire import Message
from lbg.testing import contract
from lbg.testing.contract import scene

if TYPE_CHECKING:
    from tests.brokers.embedded.conftest import BrokerOf

Faulty: TypeAlias = type[EmbeddedSession] | type[EmbeddedAdmin]


class Everything(
    contract.BrokerContract,
    contract.CooperativeHandover,
    contract.OrderedRejects,
    contract.Outputs,
    contract.AtomicAck,
):
    """The suite, without a name that pytest would collect."""


class Through:
    """Stands before a listener and changes what passes."""

    def __init__(self, listener: base.LinkListener) -> None:
        self.listener = listener

    def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
        self.listener.on_deliveries(deliveries)

    def on_lost(self, reason: str) -> None:
        self.listener.on_lost(reason)


class ForgetsMarks(EmbeddedSession):
    """Calls every delivery a first one."""

    class _Listener(Through):
        def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
            super().on_deliveries([replace(delivery, redelivered=False) for delivery in deliveries])

    async def bind(self, *args: Any, listener: base.LinkListener, **options: Any) -> EmbeddedLink:
        return await super().bind(*args, listener=self._Listener(listener), **options)


class ReversesBatches(ForgetsMarks):
    """Passes deliveries on in the wrong order."""

    class _Listener(Through):
        def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
            super().on_deliveries(list(reversed(deliveries)))


class ConfusesTypes(ForgetsMarks):
    """Turns booleans in headers into integers."""

    class _Listener(Through):
        def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
            super().on_deliveries([replace(d, message=self.confused(d.message)) for d in deliveries])

        def confused(self, message: Message) -> Message:
            headers = {n: int(v) if isinstance(v, bool) else v for n, v in message.headers.items()}
            return replace(message, headers=headers)


class HidesLoss(ForgetsMarks):
    """Never says that a link is lost."""

    class _Listener(Through):
        def on_lost(self, reason: str) -> None:
            pass


class WidensWindows(EmbeddedSession):
    """Lets one more delivery through than was asked for."""

    async def bind(self, *args: Any, window: int, **options: Any) -> EmbeddedLink:
        return await super().bind(*args, window=window + 1, **options)


class AcknowledgesNothing(EmbeddedSession):
    """Keeps acknowledgements to itself."""

    def _send_acks(self) -> None:
        for link in self._acking:
            link._acks.clear()
        self._acking.clear()


class ConfirmsUnsent(EmbeddedSession):
    """Says ACCEPTED for what it has not sent."""

    class _Publisher(EmbeddedPublisher):
        def submit(self, batch: Sequence[base.Outgoing]) -> asyncio.Future[tuple[base.Outcome, ...]]:
            future = asyncio.get_running_loop().create_future()
            future.set_result((base.Outcome.ACCEPTED,) * len(batch))
            return future

    def publisher(self) -> EmbeddedPublisher:
        return self._Publisher(self._next_number(), self._submissions)


class ForgetsBlocks(EmbeddedSession):
    """Resumes by itself after a refusal."""

    class _Publisher(EmbeddedPublisher):
        def submit(self, batch: Sequence[base.Outgoing]) -> asyncio.Future[tuple[base.Outcome, ...]]:
            for outgoing in batch:
                self.resume(outgoing.to)
            return super().submit(batch)

    def publisher(self) -> EmbeddedPublisher:
        return self._Publisher(self._next_number(), self._submissions)


class SaysNothingIsMissing(EmbeddedAdmin):
    """Turns an unknown stream into one without queues."""

    async def observe(self, prefix: str) -> tuple[base.QueueState, ...]:
        try:
            return await super().observe(prefix)
        except base.Missing:
            return ()


class TakesOver(EmbeddedAdmin):
    """Declares as whoever owns the stream."""

    async def declare(self, topology: base.Topology) -> None:
        stored = await self.find(topology.contract.prefix)
        await super().declare(replace(topology, owner=stored.owner) if stored else topology)


@pytest.mark.parametrize(
    ("faulty", "name"),
    [
        (ForgetsMarks, "test_a_released_link_gives_back_in_order"),
        (ForgetsMarks, "test_a_standby_takes_over_after_a_crash"),
        (ReversesBatches, "test_deliveries_come_in_queue_order_with_growing_tags"),
        (HidesLoss, "test_a_lost_connection_is_reported_once_for_each_link"),
        (WidensWindows, "test_the_window_bounds_what_is_unacknowledged"),
        (AcknowledgesNothing, "test_acknowledged_messages_are_gone_from_the_broker"),
        (ConfirmsUnsent, "test_an_accepted_message_is_in_its_queue"),
        (ForgetsBlocks, "test_nothing_overtakes_a_refused_message"),
        (SaysNothingIsMissing, "test_a_missing_stream_has_no_figures"),
        (TakesOver, "test_a_name_in_use_is_refused_and_its_owner_named"),
    ],
)
def test_a_planted_fault_is_found(
    broker_of: BrokerOf, monkeypatch: pytest.MonkeyPatch, faulty: Faulty, name: str
) -> None:
    """Fails the sentence of the contract that the adapter breaks, and passes it without the fault."""
    check(broker_of, monkeypatch, faulty, name)


def test_a_changed_header_type_is_found(broker_of: BrokerOf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tells a header `true` from a header 1."""
    name = "test_a_message_passes_through_untouched"
    check(broker_of, monkeypatch, ConfusesTypes, name, label="headers of every kind")


def check(broker_of: BrokerOf, monkeypatch: pytest.MonkeyPatch, faulty: Faulty, name: str, **arguments: str) -> None:
    broker = broker_of[HandoverAbility.COOPERATIVE]
    sentence = getattr(Everything(), name)
    sentence(broker=broker, **arguments)

    class FaultyAdapter(EmbeddedAdapter):
        async def open_admin(self, url: str) -> EmbeddedAdmin:
            admin = (faulty if issubclass(faulty, EmbeddedAdmin) else EmbeddedAdmin)(url, self._clock)
            await admin.open()
            return admin

        async def open_session(self, url: str, *, name: str) -> EmbeddedSession:
            session = (faulty if issubclass(faulty, EmbeddedSession) else EmbeddedSession)(url, self._clock)
            await session.open(name)
            return session

    monkeypatch.setattr(broker, "adapter", FaultyAdapter())
    monkeypatch.setattr(scene, "HANG_LIMIT", 3.0)  # a fault may show as a wait without end
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        sentence(broker=broker, **arguments)
