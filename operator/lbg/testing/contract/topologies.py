"""Contract of the control plane: declare, join, delete, find, list, observe."""

from __future__ import annotations

from typing import Any

import pytest

from lbg.brokers import base
from lbg.core.contract import MAX_PREFIX
from lbg.core.hashing import Algorithm
from lbg.testing.contract.scene import FIRST_PROBE, QUEUES, Scene, story


class Topologies:
    """Declaring and finding."""

    @story
    async def test_a_declared_topology_is_found_and_listed_as_it_was_declared(self, scene: Scene) -> None:
        """Gives back the same values through find and list."""
        assert await scene.admin.find(scene.prefix) is None
        topology = await scene.declare()
        assert await scene.admin.find(scene.prefix) == topology
        assert topology in await scene.admin.list()

    @story
    async def test_a_listing_is_sorted_by_prefix(self, scene: Scene) -> None:
        """Lists streams by prefix, whatever the order of their declaration."""
        for letter in "cab":
            await scene.declare(prefix=f"{scene.prefix}-{letter}")
        prefixes = [topology.contract.prefix for topology in await scene.admin.list()]
        assert prefixes == sorted(prefixes)
        assert {f"{scene.prefix}-{letter}" for letter in "abc"} <= set(prefixes)

    @story
    async def test_declaring_twice_changes_nothing(self, scene: Scene) -> None:
        """Keeps messages, counters and topology through a second declaration."""
        topology = await scene.declare()
        await scene.publish("a", "b")
        await scene.admin.declare(topology)
        assert await scene.admin.find(scene.prefix) == topology
        assert await scene.count() == 2

    @story
    async def test_a_name_in_use_is_refused_and_its_owner_named(self, scene: Scene) -> None:
        """Refuses a prefix that belongs to somebody else, says to whom, and leaves it as it was."""
        topology = await scene.declare()
        with pytest.raises(base.Conflict) as refused:
            await scene.admin.declare(scene.variant(owner="somebody/else"))
        assert scene.owner in refused.value.message
        assert scene.prefix in refused.value.message
        assert await scene.admin.find(scene.prefix) == topology

    @story
    async def test_every_difference_of_the_contract_is_named(self, scene: Scene) -> None:
        """Refuses another contract from the owner itself, naming each field that differs and none that does not."""
        topology = await scene.declare()
        with pytest.raises(base.Conflict) as refused:
            await scene.admin.declare(scene.variant(count=32, algorithm=Algorithm.CRC32))
        assert {"count", "algorithm"} <= set(refused.value.names)
        assert "queues" not in refused.value.names
        with pytest.raises(base.Conflict) as refused:
            await scene.admin.declare(scene.variant(queues=QUEUES - 1))
        assert "queues" in refused.value.names
        assert await scene.admin.find(scene.prefix) == topology
        assert len(await scene.admin.observe(scene.prefix)) == QUEUES

    @story
    async def test_a_prefix_is_a_name_of_its_own_in_every_letter(self, scene: Scene) -> None:
        """Takes the longest prefix with every kind of character, and keeps it apart from one that differs in case."""
        stem = f"{scene.prefix}.A_b-"
        prefix = stem + "x" * (MAX_PREFIX - len(stem))
        session = await scene.session()
        publisher = session.publisher()
        for copies, name in enumerate((prefix, prefix.upper()), start=1):
            await scene.declare(prefix=name)
            message = scene.outgoing("a").message
            outcomes = await publisher.submit([base.Outgoing(base.ToShard(name, 0), message)] * copies)
            assert outcomes == (base.Outcome.ACCEPTED,) * copies
        assert await scene.broker.count_messages(prefix, 0) == 1
        assert await scene.broker.count_messages(prefix.upper(), 0) == 2


class Joining:
    """A second group on the same stream."""

    @story
    async def test_a_second_group_joins_with_an_equal_contract(self, scene: Scene) -> None:
        """Lets an equal contract in where it says join, lists both groups, and keeps the first one's deletion apart."""
        first = await scene.declare()
        second = await scene.declare(owner="second/group", join=True)
        listed = await scene.admin.list()
        assert first in listed
        assert second in listed
        await scene.admin.delete(scene.prefix, "second/group", only_if_empty=True)
        assert await scene.admin.find(scene.prefix) == first

    @pytest.mark.parametrize(("field", "value"), [("count", 32), ("algorithm", Algorithm.JAVA)])
    @story
    async def test_a_second_group_with_another_contract_is_refused(self, scene: Scene, field: str, value: Any) -> None:
        """Refuses to join with another count or algorithm, and names the field."""
        await scene.declare()
        with pytest.raises(base.Conflict) as refused:
            await scene.admin.declare(scene.variant(owner="second/group", join=True, **{field: value}))
        assert field in refused.value.names


