"""An event whose handler kills its process: real processes, real SIGKILL."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.consumer import group as groups
from tests.consumer.pods import pods

HANDLER = "{python: 'tests.consumer.handlers_for_tests:kills_its_process'}"
KEYS = [f"innocent-{i}" for i in range(12)]
ATTEMPTS = 2
MOST_DEATHS = 12
"""Every queue's suspects die together at most once unjournalled and once journalled per owner before they run alone."""


@pytest.mark.parametrize("poison", ["DeadLetter", "Block"])
def test_poison_that_kills_its_process_is_set_aside_and_its_neighbours_are_handled(poison: str, tmp_path: Path) -> None:
    """Only deaths while alone count; after maxAttempts of them `onPoison` applies and the group lives on."""

    async def story() -> tuple[set[str], set[str], int]:
        async with groups.running_group(
            tmp_path, handler=HANDLER, queues=4, attempts=ATTEMPTS, poison=poison
        ) as group:  # fmt: skip
            view = replace(group.store.view, desired=2, effective=2, generation=1)
            async with pods(tmp_path, view, group.url, 2) as running:
                await group.publish([*KEYS, "deadly", *KEYS])
                aside = 1 if poison == "DeadLetter" else 0
                handled: set[str] = set()
                outcomes: set[str] = set()
                seen: set[str] = set()
                # Repeats are legal after a crash, so read on until every event was seen.
                async for record in group.follow():
                    seen.add(record.message_id)
                    outcomes.add(record.outcome)
                    if record.outcome == "handled":
                        handled.add(record.key)
                    if len(seen) == 2 * len(KEYS) + aside:
                        break
                if poison == "Block":
                    while not any(seat.summary.blocked for seat in running.look().seats):
                        await group.store.changed(0.02, group.store.version)
                return handled, outcomes, running.deaths

    handled, outcomes, deaths = asyncio.run(asyncio.wait_for(story(), 60))
    assert ATTEMPTS <= deaths <= MOST_DEATHS
    assert ("dead-lettered" in outcomes) is (poison == "DeadLetter")
    assert handled == set(KEYS)
