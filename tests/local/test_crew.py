"""Consumers as processes: who is replaced at once, who has to wait, and when a group counts as unable to start."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lbg.core import run_log
from lbg.local import children, crew, journal
from lbg.local.children import Child
from lbg.local.crew import Crew
from lbg.local.errors import LocalError
from lbg.local.journal import Journal

HAPPENS_WITHIN = 30.0
LOOK_SECONDS = 0.005
WAITS = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(0)); print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
DIES = "import sys; sys.exit('no module shop')"


class Fixture:
    """A crew of small programs, and its log."""

    def __init__(self, folder: Path) -> None:
        self.program = WAITS
        self.changed = asyncio.Event()
        self.journal = Journal(folder / "events.jsonl")
        self.crew = Crew(self._spawn, self.journal, self.changed.set)
        self._folder = folder

    async def _spawn(self, name: str, uid: str) -> Child:
        return await children.spawn(name, [sys.executable, "-c", self.program], self._folder / f"{name}.log", {})

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(HAPPENS_WITHIN):
            while not is_so():  # noqa: ASYNC110  # other processes set no event
                await asyncio.sleep(LOOK_SECONDS)

    async def up(self, count: int) -> None:
        """Add members and wait until each has set up its signals."""
        await self.crew.add(count)
        await self.until(lambda: all(children.last_words(m.child.log) == "up" for m in self.crew.members))

    def kinds(self) -> list[tuple[str, str | None]]:
        return [(event.kind, event.consumer) for event in self.journal.recent]


def with_crew(folder: Path, scenario: Callable[[Fixture], Awaitable[None]]) -> None:
    """Run a scenario; kill what it left."""

    async def run() -> None:
        fixture = Fixture(folder)
        try:
            await scenario(fixture)
        finally:
            await fixture.crew.kill_all()
            fixture.journal.close()

    asyncio.run(run())


def test_a_member_that_is_told_to_go_leaves_in_order(tmp_path: Path) -> None:
    """SIGTERM is sent once, and its end is noted as a stop and not as a death."""

    async def scenario(f: Fixture) -> None:
        await f.up(2)
        f.crew.remove("consumer-1")
        f.crew.remove("consumer-1")
        assert [member.leaving for member in f.crew.members] == [True, False]
        await f.until(lambda: len(f.crew.members) == 1)
        assert f.kinds()[-1] == (run_log.CONSUMER_STOPPED, "consumer-1")

    with_crew(tmp_path, scenario)


def test_names_are_never_used_twice(tmp_path: Path) -> None:
    """A fresh process is another consumer: the log tells them apart by name."""

    async def scenario(f: Fixture) -> None:
        await f.up(1)
        f.crew.kill("consumer-1", signal.SIGKILL)
        await f.until(lambda: not f.crew.members)
        await f.up(1)
        assert [member.name for member in f.crew.members] == ["consumer-2"]

    with_crew(tmp_path, scenario)


def test_a_kill_is_noted_before_it_is_sent_and_costs_no_patience(tmp_path: Path) -> None:
    """Somebody's SIGKILL is no crash: the next consumer starts at once, however often."""

    async def scenario(f: Fixture) -> None:
        for number in range(1, crew.STUBBORN + 2):
            await f.up(1)
            f.crew.kill(f"consumer-{number}", signal.SIGKILL)
            assert f.kinds()[-1] == (run_log.CONSUMER_KILLED, f"consumer-{number}")
            await f.until(lambda: not f.crew.members)
        assert not f.crew.cannot_start
        assert run_log.CONSUMER_DIED not in [kind for kind, _ in f.kinds()]

    with_crew(tmp_path, scenario)


def test_members_that_die_at_once_are_waited_for_and_their_last_words_repeated(tmp_path: Path) -> None:
    """After the second early death a start is put off; after the third the group counts as unable to start."""

    async def scenario(f: Fixture) -> None:
        f.program = DIES
        await f.crew.add(crew.STUBBORN)
        await f.until(lambda: not f.crew.members)
        assert f.crew.cannot_start
        assert f.crew.trouble == "exit code 1: no module shop"
        assert f.kinds()[-1] == (journal.CRASH_LOOP, None)
        await f.crew.add(1)
        assert f.crew.members == ()

    with_crew(tmp_path, scenario)


def test_a_group_that_has_been_connected_is_never_given_up(tmp_path: Path) -> None:
    """A handler that begins to crash is trouble, not a group that cannot start."""

    async def scenario(f: Fixture) -> None:
        await f.up(1)
        f.crew.show_connected({"consumer-1"})
        f.program = DIES
        await f.crew.add(crew.STUBBORN)
        await f.until(lambda: len(f.crew.members) == 1)
        assert not f.crew.cannot_start
        assert f.crew.trouble is not None
        f.crew.show_connected({"consumer-1"})
        assert f.crew.trouble is None

    with_crew(tmp_path, scenario)


def test_who_does_not_leave_in_time_is_killed(tmp_path: Path) -> None:
    """A drain that never ends must not keep the run from ending; the kill is in the log."""

    async def scenario(f: Fixture) -> None:
        await f.up(1)
        f.program = STUBBORN
        await f.up(1)
        await f.crew.stop_all(grace=0.5)
        assert f.crew.members == ()
        assert (run_log.CONSUMER_STOPPED, "consumer-1") in f.kinds()
        assert (run_log.CONSUMER_KILLED, "consumer-2") in f.kinds()

    with_crew(tmp_path, scenario)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    """The refusal helps whoever mistyped."""

    async def scenario(f: Fixture) -> None:
        await f.up(2)
        with pytest.raises(LocalError, match="no consumer consumer-7 is running; running: consumer-1, consumer-2"):
            f.crew.kill("consumer-7", signal.SIGKILL)

    with_crew(tmp_path, scenario)


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """A child whose parent ended before it could ask the kernel notices that by itself."""

    async def scenario() -> tuple[int, str]:
        program = "import os, sys; from lbg.local import children; print(children.die_with(int(sys.argv[1])))"
        child = await children.spawn("child", [sys.executable, "-c", program, "1"], tmp_path / "log", {})
        return await child.process.wait(), children.last_words(child.log)

    assert asyncio.run(scenario()) == (0, "False")
