"""Publishing rows: order, pace, progress, and what happens when a row, the source or the broker fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.brokers.base import Outcome
from lbg.publishing import InvalidOption, NotConfirmed, ShardStopped
from lbg.publishing.feeding import Pace, Progress, following, publish_rows, steady
from lbg.publishing.reading import ReadAhead
from lbg.publishing.rows import Row, RowRefused
from tests.publishing import fakes
from tests.publishing.fakes import FakeBroker, opened, raised, until


def made(count: int) -> Iterator[Row]:
    for i in range(count):
        yield Row("f.csv", i + 2, 10 * (i + 1), str(i % 3), b"%d" % i)


def test_rows_are_published_in_their_order_and_confirmed() -> None:
    """Every row is confirmed on return; the body is marked as JSON."""
    broker = FakeBroker()

    async def story() -> Progress:
        async with await opened(broker) as producer:
            await producer.publish("7", b"something else")
            return await publish_rows(producer, made(5_000))

    progress = fakes.run(story())
    assert (progress.rows, progress.confirmed, progress.offset, progress.is_done) == (5_000, 5_000, 50_000, True)
    for shard in range(3):
        assert broker.bodies(shard) == [b"%d" % i for i in range(shard, 5_000, 3)]
    assert {message.content_type for message in broker.log[1:]} == {"application/json"}


def test_progress_is_told_while_it_goes_and_at_the_end() -> None:
    """The callback sees growing numbers, the trouble of the broker, and the end once."""
    broker = FakeBroker(holds_answers=True)
    told: list[Progress] = []

    async def story() -> None:
        producer = await opened(broker)
        publishing = asyncio.create_task(publish_rows(producer, made(300), progress=told.append, every=0.001))
        await until(lambda: bool(told) and told[-1].rows == 300)
        assert told[-1].confirmed == 0
        broker.holds_answers = False
        broker.answer()
        await publishing
        await producer.close()

    fakes.run(story())
    assert [progress.rows for progress in told] == sorted(progress.rows for progress in told)
    assert [progress.is_done for progress in told].count(True) == 1
    assert (told[-1].is_done, told[-1].confirmed) == (True, 300)


def test_a_refused_row_leaves_those_before_it_confirmed() -> None:
    """The error names the row; everything before it is at the broker, nothing after it."""
    broker = FakeBroker()

    def source() -> Iterator[Row]:
        yield from made(10)
        raise RowRefused("f.csv", 12, "the key is missing", "tail")

    async def story() -> None:
        async with await opened(broker) as producer:
            error = await raised(publish_rows(producer, source()), RowRefused)
            assert str(error) == "f.csv:12: column tail: the key is missing"
            assert producer.stats().confirmed == 10

    fakes.run(story())
    assert len(broker.log) == 10


def test_a_key_that_the_algorithm_refuses_is_named_by_line() -> None:
    """Under modulo a key that is no number is refused with its row."""
    broker = FakeBroker()

    async def story() -> None:
        async with await opened(broker) as producer:
            rows = [*made(2), Row("f.csv", 4, 30, "N14228", b"")]
            error = await raised(publish_rows(producer, rows), RowRefused)
            assert str(error).startswith("f.csv:4: key: is not a decimal integer")

    fakes.run(story())
    assert len(broker.log) == 2


def test_a_row_that_the_broker_refuses_is_reported_at_the_end() -> None:
    """Known only when all rows were given, the refusal is what the last flush says."""
    broker = FakeBroker(verdicts={1: Outcome.REFUSED}, holds_answers=True)

    async def story() -> None:
        producer = await opened(broker)
        publishing = asyncio.create_task(publish_rows(producer, made(5)))
        await until(lambda: producer.stats().in_flight == 5)
        broker.holds_answers = False
        broker.answer()
        assert (await raised(publishing, NotConfirmed)).count == 2
        await producer.close()

    fakes.run(story())
    assert len(broker.log) == 3


def test_a_row_behind_a_refused_one_ends_the_publishing() -> None:
    """Known earlier, the next row of the shard is not published, and the other shards' rows are confirmed."""
    broker = FakeBroker(verdicts={1: Outcome.REFUSED})

    async def story() -> None:
        producer = await opened(broker)

        def source() -> Iterator[Row]:
            yield from made(3)
            fakes.wait_until(lambda: 1 in producer._opened.pump.stopped)
            yield from made(3)

        error = await raised(publish_rows(producer, source()), ShardStopped)
        assert "1 event is not confirmed" in error.__notes__[0]
        assert (producer.stats().confirmed, producer.stats().failed) == (3, 1)
        await producer.close()

    fakes.run(story())
    assert broker.bodies(0) == [b"0", b"0"]


