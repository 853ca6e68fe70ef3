"""Contract of the ledger: read and written by the active link only, and never backwards."""

from __future__ import annotations

import pytest

from lbg.brokers import base
from lbg.testing.contract.scene import Scene, Taker, story


async def _owner(scene: Scene, queue: int = 0, session: base.Session | None = None) -> Taker:
    """Bind to a queue and become its owner, which shows by a delivery."""
    await scene.publish("a", queue=queue)
    taker = await scene.rebind(queue, session=session or await scene.session())
    await taker.until(1)
    return taker


class Ledgers:
    """One small durable record per queue."""

    @story
    async def test_a_ledger_is_read_as_it_was_written(self, scene: Scene) -> None:
        """Starts as None, then holds the last entry; the back door sees its bytes."""
        await scene.declare()
        taker = await _owner(scene)
        assert await taker.bound.read_ledger() is None
        assert await scene.broker.ledger(scene.prefix, 0) is None
        for version in (1, 2):
            entry = base.LedgerEntry(1, version, bytes(range(256)) * version)
            await taker.bound.write_ledger(entry)
            assert await scene.broker.ledger(scene.prefix, 0) == entry.data
            assert await taker.bound.read_ledger() == entry

    @story
    async def test_queues_have_ledgers_of_their_own(self, scene: Scene) -> None:
        """Keeps the ledger of one queue apart from its neighbour's."""
        await scene.declare()
        takers = [await _owner(scene, queue) for queue in range(2)]
        for queue, taker in enumerate(takers):
            await taker.bound.write_ledger(base.LedgerEntry(1, 1, b"%d" % queue))
        assert [await scene.broker.ledger(scene.prefix, queue) for queue in range(2)] == [b"0", b"1"]

    @story
    async def test_the_next_owner_reads_what_the_last_one_wrote(self, scene: Scene) -> None:
        """Passes the entry on through a release and through a crash."""
        await scene.declare()
        first = await _owner(scene)
        await first.bound.write_ledger(base.LedgerEntry(1, 1, b"first"))
        await first.bound.release()
        session = await scene.session()
        second = await _owner(scene, session=session)
        assert await second.bound.read_ledger() == base.LedgerEntry(1, 1, b"first")
        await second.bound.write_ledger(base.LedgerEntry(2, 0, b"second"))
        await scene.broker.cut(session)
        third = await _owner(scene)
        assert await third.bound.read_ledger() == base.LedgerEntry(2, 0, b"second")

    @pytest.mark.parametrize(("epoch", "version"), [(2, 5), (2, 4), (1, 9)])
    @story
    async def test_an_entry_that_is_not_newer_is_refused(self, scene: Scene, epoch: int, version: int) -> None:
        """Refuses an equal or lower (epoch, version) as a former owner's, and keeps what is stored."""
        await scene.declare()
        taker = await _owner(scene)
        await taker.bound.write_ledger(base.LedgerEntry(2, 5, b"newer"))
        with pytest.raises(base.LinkLost):
            await taker.bound.write_ledger(base.LedgerEntry(epoch, version, b"older"))
        assert await scene.broker.ledger(scene.prefix, 0) == b"newer"

    @story
    async def test_a_former_owner_can_neither_read_nor_write(self, scene: Scene) -> None:
        """Raises LinkLost for a released and for a lost link, and changes nothing."""
        await scene.declare()
        released = await _owner(scene)
        await released.bound.write_ledger(base.LedgerEntry(1, 1, b"kept"))
        await released.bound.release()
        session = await scene.session()
        lost = await _owner(scene, session=session)
        await scene.broker.cut(session)
        await lost.until_lost()
        for taker in (released, lost):
            with pytest.raises(base.LinkLost):
                await taker.bound.read_ledger()
            with pytest.raises(base.LinkLost):
                await taker.bound.write_ledger(base.LedgerEntry(9, 9, b"stale"))
        assert await scene.broker.ledger(scene.prefix, 0) == b"kept"

    @story
    async def test_a_large_ledger_is_kept_whole(self, scene: Scene) -> None:
        """Takes the marks of many producers: 300 kB."""
        await scene.declare()
        taker = await _owner(scene)
        entry = base.LedgerEntry(1, 1, bytes(range(250)) * 1_200)
        await taker.bound.write_ledger(entry)
        assert await taker.bound.read_ledger() == entry
