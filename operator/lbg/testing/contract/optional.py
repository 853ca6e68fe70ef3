"""Contract of the optional abilities: size limits, ordered rejects, outputs, atomic acknowledge-and-publish, restarts.

`Restarts` is no ability of the adapter but one of the test bench: the broker can be killed and started again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lbg.brokers import base
from lbg.core.wire import Message
from lbg.testing.contract.scene import Scene, story

ACCEPTED = base.Outcome.ACCEPTED
FULL = base.Outcome.FULL
BLOCKED = base.Outcome.BLOCKED


class SizeLimits:
    """Queues that refuse messages beyond a limit."""

    @story
    async def test_beyond_the_limit_messages_are_refused_and_none_is_dropped(self, scene: Scene) -> None:
        """Answers FULL one message at a time, counts what is unacknowledged, and takes more once there is room."""
        await scene.declare(size_limit=2)
        await scene.publish("a", "b")
        publisher = (await scene.session()).publisher()
        taker = await scene.bind(window=1)
        await taker.until(1)
        for _ in range(2):
            assert await publisher.submit([scene.outgoing("c")]) == (FULL,)
            publisher.resume(base.ToShard(scene.prefix, 0))
        assert await scene.count() == 2
        taker.ack("a")
        await scene.until_count(1)
        assert await publisher.submit([scene.outgoing("c")]) == (ACCEPTED,)
        assert await taker.until(2) == ["a", "b"]
        taker.ack("b")
        assert await taker.until(3) == ["a", "b", "c"]

    @story
    async def test_a_full_queue_does_not_hold_up_another(self, scene: Scene) -> None:
        """Accepts messages for queues that have room, from the same publisher."""
        await scene.declare(size_limit=1)
        publisher = (await scene.session()).publisher()
        batch = [scene.outgoing("a", 0), scene.outgoing("b", 1), scene.outgoing("c", 0), scene.outgoing("d", 2)]
        assert await publisher.submit(batch) == (ACCEPTED, ACCEPTED, FULL, ACCEPTED)


class OrderedRejects:
    """A refused message blocks later ones to the same address until `resume`."""

    @story
    async def test_nothing_overtakes_a_refused_message(self, scene: Scene) -> None:
        """Blocks what was sent behind a refusal even when there is room again, until the publisher resumes."""
        await scene.declare(size_limit=2)
        publisher = (await scene.session()).publisher()
        batch = [scene.outgoing(body) for body in "abcd"]
        assert await publisher.submit(batch) == (ACCEPTED, ACCEPTED, FULL, BLOCKED)
        taker = await scene.bind(acks=True)
        await taker.until(2)
        await scene.until_count(0)
        assert await publisher.submit([scene.outgoing("d")]) == (BLOCKED,)
        publisher.resume(base.ToShard(scene.prefix, 0))
        assert await publisher.submit(batch[2:]) == (ACCEPTED, ACCEPTED)
        assert await taker.until(4) == ["a", "b", "c", "d"]

    @story
    async def test_a_block_is_that_of_one_address_of_one_publisher(self, scene: Scene) -> None:
        """Leaves other shards, and other publishers of the same session, alone."""
        await scene.declare(size_limit=1)
        session = await scene.session()
        first, second = session.publisher(), session.publisher()
        assert await first.submit([scene.outgoing("a"), scene.outgoing("b")]) == (ACCEPTED, FULL)
        taker = await scene.bind(acks=True)
        await taker.until(1)
        await scene.until_count(0)
        assert await second.submit([scene.outgoing("c")]) == (ACCEPTED,)
        assert await first.submit([scene.outgoing("b"), scene.outgoing("d", 1)]) == (BLOCKED, ACCEPTED)

    @story
    async def test_resuming_what_is_not_blocked_changes_nothing(self, scene: Scene) -> None:
        """Takes a resume before the first message to an address, and one too many."""
        await scene.declare()
        publisher = (await scene.session()).publisher()
        for body in "ab":
            publisher.resume(base.ToShard(scene.prefix, 0))
            assert await publisher.submit([scene.outgoing(body)]) == (ACCEPTED,)


async def _take(records: AsyncIterator[tuple[int, Message]], count: int) -> list[tuple[int, str]]:
    taken: list[tuple[int, str]] = []
    async for offset, message in records:
        taken.append((offset, message.body.decode()))
        if len(taken) == count:
            return taken
    raise AssertionError("an output ended by itself")


class Outputs:
    """Append-only streams that are read from an offset and followed live."""

    @story
    async def test_an_output_is_read_from_any_offset_in_order(self, scene: Scene) -> None:
        """Numbers records densely from 0, and keeps them however often they are read."""
        await scene.declare(outputs=("out",))
        session = await scene.session()
        address = base.ToOutput(scene.prefix, "out")
        await session.publisher().submit([base.Outgoing(address, Message(b"%d" % at)) for at in range(10)])
        assert await scene.broker.count_records(scene.prefix, "out") == 10
        for start in (0, 7, 0):
            records = session.read_output(scene.prefix, "out", start)
            assert await _take(records, 10 - start) == [(at, str(at)) for at in range(start, 10)]

    @story
    async def test_an_output_is_followed_live(self, scene: Scene) -> None:
        """Delivers to each follower what is appended while it waits, by whomever, each record once."""
        await scene.declare(outputs=("out",))
        address = base.ToOutput(scene.prefix, "out")
        session = await scene.session()
        followers = [session.read_output(scene.prefix, "out") for _ in range(2)]
        publishers = [(await scene.session()).publisher() for _ in range(2)]
        for at in range(6):
            await publishers[at % 2].submit([base.Outgoing(address, Message(b"%d" % at))])
            for follower in followers:
                assert await _take(follower, 1) == [(at, str(at))]

    @story
    async def test_a_long_output_is_read_whole(self, scene: Scene) -> None:
        """Reads thousands of records, more than fit under way at once, without a hole."""
        await scene.declare(outputs=("out",))
        session = await scene.session()
        address = base.ToOutput(scene.prefix, "out")
        await session.publisher().submit([base.Outgoing(address, Message(b"%d" % at)) for at in range(12_000)])
        records = session.read_output(scene.prefix, "out")
        assert await _take(records, 12_000) == [(at, str(at)) for at in range(12_000)]

    @story
    async def test_a_missing_output_cannot_be_read(self, scene: Scene) -> None:
        """Raises Missing instead of waiting for ever."""
        await scene.declare(outputs=("out",))
        session = await scene.session()
        with pytest.raises(base.Missing):
            await _take(session.read_output(scene.prefix, "absent"), 1)

    @story
    async def test_an_owner_may_add_outputs(self, scene: Scene) -> None:
        """Extends the topology with a further output and keeps the records of the first."""
        await scene.declare(outputs=("out",))
        session = await scene.session()
        await session.publisher().submit([base.Outgoing(base.ToOutput(scene.prefix, "out"), Message(b"0"))])
        await scene.admin.declare(scene.variant(outputs=("out", "more")))
        await session.publisher().submit([base.Outgoing(base.ToOutput(scene.prefix, "more"), Message(b"1"))])
        assert await scene.broker.count_records(scene.prefix, "out") == 1
        assert await scene.broker.count_records(scene.prefix, "more") == 1


class AtomicAck:
    """Acknowledge and append to an output in one step."""

    @story
    async def test_both_happen(self, scene: Scene) -> None:
        """Removes the event and appends the record, both durable on return."""
        await scene.declare(outputs=("out",))
        await scene.publish("a", "b")
        taker = await scene.bind()
        await taker.until(2)
        outgoing = base.Outgoing(base.ToOutput(scene.prefix, "out"), Message(b"did b"))
        await taker.bound.ack_and_publish(taker.tag("b"), outgoing)
        assert await scene.count() == 1
        assert await scene.broker.count_records(scene.prefix, "out") == 1

    @story
    async def test_neither_happens_for_a_former_owner(self, scene: Scene) -> None:
        """Raises LinkLost after a release, and after another step took the tag; appends nothing."""
        await scene.declare(outputs=("out",))
        await scene.publish("a")
        outgoing = base.Outgoing(base.ToOutput(scene.prefix, "out"), Message(b"did a"))
        released = await scene.bind()
        await released.until(1)
        await released.bound.release()
        with pytest.raises(base.LinkLost):
            await released.bound.ack_and_publish(released.tag("a"), outgoing)
        owner = await scene.rebind()
        await owner.until(1)
        await owner.bound.ack_and_publish(owner.tag("a"), outgoing)
        with pytest.raises(base.LinkLost):
            await owner.bound.ack_and_publish(owner.tag("a"), outgoing)
        assert await scene.count() == 0
        assert await scene.broker.count_records(scene.prefix, "out") == 1

    @story
    async def test_neither_happens_when_there_is_nowhere_to_append(self, scene: Scene) -> None:
        """Keeps the event held when the address leads nowhere."""
        await scene.declare(outputs=("out",))
        await scene.publish("a")
        taker = await scene.bind()
        await taker.until(1)
        with pytest.raises(base.BrokerError):
            await taker.bound.ack_and_publish(
                taker.tag("a"), base.Outgoing(base.ToOutput(scene.prefix, "absent"), Message(b"x"))
            )
        assert await scene.count() == 1
        taker.ack("a")
        await scene.until_count(0)


class Restarts:
    """What survives SIGKILL of the broker."""

    @story
    async def test_what_was_confirmed_survives_a_kill(self, scene: Scene) -> None:
        """Keeps accepted messages in order, ledgers, dead letters and topology; loses what was acknowledged."""
        topology = await scene.declare()
        publisher = (await scene.session("publisher")).publisher()
        await publisher.submit([scene.outgoing(body) for body in "abcdef"])
        await publisher.submit([base.Outgoing(base.ToDeadLetters(scene.prefix), Message(b"dead"))])
        taker = await scene.bind(window=4)
        await taker.until(4)
        taker.ack("a", "c")
        await taker.until(6)
        # Durable on return, and so is the acknowledgement before it.
        await taker.bound.write_ledger(base.LedgerEntry(1, 1, b"kept"))
        await scene.broker.restart()
        assert await taker.until_lost()
        await scene.reopen_admin()
        assert await scene.admin.find(scene.prefix) == topology
        assert [letter.body for letter in await scene.admin.dead_letters(scene.prefix)] == [b"dead"]
        heir = await scene.bind()
        assert await heir.until(4) == ["b", "d", "e", "f"]
        assert heir.flags == [True] * 4
        assert await heir.bound.read_ledger() == base.LedgerEntry(1, 1, b"kept")

    @story
    async def test_what_nobody_had_is_not_marked_after_a_kill(self, scene: Scene) -> None:
        """Calls nothing redelivered that was published while no link was bound."""
        await scene.declare()
        await scene.publish(*"abc")
        await scene.broker.restart()
        await scene.reopen_admin()
        taker = await scene.bind()
        assert await taker.until(3) == ["a", "b", "c"]
        assert taker.flags == [False] * 3