def test_a_pace_spreads_the_rows() -> None:
    """No row is given before it is due."""
    broker, due = FakeBroker(), [3.0]
    pace: Pace = lambda second: due[0]  # noqa: E731

    async def story() -> None:
        producer = await opened(broker)
        publishing = asyncio.create_task(publish_rows(producer, made(10), pace=pace))
        await until(lambda: producer.stats().confirmed == 3)
        due[0] = 10.0
        await publishing
        await producer.close()

    fakes.run(story())
    assert len(broker.log) == 10


@given(st.floats(0.1, 1e6), st.floats(0, 1e6))
def test_a_steady_pace_is_its_rate_times_the_time(rate: float, second: float) -> None:
    """So many rows per second."""
    assert steady(rate)(second) == rate * second


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_never_ends_is_refused(rate: float) -> None:
    """A pace of nothing would wait for ever."""
    with pytest.raises(InvalidOption, match="rate: "):
        steady(rate)


def test_a_curve_is_summed_up() -> None:
    """A rate that grows linearly gives its square's half; below 0 is a pause."""
    growing = following(lambda second: 2 * second)
    assert [growing(step / 100) for step in range(501)][-1] == pytest.approx(25.0)
    pausing = following(lambda second: 10.0 if second < 1 else -5.0)
    assert [pausing(step / 100) for step in range(301)][-1] == pytest.approx(10.0, abs=0.2)


def test_a_slow_source_does_not_block_the_loop() -> None:
    """What was read is published while the source still waits for more."""
    broker, gate = FakeBroker(), threading.Event()

    def source() -> Iterator[Row]:
        yield from made(3)
        assert gate.wait(fakes.PATIENCE)
        yield from made(1)

    async def story() -> None:
        async with await opened(broker) as producer:
            publishing = asyncio.create_task(publish_rows(producer, source()))
            await until(lambda: producer.stats().confirmed == 3)
            gate.set()
            assert (await publishing).rows == 4

    fakes.run(story())


def test_reading_ahead_is_bounded_and_complete() -> None:
    """Never more than the bound is read ahead, and everything arrives in order."""
    given_out, taken, most_ahead = [0], [0], [0]

    def source() -> Iterator[int]:
        for i in range(1_000):
            given_out[0] += 1
            most_ahead[0] = max(most_ahead[0], given_out[0] - taken[0])
            yield i

    async def story() -> list[int]:
        items = []
        with ReadAhead(source(), most=10) as ahead:
            async for item in ahead:
                taken[0] += 1
                items.append(item)
                await asyncio.sleep(0)
        return items

    assert fakes.run(story()) == list(range(1_000))
    assert most_ahead[0] <= 12


def test_reading_left_early_ends_its_thread() -> None:
    """A cancelled publishing does not read the rest of the file."""
    ended = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(1_000_000_000)
        finally:
            ended.set()

    async def story() -> None:
        with ReadAhead(source(), most=10) as ahead:
            assert await anext(ahead) == 0

    fakes.run(story())
    fakes.wait_until(ended.is_set)


def test_an_error_of_the_source_comes_after_its_items() -> None:
    """Whatever the source raises is raised here, when everything before it was taken."""

    def source() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    async def story() -> None:
        with ReadAhead(source()) as ahead:
            assert await anext(ahead) == 1
            assert str(await raised(anext(ahead), OSError)) == "gone"

    fakes.run(story())
