"""The producer on a broker in memory: what an application sees when all is well, and when the buffer is full."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from lbg.brokers import base
from lbg.core.wire import Identity
from lbg.publishing import (
    Backoff,
    NotConfirmed,
    Options,
    Outside,
    Producer,
    ProducerClosed,
    ProducerForked,
    WrongLoop,
)
from tests.publishing import fakes
from tests.publishing.fakes import QUICK, URL, FakeBroker, opened, raised, until


def test_an_event_carries_the_contract_on_the_wire() -> None:
    """Key, shard, identity, time and id are stamped; body, content type and foreign headers pass untouched."""
    broker = FakeBroker()

    async def story() -> Identity:
        async with await opened(broker) as producer:
            return await producer.publish("11", b"body", {"traceparent": "00-ab", "n": 3}, "text/plain")

    identity = fakes.run(story())
    (message,) = broker.log
    assert identity == Identity("shop", identity.incarnation, 3, 0) == message.identity
    assert (message.key, message.body, message.content_type) == ("11", b"body", "text/plain")
    assert message.message_id == f"shop:{identity.incarnation}:3:0"
    assert message.published_at_ms == 1_700_000_000_123
    assert (message.headers["traceparent"], message.headers["n"]) == ("00-ab", 3)


def test_calls_of_one_turn_keep_their_order() -> None:
    """Publishes that run at once are numbered, and accepted, in the order of the calls."""
    broker = FakeBroker()

    async def story() -> list[Identity]:
        async with await opened(broker) as producer:
            return await asyncio.gather(*(producer.publish(str(i % 3), b"%d" % i) for i in range(30)))

    identities = fakes.run(story())
    assert [(i.shard, i.sequence) for i in identities] == [(n % 3, n // 3) for n in range(30)]
    assert broker.bodies(1) == [b"%d" % i for i in range(1, 30, 3)]


def test_sends_leave_in_batches_and_several_are_in_flight() -> None:
    """Batches hold what one turn collected, up to `batch`; the next one does not wait for the answer."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker, Options(batch=10, max_in_flight=25))
        for i in range(40):
            await producer.send(str(i), b"x")
        await until(lambda: sum(broker.submits) == 25)
        assert max(broker.submits) == 10
        stats = producer.stats()
        assert (stats.accepted, stats.in_flight, stats.waiting, stats.confirmed) == (40, 25, 15, 0)
        broker.holds_answers = False
        broker.answer()
        await producer.close()
        assert producer.stats().confirmed == 40

    fakes.run(story())
    assert len(broker.log) == 40


def test_flush_waits_for_what_was_sent_before_it_and_not_for_more() -> None:
    """A flush ends while later events are still unconfirmed."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker)
        await producer.send("1", b"before")
        await until(lambda: len(broker.submits) == 1)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        assert not flushing.done()
        await producer.send("2", b"after")
        broker.answer()
        await flushing
        assert producer.stats().confirmed == 1
        broker.holds_answers = False
        broker.answer()
        await producer.close()

    fakes.run(story())


def test_several_flushes_end_in_their_order() -> None:
    """Each flush ends with its own events, also when an earlier one is cancelled."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker)
        flushes = []
        for key in ("1", "2", "3"):
            await producer.send(key, b"x")
            flushes.append(asyncio.create_task(producer.flush()))
            await asyncio.sleep(0)
        flushes[1].cancel()
        broker.holds_answers = False
        broker.answer()
        await asyncio.gather(flushes[0], flushes[2])
        await producer.close()

    fakes.run(story())


def test_a_flush_with_a_deadline_names_what_is_held() -> None:
    """After the deadline the held events are named with the reason, and are still published later."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> NotConfirmed:
        producer = await opened(broker)
        await producer.send("1", b"x")
        error = await raised(producer.flush(0.001), NotConfirmed)
        broker.holds_answers = False
        broker.answer()
        await producer.flush()
        await producer.close()
        return error

    error = fakes.run(story())
    assert (error.count, [event.key for event in error.events]) == (1, ["1"])
    assert re.fullmatch(r"1 event is not confirmed: after 0.001 s: no answer .* \(shop:\d+:1:0\)", str(error))


def test_a_cancelled_publish_is_published_all_the_same() -> None:
    """Cancelling gives up the confirm, not the event: its number is taken."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker)
        publishing = asyncio.create_task(producer.publish("1", b"a"))
        await until(lambda: bool(broker.submits))
        publishing.cancel()
        broker.holds_answers = False
        broker.answer()
        await producer.publish("1", b"b")
        await producer.close()

    fakes.run(story())
    assert broker.bodies(1) == [b"a", b"b"]


