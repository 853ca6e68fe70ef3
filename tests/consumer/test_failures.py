"""Handlers that fail, and what `onPoison` makes of it, on a real broker process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lbg.core.membership import Request
from tests.consumer import group as groups
from tests.consumer import handlers_for_tests as handlers

HERE = "tests.consumer.handlers_for_tests"
FAILS = f"{{python: '{HERE}:fails_on_demand'}}"


@pytest.fixture(autouse=True)
def _fresh_handlers() -> None:
    handlers.failing.clear()
    handlers.calls.clear()
    handlers.threads.clear()
    handlers.released.clear()


def test_a_failing_event_is_retried_in_place_and_the_shard_keeps_its_order(tmp_path: Path) -> None:
    """Two failures, then success: later events of the key wait, other keys do not."""

    async def story() -> list[str]:
        async with groups.running_group(tmp_path, handler=FAILS) as group:
            handlers.failing["slow"] = 2
            group.start("a")
            await group.scale(1)
            await group.publish(["slow", "slow", "quick", "slow"])
            return [record.message_id for record in await group.outputs(4) if record.key == "slow"]

    ids = asyncio.run(story())
    assert ids == sorted(ids)
    assert [c for c in handlers.calls if c[0] == "slow"] == [
        ("slow", 0, 1), ("slow", 0, 2), ("slow", 0, 3), ("slow", 1, 1), ("slow", 2, 1),
    ]  # fmt: skip


def test_a_poison_event_blocks_its_shard_until_somebody_skips_it(tmp_path: Path) -> None:
    """After maxAttempts the shard is held and reported; skipping records it and lets the next event through."""

    async def story() -> tuple[list[str], list[tuple[str, str]]]:
        async with groups.running_group(tmp_path, handler=FAILS) as group:
            handlers.failing["bad"] = 99
            group.start("a")
            await group.scale(1)
            await group.publish(["bad", "good", "good"])
            await group.outputs(2)
            await group.until(lambda: any(s.summary.blocked for s in group.store.seats.values()))
            blocked = group.store.seats[0].summary.blocked[0]
            handlers.failing["bad"] = 0
            await group.publish(["bad"])
            group.ask(Request("1", "skip", blocked.message_id, "test"))
            await group.until(lambda: group.store.seats[0].summary.answered == {"1": "skipped"})
            records = await group.outputs(4)
            await group.until_drained()
            assert not group.store.seats[0].summary.blocked
            return [blocked.key, blocked.error], [(r.key, r.outcome) for r in records]

    blocked, outcomes = asyncio.run(story())
    assert blocked == ["bad", "ValueError: bad is not for me"]
    assert outcomes == [("good", "handled"), ("good", "handled"), ("bad", "skipped"), ("bad", "handled")]
    assert sum(key == "bad" and sequence == 0 for key, sequence, _ in handlers.calls) == 3


def test_a_new_owner_blocks_at_once_without_calling_the_handler(tmp_path: Path) -> None:
    """The block stands in the ledger, so a planned move does not start the count anew."""

    async def story() -> int:
        async with groups.running_group(tmp_path, handler=FAILS) as group:
            handlers.failing["bad"] = 99
            old = group.start("old")
            await group.scale(1)
            await group.publish(["bad"])
            await group.until(lambda: bool(group.store.seats[0].summary.blocked))
            calls = len(handlers.calls)
            group.start("new")
            await old.stop()
            await group.until(lambda: bool(group.store.seats[0].summary.blocked))
            assert group.store.seats[0].holder == "new_uid-new_1"
            return len(handlers.calls) - calls

    assert asyncio.run(story()) == 0


def test_dead_letters_carry_the_reason_and_no_identity(tmp_path: Path) -> None:
    """After maxAttempts the event is copied aside and acknowledged; its shard goes on."""

    async def story() -> None:
        async with groups.running_group(tmp_path, handler=FAILS, poison="DeadLetter") as group:
            handlers.failing["bad"] = 3
            group.start("a")
            await group.scale(1)
            await group.publish(["bad", "bad"])
            records = await group.outputs(2)
            assert [(r.sequence, r.outcome) for r in records] == [(0, "dead-lettered"), (1, "handled")]
            await group.until_drained()
            (letter,) = await group.admin.dead_letters("orders")
            assert letter.identity is None
            assert letter.headers["lbg-original-key"] == "bad"
            assert letter.headers["lbg-dead-reason"] == "ValueError: bad is not for me"

    asyncio.run(story())


def test_plain_functions_run_in_threads(tmp_path: Path) -> None:
    """A function that is not async never runs on the event loop."""

    async def story() -> None:
        async with groups.running_group(tmp_path, handler=f"{{python: '{HERE}:in_threads'}}") as group:
            group.start("a")
            await group.scale(1)
            await group.publish(["one", "two"])
            await group.outputs(2)

    asyncio.run(story())
    assert handlers.threads
    assert all(name.startswith("handler") for name in handlers.threads)


def test_a_handler_that_raises_system_exit_is_a_failing_handler(tmp_path: Path) -> None:
    """No event may end the process by an exception."""

    async def story() -> None:
        async with groups.running_group(tmp_path, handler=f"{{python: '{HERE}:exits'}}") as group:
            running = group.start("a")
            await group.scale(1)
            await group.publish(["bad", "good"])
            await group.outputs(1)
            await group.until(lambda: bool(group.store.seats[0].summary.blocked))
            assert not running.task.done()

    asyncio.run(story())


def test_a_call_that_outlives_its_connection_keeps_its_shard(tmp_path: Path) -> None:
    """After the broker comes back the event is redelivered, and starts only when the old call has returned."""

    async def story() -> list[tuple[str, int, int]]:
        async with groups.running_group(tmp_path, handler=f"{{python: '{HERE}:waits_for_release'}}") as group:
            group.start("a")
            await group.scale(1)
            await group.publish(["stuck"])
            await group.until(lambda: bool(handlers.calls))
            await group.restart_broker()
            await group.publish(["other", "stuck"])
            await group.outputs(1)
            before = list(handlers.calls)
            handlers.released.set()
            await group.outputs(3)
            return before

    before = asyncio.run(story())
    assert [key for key, _, _ in before] == ["stuck", "other"]
    assert [(key, sequence) for key, sequence, _ in handlers.calls if key == "stuck"] == [
        ("stuck", 0), ("stuck", 0), ("stuck", 1),
    ]  # fmt: skip


def test_an_absent_store_changes_nothing_but_the_reports(tmp_path: Path) -> None:
    """With the membership store away, consumers serve on."""

    async def story() -> None:
        async with groups.running_group(tmp_path) as group:
            group.start("a")
            await group.scale(1)
            await group.publish(["one"])
            await group.outputs(1)
            group.store.away = True
            group.store.touch()
            await group.publish(["one"] * 20)
            assert len(await group.outputs(21)) == 21
            group.store.away = False

    asyncio.run(story())
