"""The producer on a broker that fails: lost connections, full queues, refusals, contracts that changed."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from lbg.brokers import base
from lbg.brokers.base import Outcome
from lbg.publishing import (
    ContractMismatch,
    NotConfirmed,
    NotPublished,
    Producer,
    ShardStopped,
)
from tests.publishing import fakes
from tests.publishing.fakes import CONTRACT, QUICK, URL, FakeBroker, opened, raised, until

AWAY = base.Unreachable("broker.sock: nobody listens: start the broker")
PLAIN = base.Abilities(base.HandoverAbility.COOPERATIVE, size_limit=True)


@pytest.mark.parametrize("accepted", [True, False], ids=["accepted and not answered", "not accepted"])
def test_after_a_loss_everything_unconfirmed_is_sent_again_in_order(accepted: bool) -> None:
    """Per shard the broker sees the published order, with at most a repeated suffix, under the same ids."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker)
        for i in range(10):
            await producer.send(str(i % 2), b"%d" % i)
        await producer.flush()
        broker.holds_answers = True
        publishing = [asyncio.create_task(producer.publish(str(i % 2), b"%d" % i)) for i in range(10, 20)]
        await until(lambda: producer.stats().in_flight == 10)
        broker.holds_answers = False
        broker.drop(accepted=accepted)
        identities = await asyncio.gather(*publishing)
        assert [(i.shard, i.sequence) for i in identities] == [(n % 2, n // 2) for n in range(10, 20)]
        stats = producer.stats()
        assert (stats.reconnects, stats.resent, stats.confirmed, stats.is_connected) == (1, 10, 20, True)
        await producer.close()

    fakes.run(story())
    for shard in (0, 1):
        repeated = list(range(5, 10)) if accepted else []
        assert broker.ids(shard) == [*range(5), *repeated, *range(5, 10)]
        bodies = dict(zip(broker.ids(shard), broker.bodies(shard), strict=True))
        assert bodies == {sequence: b"%d" % (2 * sequence + shard) for sequence in range(10)}


def test_copies_of_an_event_are_equal() -> None:
    """A repetition is the same message to the last header, publishing time included."""
    broker, clock = FakeBroker(holds_answers=True), fakes.Clock()

    async def story() -> None:
        world = fakes.outside(broker, clock)
        producer = await Producer.open(URL, "orders", options=QUICK, outside=world)
        await producer.send("1", b"x")
        await until(lambda: bool(broker.submits))
        clock.now += 60_000_000_000
        broker.holds_answers = False
        broker.drop()
        await producer.flush()
        await producer.close()

    fakes.run(story())
    first, second = broker.log
    assert first == second


def test_while_the_broker_is_away_events_are_buffered_and_attempts_go_on() -> None:
    """Sends are taken up to the bound, the reason is in the stats, and all are confirmed once the broker is back."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker, replace(QUICK, max_events=5))
        broker.refusal = AWAY
        broker.drop()
        await until(lambda: not producer.stats().is_connected)
        for _ in range(5):
            await producer.send("1", b"x")
        sixth = asyncio.create_task(producer.send("1", b"x"))
        attempts = broker.opens
        await until(lambda: producer.stats().trouble == str(AWAY))
        late = await raised(producer.flush(0.001), NotConfirmed)
        assert "the broker is away: broker.sock: nobody listens" in str(late)
        assert (late.count, sixth.done()) == (5, False)
        broker.refusal = None
        await producer.flush()
        await sixth
        await producer.flush()
        assert broker.opens > attempts
        assert producer.stats().confirmed == 6
        await producer.close()

    fakes.run(story())
    assert broker.ids(1) == list(range(6))


def test_delays_grow_to_their_bound_and_differ() -> None:
    """Between attempts lie growing delays with jitter, never above `most` and never nothing."""
    rng = fakes.outside(FakeBroker()).rng
    assert rng is not None
    backoff = fakes.QUICK.reconnect.__class__(0.1, 2.0)
    delays = [backoff.delay(attempt, rng) for attempt in (*range(8), 5_000)]
    tops = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0, 2.0]
    assert all(top / 2 <= delay <= top for delay, top in zip(delays, tops, strict=True))
    assert len(set(delays)) == len(delays)


def test_a_contract_that_changed_while_away_ends_the_producer() -> None:
    """The shards are no longer what they were: what is held fails, and nothing is sent to a wrong shard."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker)
        publishing = asyncio.create_task(producer.publish("1", b"x"))
        await producer.send("2", b"y")
        await until(lambda: producer.stats().in_flight == 2)
        broker.topology = base.Topology(replace(CONTRACT, count=16), "test")
        broker.drop(accepted=False)
        error = await raised(publishing, NotPublished)
        assert "the contract here (count 8) is not the broker's (count 16)" in str(error)
        assert (await raised(producer.flush(), NotConfirmed)).count == 1
        await raised(producer.send("3", b"z"), ContractMismatch)
        assert producer.stats().waiting == 0
        await producer.close()

    fakes.run(story())
    assert broker.log == []


def test_callers_who_wait_for_room_learn_that_the_producer_ended() -> None:
    """When what is held fails, room is made; nobody is let in to wait for a confirm that cannot come."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker, replace(QUICK, max_events=1))
        await producer.send("1", b"x")
        waiting = [asyncio.create_task(call) for call in (producer.publish("2", b"y"), producer.publish("3", b"z"))]
        await until(lambda: producer.stats().in_flight == 1)
        broker.topology = base.Topology(replace(CONTRACT, count=16), "test")
        broker.drop(accepted=False)
        for task in waiting:
            await raised(task, ContractMismatch)
        await raised(producer.close(), NotConfirmed)

    fakes.run(story())


@pytest.mark.parametrize("answer", [(), (Outcome.ACCEPTED,) * 3, RuntimeError("a defect")], ids=["few", "many", "none"])
def test_an_answer_that_cannot_be_read_is_no_answer(answer: tuple[Outcome, ...] | Exception) -> None:
    """An adapter that breaks the contract makes a repetition, not a loss or a wrong confirm."""
    broker = FakeBroker(holds_answers=True)

    async def story() -> None:
        producer = await opened(broker)
        publishing = asyncio.create_task(producer.publish("1", b"x"))
        await until(lambda: bool(broker.submits))
        ((future, _),) = broker.sessions[0].open
        broker.sessions[0].open.clear()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        broker.holds_answers = False
        assert (await publishing).sequence == 0
        await producer.close()

    fakes.run(story())
    assert broker.ids(1) == [0]


def test_a_stream_that_is_gone_may_come_back() -> None:
    """A deleted stream is waited for, like a broker that is away; its events are not refused one by one."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker)
        topology, broker.topology = broker.topology, None
        broker.drop()
        await until(lambda: "is gone from the broker" in (producer.stats().trouble or ""))
        await producer.send("1", b"x")
        broker.topology = topology
        await producer.close()

    fakes.run(story())
    assert broker.bodies(1) == [b"x"]


def test_a_full_queue_holds_its_own_shard_only() -> None:
    """Events of the full shard wait and keep their order; others are confirmed meanwhile."""
    broker = FakeBroker(verdicts={1: Outcome.FULL})

    async def story() -> None:
        producer = await opened(broker)
        for i in range(6):
            await producer.send(str(i % 2), b"%d" % i)
        await until(lambda: producer.stats().confirmed == 3 and broker.attempts[1] > 5)
        late = await raised(producer.flush(0.001), NotConfirmed)
        assert {event.reason for event in late.events} == {"its queue is full"}
        broker.verdicts.clear()
        await producer.flush()
        await producer.close()

    fakes.run(story())
    assert broker.bodies(0) == [b"0", b"2", b"4"]
    assert broker.bodies(1) == [b"1", b"3", b"5"]


@pytest.mark.parametrize(
    ("abilities", "limit", "want"),
    [
        (PLAIN, 10, 1),
        (PLAIN, None, 4),
        (replace(PLAIN, size_limit=False), 10, 4),
        (replace(PLAIN, ordered_rejects=True), 10, 4),
    ],
    ids=["limited", "no limit set", "cannot refuse", "blocks in order"],
)
def test_one_event_of_a_shard_in_flight_where_a_later_one_could_overtake(
    abilities: base.Abilities, limit: int | None, want: int
) -> None:
    """The window follows the broker's abilities and the stream's limit."""
    broker = FakeBroker(
        topology=base.Topology(CONTRACT, "test", size_limit=limit), abilities=abilities, holds_answers=True
    )

    async def story() -> int:
        producer = await opened(broker)
        for _ in range(4):
            await producer.send("1", b"x")
        await until(lambda: bool(broker.submits))
        in_flight = producer.stats().in_flight
        broker.holds_answers = False
        broker.answer()
        await producer.close()
        return in_flight

    assert fakes.run(story()) == want
    assert broker.ids(1) == list(range(4))


def test_with_a_contract_file_only_the_limit_is_unknown_and_assumed() -> None:
    """Where the broker cannot be asked, a shard has one event in flight unless the broker blocks in order."""
    broker = FakeBroker(topology=None, abilities=PLAIN, holds_answers=True)

    async def story() -> int:
        producer = await Producer.open(URL, CONTRACT, options=QUICK, outside=fakes.outside(broker))
        for _ in range(4):
            await producer.send("1", b"x")
        await until(lambda: bool(broker.submits))
        in_flight = producer.stats().in_flight
        broker.holds_answers = False
        broker.answer()
        await producer.close()
        return in_flight

    assert fakes.run(story()) == 1


@pytest.mark.parametrize(
    ("outcome", "why"),
    [(Outcome.UNROUTABLE, "no such shard"), (Outcome.REFUSED, "the publisher's permission and the size")],
)
def test_a_refused_event_stops_its_shard_and_says_so(outcome: Outcome, why: str) -> None:
    """The event fails with the reason, so do those behind it; the shard takes nothing more, other shards go on."""
    broker = FakeBroker(verdicts={1: outcome})

    async def story() -> None:
        producer = await opened(broker)
        first, second = (asyncio.create_task(producer.publish("1", body)) for body in (b"a", b"b"))
        error = await raised(first, NotPublished)
        assert why in str(error)
        assert error.event.identity is not None
        behind = await raised(second, NotPublished)
        assert f"it stood behind event {error.event.identity.message_id}" in str(behind)
        for call in (producer.publish("9", b"c"), producer.send("1", b"c")):
            stopped = await raised(call, ShardStopped)
            assert why in str(stopped)
            assert stopped.shard == 1
        await producer.publish("2", b"x")
        await producer.close()

    fakes.run(story())
    assert [message.body for message in broker.log] == [b"x"]


def test_restart_goes_on_behind_the_hole_with_dense_sequences() -> None:
    """The shard begins a new incarnation at 0; the others keep theirs."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker)
        before = [await producer.publish(key, b"a") for key in ("1", "2")]
        broker.verdicts[1] = Outcome.REFUSED
        await raised(producer.publish("1", b"too large"), NotPublished)
        broker.verdicts.clear()
        producer.restart(1)
        after = [await producer.publish(key, b"b") for key in ("1", "2")]
        assert [identity.sequence for identity in before + after] == [0, 0, 0, 1]
        assert after[0].incarnation > before[0].incarnation
        assert after[1].incarnation == before[1].incarnation
        with pytest.raises(ValueError, match="shard 1 is not stopped"):
            producer.restart(1)
        await producer.close()

    fakes.run(story())
    assert broker.bodies(1) == [b"a", b"b"]


def test_failures_of_sends_are_reported_once_by_the_next_flush() -> None:
    """What nobody waited for is reported by flush, or by close, and then forgotten."""
    broker = FakeBroker(verdicts={1: Outcome.REFUSED, 2: Outcome.REFUSED})

    async def story() -> None:
        producer = await opened(broker)
        await producer.send("1", b"a")
        await producer.send("1", b"b")
        error = await raised(producer.flush(), NotConfirmed)
        assert [(event.key, event.is_uncertain) for event in error.events] == [("1", False), ("1", False)]
        await producer.flush()
        await producer.send("2", b"c")
        assert (await raised(producer.close(), NotConfirmed)).count == 1
        stats = producer.stats()
        assert (stats.accepted, stats.failed, stats.confirmed) == (3, 3, 0)

    fakes.run(story())


def test_a_caller_in_the_queue_for_room_learns_that_its_shard_stopped() -> None:
    """An event that is let in behind a refused one fails by itself and does not stop those who wait behind it."""
    broker = FakeBroker(verdicts={1: Outcome.REFUSED}, holds_answers=True)

    async def story() -> None:
        producer = await opened(broker, replace(QUICK, max_events=1))
        await producer.send("1", b"a")
        second, third = (asyncio.create_task(producer.send(key, b"b")) for key in ("1", "2"))
        await until(lambda: bool(broker.submits))
        broker.holds_answers = False
        broker.answer()
        await raised(second, ShardStopped)
        await third
        assert (await raised(producer.close(), NotConfirmed)).count == 1

    fakes.run(story())
    assert broker.bodies(2) == [b"b"]


def test_any_mixture_of_losses_keeps_the_order() -> None:
    """Losses at every point of a stream, told or not: published order, repeated suffixes, nothing missing."""
    broker = FakeBroker()

    async def story() -> None:
        producer = await opened(broker, replace(QUICK, batch=3, max_in_flight=7))
        for i in range(200):
            await producer.send("1", b"%d" % i)
            if i % 7 == 0:
                broker.holds_answers = True
                await asyncio.sleep(0)
                broker.drop(accepted=i % 2 == 0)
                broker.holds_answers = False
        await producer.close()

    fakes.run(story())
    ids = broker.ids(1)
    assert ids[0] == 0
    assert all(after <= before + 1 for before, after in itertools.pairwise(ids))
    assert set(ids) == set(range(200))
