"""Contract of delivering: order, window, acknowledgement, one active link, and what is given back."""

from __future__ import annotations

import pytest

from lbg.brokers import base
from lbg.testing.contract.scene import FIRST_PROBE, Scene, Taker, story


class Delivering:
    """A bound link and what reaches it."""

    @story
    async def test_deliveries_come_in_queue_order_with_growing_tags(self, scene: Scene) -> None:
        """Delivers what waited and what comes later in one order, first time, under growing tags of its own queue."""
        await scene.declare()
        await scene.publish("a", "b")
        taker = await scene.bind()
        await taker.until(2)
        await scene.publish("c", "d")
        assert await taker.until(4) == ["a", "b", "c", "d"]
        assert taker.flags == [False] * 4
        tags = [delivery.tag for delivery in taker.deliveries]
        assert tags == sorted(set(tags))
        assert {delivery.queue for delivery in taker.deliveries} == {0}
        assert taker.bound.queue == 0

    @story
    async def test_the_window_bounds_what_is_unacknowledged(self, scene: Scene) -> None:
        """Delivers no more than the window, and one more for each acknowledgement."""
        await scene.declare()
        session = await scene.session()
        await scene.publish(*"abcdef")
        taker = await scene.bind(session=session, window=3)
        await taker.until(3)
        await scene.settle(session)
        assert taker.bodies == ["a", "b", "c"]
        taker.ack("b")
        await taker.until(4)
        await scene.settle(session)
        assert taker.bodies == ["a", "b", "c", "d"]
        taker.ack("a", "d")
        assert await taker.until(6) == ["a", "b", "c", "d", "e", "f"]

    @story
    async def test_acknowledged_messages_are_gone_from_the_broker(self, scene: Scene) -> None:
        """Removes what was acknowledged, in any order, and keeps the rest."""
        await scene.declare()
        await scene.publish(*"abcde")
        taker = await scene.bind()
        await taker.until(5)
        taker.ack("d")
        taker.ack("b", "a")
        await scene.until_count(2)
        await taker.bound.release()
        assert await scene.count() == 2

    @story
    async def test_acknowledging_twice_counts_once(self, scene: Scene) -> None:
        """Ignores tags that were acknowledged before or never given out."""
        await scene.declare()
        session = await scene.session()
        await scene.publish(*"abcd")
        taker = await scene.bind(session=session, window=2)
        await taker.until(2)
        first = taker.tag("a")
        taker.bound.ack([first])
        taker.bound.ack([first, first])
        await taker.until(3)
        await scene.settle(session)
        assert taker.bodies == ["a", "b", "c"]
        await scene.until_count(3)

    @story
    async def test_many_queues_are_served_side_by_side(self, scene: Scene) -> None:
        """Delivers every queue of a session to its own link, each in its own order."""
        await scene.declare(queues=16)
        session = await scene.session()
        takers = [await scene.bind(queue, session=session, window=5, acks=True) for queue in range(16)]
        publisher = (await scene.session("publisher")).publisher()
        want = [f"m{number}" for number in range(50)]
        await publisher.submit([scene.outgoing(body, queue) for body in want for queue in range(16)])
        for queue, taker in enumerate(takers):
            assert await taker.until(50) == want
            assert {delivery.queue for delivery in taker.deliveries} == {queue}

    @story
    async def test_a_deaf_listener_holds_up_its_own_queue_only(self, scene: Scene) -> None:
        """Serves the other queues of a session while one link acknowledges nothing."""
        await scene.declare()
        session = await scene.session()
        await scene.publish(*"abc", queue=0)
        deaf = await scene.bind(0, session=session, window=1)
        await deaf.until(1)
        awake = await scene.bind(1, session=session, window=1, acks=True)
        await scene.publish(*"defg", queue=1)
        assert await awake.until(4) == ["d", "e", "f", "g"]
        assert deaf.bodies == ["a"]

    @story
    async def test_a_queue_or_stream_that_does_not_exist_cannot_be_bound(self, scene: Scene) -> None:
        """Raises Missing for an index at or beyond the contract's count, and for a prefix that was never declared."""
        await scene.declare()
        for prefix, queue in ((scene.prefix, 100), (scene.prefix + "-absent", 0)):
            session = await scene.session()
            with pytest.raises(base.Missing):
                await session.bind(prefix, queue, name="x", window=1, listener=Taker())

    @story
    async def test_a_session_that_ends_in_peace_is_not_lost(self, scene: Scene) -> None:
        """Calls no on_lost and resolves no `lost` on release and close; both may be repeated."""
        await scene.declare()
        session = await scene.session()
        taker = await scene.bind(session=session)
        released = await scene.bind(1, session=session)
        for _ in range(2):
            await released.bound.release()
        for _ in range(2):
            await session.close()
        await taker.bound.release()
        assert taker.reasons == []
        assert released.reasons == []
        assert not session.lost.done()

    @story
    async def test_a_lost_connection_is_reported_once_for_each_link(self, scene: Scene) -> None:
        """Tells every link and the session why, once; release and close then do nothing and raise nothing."""
        await scene.declare()
        session = await scene.session()
        takers = [await scene.bind(queue, session=session) for queue in range(FIRST_PROBE)]
        await scene.broker.cut(session)
        assert await session.lost
        for taker in takers:
            await taker.until_lost()
            await taker.bound.release()
        await session.close()
        assert [len(taker.reasons) for taker in takers] == [1] * FIRST_PROBE


