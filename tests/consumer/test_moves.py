"""Planned moves on a real broker process, in each of the three handover abilities."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from lbg.core.outputs import OutputRecord
from tests.consumer import group as groups

ABILITIES = ["cooperative", "broker", "exclusive"]
KEYS = [f"key-{i}" for i in range(40)]


def faults(records: Sequence[OutputRecord]) -> dict[str, int]:
    """Count what must not be there, from arrival order alone."""
    newest: dict[int, int] = {}
    seen: set[str] = set()
    found = {"order": 0, "duplicates": 0, "unclean": 0}
    for record in records:
        if record.message_id in seen:
            found["duplicates"] += 1
        elif record.sequence < newest.get(record.shard, -1):
            found["order"] += 1
        seen.add(record.message_id)
        newest[record.shard] = max(newest.get(record.shard, -1), record.sequence)
        found["unclean"] += not record.clean
    return found


NO_FAULTS = {"order": 0, "duplicates": 0, "unclean": 0}


@pytest.mark.parametrize("ability", ABILITIES)
def test_scaling_up_and_down_under_load_repeats_and_reorders_nothing(ability: str, tmp_path: Path) -> None:
    """1 -> 2 -> 3 -> 1 consumers while events flow: each once, in order, every takeover clean."""

    async def story() -> list[OutputRecord]:
        async with groups.running_group(tmp_path, ability=ability) as group, group.load(KEYS) as load:
            group.start("a")
            await group.scale(1)
            group.start("b")
            await group.scale(2)
            await group.until_settled()
            group.start("c")
            await group.scale(3)
            await group.until_settled()
            await group.scale(1)
            await group.until_settled()
            return await group.outputs(await load.end())

    records = asyncio.run(story())
    assert faults(records) == NO_FAULTS
    assert len({record.consumer for record in records}) == 3


@pytest.mark.parametrize("ability", ABILITIES)
def test_a_rollout_hands_every_queue_to_the_pod_that_waits_for_the_seat(ability: str, tmp_path: Path) -> None:
    """The new pod claims the offered seat, serves all queues, and nothing is repeated."""

    async def story() -> tuple[list[OutputRecord], set[str | None], int]:
        async with groups.running_group(tmp_path, ability=ability) as group, group.load(KEYS) as load:
            old = group.start("old")
            await group.scale(1)
            await group.until_settled()
            group.start("new")
            code = await old.stop()
            await group.until_settled()
            records = await group.outputs(await load.end())
            return records, set(group.serving().values()), code

    records, serving, code = asyncio.run(story())
    assert (faults(records), code) == (NO_FAULTS, 0)
    assert serving == {"new_uid-new_1"}


@pytest.mark.parametrize("ability", ABILITIES)
def test_suspending_hands_everything_over_at_once_and_resuming_goes_on(ability: str, tmp_path: Path) -> None:
    """A suspended group handles nothing and loses nothing."""

    async def story() -> list[OutputRecord]:
        async with groups.running_group(tmp_path, ability=ability) as group:
            group.start("a")
            await group.scale(1)
            await group.publish(KEYS)
            await group.outputs(len(KEYS))
            group.store.show(suspended=True)
            await group.until(lambda: not group.serving())
            await group.publish(KEYS * 2)
            group.store.show(suspended=False)
            return await group.outputs(3 * len(KEYS))

    assert faults(asyncio.run(story())) == NO_FAULTS