class Deleting:
    """What deletion removes, and when it refuses."""

    @story
    async def test_a_deleted_stream_is_gone(self, scene: Scene) -> None:
        """Leaves nothing to find, observe, bind or publish to."""
        await scene.declare()
        await scene.admin.delete(scene.prefix, scene.owner, only_if_empty=True)
        assert await scene.admin.find(scene.prefix) is None
        with pytest.raises(base.Missing):
            await scene.admin.observe(scene.prefix)
        session = await scene.session()
        with pytest.raises(base.Missing):
            await scene.bind(session=session)
        session = await scene.session()
        outcomes = await session.publisher().submit([scene.outgoing("a")])
        assert outcomes == (base.Outcome.UNROUTABLE,)

    @story
    async def test_deleting_what_is_absent_is_fine(self, scene: Scene) -> None:
        """Succeeds for a stream that never was, and a second time for one that was."""
        await scene.admin.delete(scene.prefix, scene.owner, only_if_empty=True)
        await scene.declare()
        for _ in range(2):
            await scene.admin.delete(scene.prefix, scene.owner, only_if_empty=False)

    @story
    async def test_somebody_elses_stream_is_not_deleted(self, scene: Scene) -> None:
        """Refuses another owner, by name, also where deletion of messages was asked for."""
        topology = await scene.declare()
        with pytest.raises(base.Conflict) as refused:
            await scene.admin.delete(scene.prefix, "somebody/else", only_if_empty=False)
        assert scene.owner in refused.value.message
        assert await scene.admin.find(scene.prefix) == topology

    @story
    async def test_a_stream_with_messages_is_kept_when_only_an_empty_one_may_go(self, scene: Scene) -> None:
        """Names the queues and their counts, unacknowledged ones included, and deletes nothing at all."""
        topology = await scene.declare()
        await scene.publish("a", "b", queue=1)
        await scene.publish("c", queue=2)
        taker = await scene.bind(2)
        await taker.until(1)
        await scene.until_state(lambda state: state.backlog == 2, queue=1)
        with pytest.raises(base.NotEmpty) as refused:
            await scene.admin.delete(scene.prefix, scene.owner, only_if_empty=True)
        assert refused.value.remaining == {1: 2, 2: 1}
        assert await scene.admin.find(scene.prefix) == topology
        assert [await scene.count(queue) for queue in range(3)] == [0, 2, 1]

    @story
    async def test_deletion_ends_links(self, scene: Scene) -> None:
        """Takes messages along where that was asked for, and tells the bound link that it is lost."""
        await scene.declare()
        await scene.publish("a", "b")
        taker = await scene.bind(window=1)
        await taker.until(1)
        await scene.admin.delete(scene.prefix, scene.owner, only_if_empty=False)
        assert await taker.until_lost()
        with pytest.raises(base.LinkLost):
            await taker.bound.write_ledger(base.LedgerEntry(1, 1, b""))


class Observing:
    """Figures, and that unknown is not 0."""

    def test_an_unknown_figure_makes_the_backlog_unknown(self) -> None:
        """Never adds a missing figure up as 0."""
        assert base.QueueState(0, None, 3).backlog is None
        assert base.QueueState(0, 3, None).backlog is None
        assert base.QueueState(0, 0, 0).backlog == 0

    @story
    async def test_a_missing_stream_has_no_figures(self, scene: Scene) -> None:
        """Raises for a stream that does not exist: its backlog is not 0."""
        with pytest.raises(base.Missing):
            await scene.admin.observe(scene.prefix)

    @story
    async def test_figures_follow_what_happens(self, scene: Scene) -> None:
        """Counts ready, unacknowledged, links and accepted messages, and names the active link."""
        await scene.declare()
        states = await scene.admin.observe(scene.prefix)
        assert [state.queue for state in states] == list(range(QUEUES))
        await scene.publish("a", "b", "c")
        await scene.until_state(lambda state: state.backlog == 3)
        taker = await scene.bind(window=2, name="l'hôte ☂ actif")
        await taker.until(2)
        state = await scene.until_state(lambda state: state.unacknowledged == 2 and state.ready == 1)
        assert state.links in (1, None)
        assert state.active in ("l'hôte ☂ actif", None)
        taker.ack("a", "b")
        await taker.until(3)
        await scene.until_state(lambda state: state.unacknowledged == 1 and state.ready == 0)
        taker.ack("c")
        state = await scene.until_state(lambda state: state.backlog == 0)
        assert state.published in (3, None)
        await taker.bound.release()
        await scene.until_state(lambda state: state.links in (0, None) and state.active is None)

    @story
    async def test_queues_are_counted_apart(self, scene: Scene) -> None:
        """Gives each queue its own figures, by index."""
        await scene.declare()
        for queue in range(FIRST_PROBE):
            await scene.publish(*"x" * (queue + 1), queue=queue)
        for queue in range(FIRST_PROBE):
            await scene.until_state(lambda state, want=queue + 1: state.ready == want, queue=queue)  # type: ignore[misc]
