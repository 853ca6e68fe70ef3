"""Contract of the handover, one class per ability: who is active, and how the next one becomes it."""

from __future__ import annotations

import pytest

from lbg.brokers import base
from lbg.testing.contract.scene import Scene, story


class _SharedQueue:
    """Where several links may be bound at once."""

    @story
    async def test_only_one_of_many_links_receives(self, scene: Scene) -> None:
        """Delivers to the link that was bound first, and to no other as long as it is bound."""
        await scene.declare()
        first = await scene.bind(name="first", window=2)
        other_session = await scene.session()
        other = await scene.bind(session=other_session, name="other")
        await scene.publish(*"abcd")
        assert await first.until(2) == ["a", "b"]
        await scene.settle(other_session)
        assert other.bodies == []
        state = await scene.until_state(lambda state: state.links in (2, None))
        assert state.active in ("first", None)

    @story
    async def test_a_waiting_link_that_leaves_changes_nothing(self, scene: Scene) -> None:
        """Keeps delivering to the active link when one behind it is released."""
        await scene.declare()
        first = await scene.bind(window=2)
        other = await scene.bind()
        await scene.publish(*"abcd")
        await first.until(2)
        await other.bound.release()
        first.ack("a", "b")
        assert await first.until(4) == ["a", "b", "c", "d"]
        assert first.flags == [False] * 4

    @story
    async def test_a_standby_takes_over_after_a_crash(self, scene: Scene) -> None:
        """Gives what the crashed owner held to the link that waits, in order and marked, without being asked."""
        await scene.declare()
        session = await scene.session()
        first = await scene.bind(session=session, window=2)
        standby = await scene.bind()
        await scene.publish(*"abcd")
        await first.until(2)
        await scene.broker.cut(session)
        assert await standby.until(4) == ["a", "b", "c", "d"]
        assert standby.flags == [True, True, False, False]


class CooperativeHandover(_SharedQueue):
    """Links wait in order of registration; the active one must release."""

    @story
    async def test_links_become_active_in_order_of_registration(self, scene: Scene) -> None:
        """Follows registration only: a higher priority changes nothing."""
        await scene.declare()
        takers = [await scene.bind(name=f"t{at}", window=1, priority=at) for at in range(3)]
        await scene.publish(*"abc")
        for taker, body in zip(takers, "abc", strict=True):
            assert await taker.until(1) == [body]
            taker.ack(body)
            await taker.bound.release()
        assert [taker.bodies for taker in takers] == [["a"], ["b"], ["c"]]

    @story
    async def test_a_planned_move_repeats_nothing(self, scene: Scene) -> None:
        """Hands over unstarted messages without loss, and acknowledged ones never again."""
        await scene.declare()
        first = await scene.bind(window=3)
        second = await scene.bind()
        await scene.publish(*"abcdef")
        await first.until(3)
        first.ack("a")
        await first.bound.release()
        await second.until(5)
        assert second.bodies == ["b", "c", "d", "e", "f"]


class BrokerHandover(_SharedQueue):
    """A strictly higher priority quiesces the active link; the broker switches when it holds nothing."""

    @story
    async def test_a_higher_priority_takes_over_when_the_active_link_holds_nothing(self, scene: Scene) -> None:
        """Delivers nothing more to the old link, waits for its acknowledgements, then switches; nothing is repeated."""
        await scene.declare()
        old_session = await scene.session()
        old = await scene.bind(session=old_session, name="old", window=2, priority=1)
        await scene.publish(*"abcdef")
        await old.until(2)
        new_session = await scene.session()
        new = await scene.bind(session=new_session, name="new", priority=2)
        old.ack("a")
        await scene.settle(old_session)
        await scene.settle(new_session)
        assert old.bodies == ["a", "b"]
        assert new.bodies == []
        old.ack("b")
        assert await new.until(4) == ["c", "d", "e", "f"]
        assert new.flags == [False] * 4
        assert old.bodies == ["a", "b"]
        assert old.reasons == []

    @story
    async def test_an_idle_link_is_superseded_at_once(self, scene: Scene) -> None:
        """Switches without a message having to come by when the active link holds nothing."""
        await scene.declare()
        await scene.bind(name="old", priority=1)
        new = await scene.bind(name="new", priority=2)
        await scene.publish("a")
        assert await new.until(1) == ["a"]

    @story
    async def test_equal_priority_never_switches(self, scene: Scene) -> None:
        """Leaves the queue where it is for an equal or lower number, also between two messages."""
        await scene.declare()
        old = await scene.bind(name="old", priority=5, acks=True)
        others = [await scene.session() for _ in range(2)]
        takers = [
            await scene.bind(session=session, priority=priority)
            for session, priority in zip(others, (5, 4), strict=True)
        ]
        for body in "abc":
            await scene.publish(body)
        assert await old.until(3) == ["a", "b", "c"]
        for session in others:
            await scene.settle(session)
        assert [taker.bodies for taker in takers] == [[], []]

    @story
    async def test_the_highest_priority_is_next(self, scene: Scene) -> None:
        """Activates the highest of the waiting links after a release, the longest bound one of equals."""
        await scene.declare()
        active = await scene.bind(priority=9, window=1)
        low, high, later = [await scene.bind(priority=priority, window=1) for priority in (1, 3, 3)]
        await scene.publish(*"abcd")
        for taker, body in ((active, "a"), (high, "b"), (later, "c"), (low, "d")):
            assert await taker.until(1) == [body]
            taker.ack(body)
            await taker.bound.release()

    @story
    async def test_a_challenger_that_leaves_gives_the_queue_back(self, scene: Scene) -> None:
        """Resumes the quiesced link when the higher priority is gone before the switch."""
        await scene.declare()
        old = await scene.bind(window=1, priority=1)
        await scene.publish(*"ab")
        await old.until(1)
        new = await scene.bind(priority=2)
        await new.bound.release()
        old.ack("a")
        assert await old.until(2) == ["a", "b"]


class ExclusiveHandover:
    """A second bind is refused until the first link has ended."""

    @story
    async def test_a_second_bind_is_refused_until_the_first_link_has_ended(self, scene: Scene) -> None:
        """Refuses while the first link is bound, whatever the priority, and accepts after its release."""
        await scene.declare()
        first = await scene.bind(window=2)
        await scene.publish(*"abc")
        await first.until(2)
        session = await scene.session()
        with pytest.raises(base.BindRefused):
            await scene.bind(session=session, priority=9)
        first.ack("a")
        await first.bound.release()
        second = await scene.rebind(session=session)
        assert await second.until(2) == ["b", "c"]
        assert second.flags == [True, False]

    @story
    async def test_a_queue_is_free_again_after_a_crash(self, scene: Scene) -> None:
        """Accepts the next bind once the broker has noticed that the holder's connection is gone."""
        await scene.declare()
        session = await scene.session()
        first = await scene.bind(session=session, window=2)
        await scene.publish(*"abc")
        await first.until(2)
        await scene.broker.cut(session)
        second = await scene.rebind()
        assert await second.until(3) == ["a", "b", "c"]
        assert second.flags == [True, True, False]
