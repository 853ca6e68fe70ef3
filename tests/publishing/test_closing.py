"""The end of a producer: flushed, with a deadline, and with a word on what is not confirmed."""

from __future__ import annotations

import asyncio

import pytest

from lbg.publishing import NotConfirmed, Options, Producer, ProducerClosed
from tests.publishing import fakes
from tests.publishing.fakes import URL, FakeBroker, opened, raised, until


def test_close_flushes_and_ends() -> None:
    """Everything sent is confirmed, the session is closed, and a second close is nothing."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker)
        session = broker.sessions[0]
        await producer.send("1", b"x")
        await producer.close()
        await producer.close()
        assert session.is_closed
        for call in (producer.send("1", b"x"), producer.publish("1", b"x"), producer.flush()):
            await raised(call, ProducerClosed)

    fakes.run(story())
    assert broker.bodies(1) == [b"x"]


def test_a_flush_of_nothing_ends_at_once() -> None:
    """With nothing published, or nothing since the last one, there is nothing to wait for."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker)
        await producer.flush()
        await producer.flush()
        await producer.publish("1", b"x")
        await producer.flush()
        await producer.close()

    fakes.run(story())


def test_close_says_what_it_gave_up() -> None:
    """After the deadline close names what is not confirmed; who waits for a confirm, or for room, is told too."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> NotConfirmed:
        producer = await opened(broker, Options(max_events=2, close_timeout=0.001))
        await producer.send("1", b"x")
        publishing = asyncio.create_task(producer.publish("2", b"y"))
        waiting = asyncio.create_task(producer.send("3", b"z"))
        await until(lambda: producer.stats().in_flight == 2)
        error = await raised(producer.close(), NotConfirmed)
        assert "may be at the broker" in str(await raised(publishing, Exception))
        await raised(waiting, ProducerClosed)
        return error

    error = fakes.run(story())
    assert error.count == 2
    assert {(event.key, event.shard, event.is_uncertain) for event in error.events} == {("1", 1, True), ("2", 2, True)}


def test_an_error_in_the_block_is_not_hidden_by_what_is_unconfirmed() -> None:
    """The application's own error leaves the block, with a note on what was not confirmed."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        async with Producer.open(
            URL, "orders", options=Options(close_timeout=0.001), outside=fakes.outside(broker)
        ) as producer:
            await producer.send("1", b"x")
            raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fakes.run(story())
    assert "1 event is not confirmed" in caught.value.__notes__[0]


def test_ctrl_c_flushes_before_it_ends() -> None:
    """Cancelled as asyncio.run does on Ctrl-C, the block still has its events confirmed."""
    broker = FakeBroker()

    async def story() -> None:
        async with Producer.open(URL, "orders", outside=fakes.outside(broker)) as producer:
            await producer.send("1", b"x")
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        fakes.run(story())
    assert broker.bodies(1) == [b"x"]
