"""Unplanned ends under load: nothing is lost, nothing is reordered, repeats stay within what was in hand."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.consumer import group as groups
from tests.consumer.pods import pods

KEYS = [f"key-{i}" for i in range(40)]
SLOW = "{python: 'tests.consumer.handlers_for_tests:takes_a_moment'}"
ABILITIES = ["cooperative", "broker", "exclusive"]
LANES = 4


@pytest.mark.parametrize("ability", ABILITIES)
def test_sigkill_repeats_at_most_what_was_in_hand(ability: str, tmp_path: Path) -> None:
    """Two pods, one killed three times while events flow."""

    async def story() -> tuple[int, int, set[str], int]:
        async with groups.running_group(
            tmp_path, handler=SLOW, ability=ability, lanes=LANES, attempts=9
        ) as group:  # fmt: skip
            view = replace(group.store.view, desired=2, effective=2, generation=1)
            async with pods(tmp_path, view, group.url, 2) as running, group.load(KEYS) as load:
                ids: set[str] = set()
                count = 0
                newest: dict[int, int] = {}
                order_errors = kills = 0
                total: int | None = None
                async for record in group.follow():
                    first = record.message_id not in ids
                    order_errors += first and record.sequence < newest.get(record.shard, -1)
                    newest[record.shard] = max(newest.get(record.shard, -1), record.sequence)
                    ids.add(record.message_id)
                    count += 1
                    if kills < 3 and count > 150 * (kills + 1) and running.processes:
                        os.kill(next(iter(running.processes.values())).pid, signal.SIGKILL)
                        kills += 1
                    if kills == 3 and total is None and count > 600:
                        total = await load.end()
                    if total is not None and len(ids) == total:
                        break
                assert total is not None
                return order_errors, count - len(ids), ids, total

    order_errors, repeats, ids, total = asyncio.run(asyncio.wait_for(story(), 100))
    assert (order_errors, len(ids)) == (0, total)
    # In hand is what runs in a lane, and as many again whose output is being confirmed.
    assert repeats <= 3 * 2 * LANES


@pytest.mark.parametrize("ability", ABILITIES)
def test_a_broker_killed_under_load_loses_and_reorders_nothing(ability: str, tmp_path: Path) -> None:
    """kill -9 of the broker while two consumers work: every confirmed event comes, in order."""

    async def story() -> tuple[int, set[str], int]:
        async with groups.running_group(tmp_path, handler=SLOW, ability=ability) as group:
            group.start("a")
            group.start("b")
            await group.scale(2)
            for _ in range(3):
                await group.publish(KEYS * 5)
                await group.restart_broker()
            await group.publish(KEYS)
            total = 16 * len(KEYS)
            newest: dict[int, int] = {}
            ids: set[str] = set()
            order_errors = 0
            async for record in group.follow():
                first = record.message_id not in ids
                order_errors += first and record.sequence < newest.get(record.shard, -1)
                newest[record.shard] = max(newest.get(record.shard, -1), record.sequence)
                ids.add(record.message_id)
                if len(ids) == total:
                    return order_errors, ids, total
            raise AssertionError("the output ended")

    order_errors, ids, total = asyncio.run(asyncio.wait_for(story(), 100))
    assert (order_errors, len(ids)) == (0, total)
