"""What the embedded adapter promises beyond the contract, and what its broker does with clients that misbehave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lbg.brokers import base
from lbg.brokers.base import HandoverAbility
from lbg.brokers.embedded import client, links, protocol
from lbg.core.wire import Message
from lbg.testing.contract import Scene, Taker, story

if TYPE_CHECKING:
    from tests.brokers.embedded.conftest import BrokerOf, EmbeddedUnderTest


class TestOnABroker:
    """All on one broker, in cooperative mode."""

    @pytest.fixture
    def broker(self, broker_of: BrokerOf) -> EmbeddedUnderTest:
        return broker_of[HandoverAbility.COOPERATIVE]

    @story
    async def test_a_ledger_is_closed_to_a_link_without_a_delivery(self, scene: Scene) -> None:
        """Refuses an active link that cannot know yet that it is active, as other brokers do by their nature."""
        await scene.declare()
        taker = await scene.bind()
        with pytest.raises(base.LinkLost, match="no delivery"):
            await taker.bound.read_ledger()
        with pytest.raises(base.LinkLost, match="no delivery"):
            await taker.bound.write_ledger(base.LedgerEntry(1, 1, b""))

    @story
    async def test_a_ledger_is_closed_to_a_waiting_link(self, scene: Scene) -> None:
        """Refuses the standby by name of the reason, while the active link may write."""
        await scene.declare()
        await scene.publish("a")
        active = await scene.bind()
        await active.until(1)
        standby = await scene.bind()
        with pytest.raises(base.LinkLost, match="not active"):
            await standby.bound.write_ledger(base.LedgerEntry(9, 9, b"stale"))
        await active.bound.write_ledger(base.LedgerEntry(1, 1, b"fresh"))

    @story
    async def test_a_cancelled_bind_leaves_no_link_behind(self, scene: Scene) -> None:
        """Releases what the broker bound for a caller that did not wait for it."""
        await scene.declare()
        session = await scene.session()
        binding = asyncio.create_task(scene.bind(session=session))
        await asyncio.sleep(0)
        binding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await binding
        await scene.settle(session)
        assert (await scene.state()).links == 0

    @story
    async def test_a_loss_reaches_the_listener_after_bind_has_returned(self, scene: Scene) -> None:
        """Reports a queue that is deleted right behind its bind once, and not before the caller has the link."""
        await scene.declare()
        taker = Taker()
        session = await scene.session()
        order: list[str] = []

        async def bind() -> None:
            taker.link = await session.bind(scene.prefix, 0, name="x", window=1, listener=taker)
            order.extend([*taker.reasons, "bound"])

        binding = asyncio.create_task(bind())
        await asyncio.sleep(0)
        # On the same connection, so that the answer to the bind and the loss arrive together.
        assert isinstance(session, client.EmbeddedSession)
        topology = session.connection.request(protocol.Op.DELETE, scene.prefix, scene.owner, False)
        await asyncio.gather(binding, topology)
        assert await taker.until_lost()
        assert order == ["bound"]
        assert len(taker.reasons) == 1

    @story
    async def test_giving_up_on_opening_closes_the_connection(self, scene: Scene) -> None:
        """Leaves no socket open when the caller does not wait for the greeting."""
        opening = asyncio.create_task(scene.broker.adapter.open_session(scene.broker.url, name="hasty"))
        for _ in range(3):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    @story
    async def test_a_window_must_allow_a_delivery(self, scene: Scene) -> None:
        """Refuses a window below 1 before it asks the broker."""
        await scene.declare()
        with pytest.raises(ValueError, match="window"):
            await scene.bind(window=0)

    @story
    async def test_a_queue_is_bound_once_per_session(self, scene: Scene) -> None:
        """Refuses a second link of one session to one queue."""
        await scene.declare()
        session = await scene.session()
        await scene.bind(session=session)
        with pytest.raises(base.BindRefused, match="already"):
            await scene.bind(session=session)

    @pytest.mark.parametrize(
        "message",
        [
            pytest.param(Message(bytes(protocol.MAX_MESSAGE)), id="too large"),
            pytest.param(Message(b"", {"n": 2**64}), id="a header beyond 64 bits"),
        ],
    )
    @story
    async def test_a_message_that_cannot_be_carried_is_refused_in_its_place(
        self, scene: Scene, message: Message
    ) -> None:
        """Answers REFUSED for that one, and blocks what stands behind it until resumed."""
        await scene.declare()
        publisher = (await scene.session()).publisher()
        bad = base.Outgoing(base.ToShard(scene.prefix, 0), message)
        outcomes = await publisher.submit([scene.outgoing("a"), bad, scene.outgoing("b"), scene.outgoing("c", 1)])
        assert [outcome.value for outcome in outcomes] == ["accepted", "refused", "blocked", "accepted"]
        publisher.resume(bad.to)
        assert await publisher.submit([scene.outgoing("b")]) == (base.Outcome.ACCEPTED,)

    @story
    async def test_a_batch_larger_than_a_frame_keeps_its_order(self, scene: Scene) -> None:
        """Splits what is large over frames and joins the outcomes; a window of large bodies is delivered whole."""
        await scene.declare()
        publisher = (await scene.session()).publisher()
        bodies = [b"%02d" % number + bytes(protocol.FRAME_TARGET // 3) for number in range(20)]
        outcomes = await publisher.submit([scene.outgoing(body) for body in bodies])
        assert outcomes == (base.Outcome.ACCEPTED,) * 20
        taker = await scene.bind(window=20)
        await taker.until(20)
        assert [delivery.message.body for delivery in taker.deliveries] == bodies

    @story
    async def test_closing_a_session_answers_what_was_submitted(self, scene: Scene) -> None:
        """Waits for the outcomes of submissions in flight before it hangs up; later ones are unknown."""
        await scene.declare()
        session = await scene.session()
        publisher = session.publisher()
        flight = publisher.submit([scene.outgoing("a")])
        await session.close()
        assert await flight == (base.Outcome.ACCEPTED,)
        assert await publisher.submit([scene.outgoing("b")]) == (base.Outcome.UNKNOWN,)

    @story
    async def test_a_caller_may_lose_interest_in_its_outcomes(self, scene: Scene) -> None:
        """Goes on when the future of a submission was cancelled; the message is published all the same."""
        await scene.declare()
        publisher = (await scene.session()).publisher()
        publisher.submit([scene.outgoing("a")]).cancel()
        assert await publisher.submit([scene.outgoing("b")]) == (base.Outcome.ACCEPTED,)
        assert await scene.count() == 2

    @story
    async def test_a_reader_learns_that_its_output_is_gone(self, scene: Scene) -> None:
        """Raises Missing at a follower when the stream is deleted, and LinkLost when the connection is."""
        await scene.declare(outputs=("out",))
        session = await scene.session()
        reading = asyncio.ensure_future(anext(session.read_output(scene.prefix, "out")))
        await scene.settle(session)
        await scene.admin.delete(scene.prefix, scene.owner, only_if_empty=False)
        with pytest.raises(base.Missing, match="deleted"):
            await reading
        await scene.declare(outputs=("out",))
        session = await scene.session()
        reading = asyncio.ensure_future(anext(session.read_output(scene.prefix, "out")))
        await asyncio.sleep(0)
        await scene.broker.cut(session)
        with pytest.raises(base.BrokerError):
            await reading

    @story
    async def test_a_reader_that_stops_gets_nothing_more(self, scene: Scene) -> None:
        """Forgets a follower that was closed, on both sides."""
        await scene.declare(outputs=("out",))
        session = await scene.session()
        address = base.ToOutput(scene.prefix, "out")
        await session.publisher().submit([base.Outgoing(address, Message(b"0"))])
        records = session.read_output(scene.prefix, "out")
        assert (await anext(records))[0] == 0
        await records.aclose()  # type: ignore[attr-defined]
        await session.publisher().submit([base.Outgoing(address, Message(b"1"))])
        assert session._records == {}  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        "stream",
        [
            pytest.param(b"\xff\xff\xff\xff", id="no frame"),
            pytest.param(protocol.encode([protocol.Op.LIST, 1]), id="no greeting"),
            pytest.param(protocol.encode([protocol.Op.HELLO, 1]), id="half a greeting"),
            pytest.param(
                protocol.encode([protocol.Op.HELLO, 1, protocol.VERSION, "x", None]) + protocol.encode([99, 1]),
                id="an unknown operation",
            ),
            pytest.param(
                protocol.encode([protocol.Op.HELLO, 1, protocol.VERSION, "x", None])
                + protocol.encode([protocol.Op.PUBLISH, 1, 1, [], [7], [b""]]),
                id="an address that was never introduced",
            ),
            pytest.param(
                protocol.encode([protocol.Op.HELLO, 1, protocol.VERSION, "x", None])
                + protocol.encode([protocol.Op.DECLARE, 1, {"owner": 1}]),
                id="a topology that is none",
            ),
        ],
    )
    @story
    async def test_a_client_that_does_not_speak_the_protocol_is_hung_up_on(self, scene: Scene, stream: bytes) -> None:
        """Closes that connection and goes on serving the others."""
        await scene.declare()
        taker = await scene.bind(acks=True)
        reader, writer = await asyncio.open_unix_connection(scene.broker.url.removeprefix("embedded://"))
        writer.write(stream)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        await scene.publish("a")
        assert await taker.until(1) == ["a"]

    @story
    async def test_a_long_backlog_is_paged_in_order(self, scene: Scene) -> None:
        """Delivers thousands of waiting messages in order, though the broker keeps few of them in memory."""
        await scene.declare()
        publisher = (await scene.session("publisher")).publisher()
        want = [f"{number}" for number in range(6_000)]
        await publisher.submit([scene.outgoing(body) for body in want])
        taker = await scene.bind(window=100, acks=True)
        assert await taker.until(len(want)) == want
        assert not any(taker.flags)

    @story
    async def test_a_clean_stop_leaves_exact_marks(self, scene: Scene) -> None:
        """Calls redelivered, after a stop and a start, exactly what had been delivered."""
        await scene.declare()
        session = await scene.session()
        taker = await scene.bind(session=session, window=2)
        await scene.publish(*"abcd")
        await taker.until(2)
        assert scene.broker.process.stop() == 0  # type: ignore[attr-defined]
        scene.broker.process = scene.broker.start()  # type: ignore[attr-defined]
        await scene.reopen_admin()
        heir = await scene.bind()
        assert await heir.until(4) == ["a", "b", "c", "d"]
        assert heir.flags == [True, True, False, False]


class TestJoinedStreams:
    """Several groups on one stream: each gets every event, through queues of its own."""

    @pytest.fixture
    def broker(self, broker_of: BrokerOf) -> EmbeddedUnderTest:
        return broker_of[HandoverAbility.COOPERATIVE]

    async def take_as(self, scene: Scene, owner: str, queue: int, count: int) -> list[str]:
        session = await scene.broker.adapter.open_session(f"{scene.broker.url}?owner={owner}", name=owner)
        taker = Taker(acks=True)
        taker.link = await session.bind(scene.prefix, queue, name=owner, window=10, listener=taker)
        bodies = await taker.until(count)
        await session.close()
        return bodies

    @story
    async def test_every_group_gets_every_event_in_order(self, scene: Scene) -> None:
        """Routes a shard to a queue of each group, by that group's own number of queues."""
        await scene.declare(owner="first", queues=8)
        await scene.declare(owner="second", queues=4, join=True)
        await scene.publish("a", "b", queue=5)
        assert await self.take_as(scene, "first", 5, 2) == ["a", "b"]
        assert await self.take_as(scene, "second", 1, 2) == ["a", "b"]

    @story
    async def test_without_an_owner_the_first_group_is_meant(self, scene: Scene) -> None:
        """Observes and binds the group that declared the stream, unless the URL names another."""
        await scene.declare(owner="first", queues=8)
        await scene.declare(owner="second", queues=4, join=True)
        assert len(await scene.admin.observe(scene.prefix)) == 8
        admin = await scene.broker.adapter.open_admin(f"{scene.broker.url}?owner=second")
        assert len(await admin.observe(scene.prefix)) == 4
        found = await admin.find(scene.prefix)
        assert found is not None
        assert found.owner == "second"
        await admin.close()

    @story
    async def test_a_full_queue_of_one_group_holds_back_all(self, scene: Scene) -> None:
        """Admits a message to every group or to none, so that their orders agree."""
        await scene.declare(owner="first", queues=8)
        await scene.declare(owner="second", queues=4, join=True, size_limit=1)
        publisher = (await scene.session()).publisher()
        batch = [scene.outgoing("a"), scene.outgoing("b")]
        assert await publisher.submit(batch) == (base.Outcome.ACCEPTED, base.Outcome.FULL)
        assert (await scene.state()).backlog == 1

    @story
    async def test_an_output_has_one_owner_on_a_stream(self, scene: Scene) -> None:
        """Refuses to join with the name of an output that another group has, and says whose it is."""
        await scene.declare(owner="first", outputs=("out",))
        with pytest.raises(base.Conflict, match="first") as refused:
            await scene.declare(owner="second", join=True, outputs=("out",))
        assert refused.value.names == ("output out",)

    @story
    async def test_dead_letters_keep_a_group_from_deletion_when_empty(self, scene: Scene) -> None:
        """Counts set-aside events as messages that remain: nobody has dealt with them yet."""
        await scene.declare()
        publisher = (await scene.session()).publisher()
        await publisher.submit([base.Outgoing(base.ToDeadLetters(scene.prefix), Message(b"poison"))])
        with pytest.raises(base.NotEmpty, match="dead letters: 1") as refused:
            await scene.admin.delete(scene.prefix, scene.owner, only_if_empty=True)
        assert refused.value.remaining == {}


def test_outcomes_are_those_of_the_frames_in_order() -> None:
    """Joins the parts of a split submission by the order in which they were sent, not in which they were answered."""

    async def main() -> None:
        accepted, unknown = base.Outcome.ACCEPTED, base.Outcome.UNKNOWN
        submission = links.Submission(asyncio.get_running_loop().create_future(), 2, {1: (unknown,), 2: (unknown,) * 2})
        submission.take(2, [protocol.OUTCOME_CODES[base.Outcome.FULL], protocol.OUTCOME_CODES[base.Outcome.BLOCKED]])
        submission.take(1, None)
        assert await submission.future == (accepted, base.Outcome.FULL, base.Outcome.BLOCKED)

    asyncio.run(main())