class GivingBack:
    """What is unacknowledged when a link ends comes back first, in order and marked."""

    @story
    async def test_a_released_link_gives_back_in_order(self, scene: Scene) -> None:
        """Delivers to the next link what the last one had, marked, and then what nobody had, unmarked."""
        await scene.declare()
        await scene.publish(*"abcdef")
        first = await scene.bind(window=3)
        await first.until(3)
        await first.bound.release()
        second = await scene.rebind()
        assert await second.until(6) == ["a", "b", "c", "d", "e", "f"]
        assert second.flags == [True] * 3 + [False] * 3

    @story
    async def test_what_was_acknowledged_out_of_order_leaves_holes(self, scene: Scene) -> None:
        """Gives back exactly the unacknowledged ones, in order, also where singles in the middle were acknowledged."""
        await scene.declare()
        await scene.publish(*"abcdefgh")
        first = await scene.bind(window=6)
        await first.until(6)
        first.ack("e")
        first.ack("b")
        first.ack("c")
        await first.until(8)
        await first.bound.release()
        second = await scene.rebind()
        assert await second.until(5) == ["a", "d", "f", "g", "h"]
        assert second.flags == [True] * 5

    @story
    async def test_closing_a_session_gives_back_in_order(self, scene: Scene) -> None:
        """Treats every link of a closed session as released, after its acknowledgements."""
        await scene.declare()
        await scene.publish(*"abcd")
        session = await scene.session()
        first = await scene.bind(session=session, window=3)
        await first.until(3)
        first.ack("a")
        await session.close()
        second = await scene.rebind()
        assert await second.until(3) == ["b", "c", "d"]
        assert second.flags[:2] == [True, True]

    @story
    async def test_a_lost_connection_gives_back_in_order(self, scene: Scene) -> None:
        """Puts what a crashed process held at the head of the queue, marked, before anything later."""
        await scene.declare()
        await scene.publish(*"abcdef")
        session = await scene.session()
        first = await scene.bind(session=session, window=4)
        await first.until(4)
        first.ack("b")
        await scene.until_count(5)
        await scene.broker.cut(session)
        second = await scene.rebind()
        # The window may have been refilled by one before the connection broke.
        assert await second.until(5) == ["a", "c", "d", "e", "f"]
        assert second.flags[:3] == [True] * 3

    @story
    async def test_the_same_messages_can_come_back_many_times(self, scene: Scene) -> None:
        """Keeps order and marks through a chain of owners that acknowledge one message each."""
        await scene.declare()
        await scene.publish(*"abcdef")
        for done in range(6):
            taker = await scene.rebind(window=3)
            want = list("abcdef"[done : done + 3])
            assert await taker.until(len(want)) == want
            taker.ack(want[0])
            await taker.bound.release()
        assert await scene.count() == 0

    @story
    async def test_a_former_owner_cannot_acknowledge(self, scene: Scene) -> None:
        """Ignores acknowledgements through a link that was released or lost: the messages stay with the next owner."""
        await scene.declare()
        await scene.publish(*"abc")
        session = await scene.session()
        released = await scene.bind(session=session)
        await released.until(3)
        await released.bound.release()
        released.ack("a", "b", "c")
        lost_session = await scene.session()
        lost = await scene.rebind(session=lost_session)
        await lost.until(3)
        await scene.broker.cut(lost_session)
        await lost.until_lost()
        lost.ack("a", "b", "c")
        third = await scene.rebind()
        assert await third.until(3) == ["a", "b", "c"]
        assert await scene.count() == 3

    @story
    async def test_nothing_reaches_a_link_after_its_release(self, scene: Scene) -> None:
        """Drops what arrives during and after the release, instead of starting work that belongs to another."""
        await scene.declare()
        session = await scene.session()
        await scene.publish("a")
        taker = await scene.bind(session=session, window=1)
        await taker.until(1)
        taker.ack("a")
        await taker.bound.release()
        await scene.publish("b", "c")
        await scene.settle(session)
        assert taker.bodies == ["a"]