def test_a_second_life_has_a_higher_incarnation() -> None:
    """Each opening counts from 0 again under a higher incarnation, also when the clock stands still or goes back."""
    broker, clock = FakeBroker(), fakes.Clock()

    async def story() -> list[Identity]:
        lives = []
        for step in (0, 0, -5_000_000_000):
            clock.now += step
            producer = await Producer.open(URL, "orders", "shop-2", outside=fakes.outside(broker, clock))
            lives.append(await producer.publish("1", b"x"))
            await producer.close()
        return lives

    lives = fakes.run(story())
    assert [life.sequence for life in lives] == [0, 0, 0]
    assert lives[0].incarnation < lives[1].incarnation < lives[2].incarnation


def test_without_a_name_two_producers_have_two() -> None:
    """The default name is the host's with a random number."""
    broker = FakeBroker()

    async def story() -> tuple[str, str]:
        async with (
            Producer.open(URL, "orders", outside=fakes.outside(broker)) as first,
            Producer.open(URL, "orders", outside=Outside(adapter=broker)) as second,
        ):
            return first.name, second.name

    first, second = fakes.run(story())
    assert first != second


def test_a_forked_child_is_refused_and_leaves_the_parents_connection_alone() -> None:
    """In the child every use raises one line, and close does nothing; the parent goes on."""
    broker = FakeBroker()

    async def in_child(producer: Producer) -> bool:
        for call in (producer.send("1", b"c"), producer.publish("1", b"c"), producer.flush()):
            error = await raised(call, ProducerForked)
            if "open one in the child" not in str(error):
                return False
        await producer.close()
        return not broker.sessions[0].is_closed

    async def story() -> None:
        producer = await opened(broker)
        await producer.publish("1", b"a")
        child = os.fork()
        if child == 0:
            try:
                # The parent's loop runs in this thread: step the coroutine by hand.
                in_child(producer).send(None)
            except StopIteration as done:
                os._exit(0 if done.value else 1)
            finally:
                os._exit(2)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        await producer.publish("1", b"b")
        await producer.close()

    fakes.run(story())
    assert broker.bodies(1) == [b"a", b"b"]


def test_another_loop_is_refused() -> None:
    """From a thread with a loop of its own a Producer cannot be used."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker)
        await asyncio.to_thread(lambda: asyncio.run(raised(producer.send("1", b"x"), WrongLoop)))
        await producer.close()

    fakes.run(story())


def test_a_defect_of_the_adapter_fails_the_producer_and_hangs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """When the connection cannot be kept, what is held fails and the next call says why."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker)
        await producer.send("1", b"x")
        await until(lambda: bool(broker.submits))
        broker.defect = AssertionError("a defect")
        broker.drop(accepted=False)
        error = await raised(producer.flush(), NotConfirmed)
        assert "the producer failed: AssertionError" in str(error)
        await raised(producer.send("1", b"y"), ProducerClosed)
        await producer.close()

    fakes.run(story())
    assert broker.log == []


def test_options_are_quick_in_tests_and_bounded_in_general() -> None:
    """Every setting has bounds, and the error names the setting."""
    for field, value in [
        ("max_events", 0),
        ("max_bytes", 0),
        ("max_body", 0),
        ("batch", 0),
        ("max_in_flight", 0),
        ("close_timeout", -1.0),
        ("when_full", "drop"),
        ("reconnect", Backoff(0.0, 1.0)),
        ("retry", Backoff(2.0, 1.0)),
    ]:
        with pytest.raises(ValueError, match=f"^{field}: "):
            Options(**{field: value})  # type: ignore[arg-type]
    assert QUICK.reconnect.first < Options().reconnect.first


def test_any_session_will_do() -> None:
    """The fake is what the contract calls a session, an adapter and an admin."""
    broker: base.Adapter = FakeBroker()
    assert broker is not None
