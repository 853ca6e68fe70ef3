"""The bound of the buffer: who waits, in which order, and who is refused."""

from __future__ import annotations

import asyncio

import pytest

from lbg.publishing import BufferFull, Options
from tests.publishing import fakes
from tests.publishing.fakes import FakeBroker, opened, raised, until


def test_a_full_buffer_makes_callers_wait_in_their_order() -> None:
    """Beyond the bound a call waits for room; a cancelled one leaves no trace, and the rest keep their order."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker, Options(max_events=2))
        sends = [asyncio.create_task(producer.send("1", b"%d" % i)) for i in range(6)]
        await until(lambda: sum(task.done() for task in sends) == 2)
        sends[3].cancel()
        broker.holds_answers = False
        broker.answer()
        await asyncio.wait(sends)
        await producer.close()

    fakes.run(story())
    assert broker.bodies(1) == [b"0", b"1", b"2", b"4", b"5"]
    assert broker.ids(1) == [0, 1, 2, 3, 4]


def test_a_later_caller_does_not_slip_past_those_who_wait() -> None:
    """An event published after room was made, and before the waiting callers ran again, stays behind them."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker, Options(max_events=1))
        await producer.send("1", b"a")
        waiting = [asyncio.create_task(producer.send("1", body)) for body in (b"b", b"c")]
        await until(lambda: len(broker.submits) == 1)
        broker.holds_answers = False
        broker.answer()
        await producer.send("1", b"d")
        await asyncio.gather(*waiting)
        await producer.close()

    fakes.run(story())
    assert broker.bodies(1) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("options", "bodies"),
    [(Options(max_events=2, when_full="raise"), [b"", b""]), (Options(max_bytes=10, when_full="raise"), [b"12345678"])],
    ids=["events", "bytes"],
)
def test_a_full_buffer_raises_if_told_so(options: Options, bodies: list[bytes]) -> None:
    """Under when_full="raise" the event that does not fit is refused, and not numbered."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker, options)
        for body in bodies:
            await producer.send("1", body)
        for call in (producer.send("1", b"x" * 5), producer.publish("1", b"x" * 5)):
            error = await raised(call, BufferFull)
            assert "buffer is full" in str(error)
        broker.holds_answers = False
        await until(lambda: bool(broker.submits))
        broker.answer()
        await producer.flush()
        assert (await producer.publish("1", b"fits")).sequence == len(bodies)
        await producer.close()

    fakes.run(story())


def test_a_send_loop_does_not_starve_the_connection() -> None:
    """Sends that never wait for room give the loop a turn, so that answers come in between."""
    broker = FakeBroker()

    async def story() -> int:
        producer = await opened(broker, Options(batch=10, max_events=1_000_000))
        for i in range(1_000):
            await producer.send(str(i), b"x")
        confirmed = producer.stats().confirmed
        await producer.close()
        return confirmed

    assert fakes.run(story()) > 900
