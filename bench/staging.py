"""Whole groups for benches and the soak: the real supervisor, real consumer processes, a publisher process.

A *story* runs beside the supervisor, scales and kills, and ends the run. What is here is how to start one, how to wait
for what it should have come to, and the publisher's life.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lbg.brokers.base import HandoverAbility
from lbg.core import assignment, run_log, spec
from lbg.core.run_log import RunEvent
from lbg.local import children, control, folders, run
from lbg.local.children import Child
from lbg.local.coordinator import Look
from lbg.local.pod import URL_VARIABLE
from lbg.local.supervisor import Setting, Supervisor

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHONPATH: Final = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
"""For child processes, which import handlers and publisher from here wherever they are started."""
LOOK_SECONDS: Final = 0.02
PUBLISHER_SECONDS: Final = 30.0  # for its last confirms


class Stuck(Exception):
    """Something that must happen did not happen in time; the message says what."""


class NoScreen:
    """A screen that shows nothing: the run folder has it all."""

    closed = False

    def begin(self, _: Supervisor) -> None:
        """Show nothing."""

    def note(self, _: RunEvent) -> None:
        """Show nothing."""

    def look(self, _: Look) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Give nothing back."""

    def say(self, _: str) -> None:
        """Show nothing."""


async def play(
    text: str, folder: Path, ability: HandoverAbility, environment: Mapping[str, str], story: run.Story
) -> int:
    """Run a group in a folder until its story is over; return the exit code (128 + signal after Ctrl-C)."""
    setting = Setting(
        group=spec.load(text, "the bench's group"),
        text=text,
        source=str(folder / "group.yaml"),
        run=folders.RunFolder(folder),
        handover=ability,
        environment={"PYTHONPATH": PYTHONPATH, **environment},
    )
    return await run.supervise(setting, NoScreen(), story)


async def until(group: Supervisor, is_so: Callable[[Look], bool], what: str, seconds: float) -> None:
    """Wait for a look that shows it.

    Raises:
        Stuck: none did within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while group.look is None or not is_so(group.look):
        if time.monotonic() > deadline:
            raise Stuck(f"not {what} after {seconds:g} s; {group.trouble() or 'nothing was reported'}")
        await asyncio.sleep(LOOK_SECONDS)


def is_settled(group: Supervisor, look: Look) -> bool:
    """Return whether every queue is active at the living consumer that the table names, and nobody is leaving."""
    status = look.plan.status
    if not status.desired == status.effective == status.ready == len(group.crew.members):
        return False
    consumers = look.seen.consumers or ()
    seats = {seat.ordinal: seat for seat in look.seen.seats or ()}
    spec = group.setting.group.spec
    table = assignment.assign(spec.queues.count, status.effective, group.setting.group.name)
    for queue, owner in enumerate(table.owners):
        seat = seats.get(owner)
        if seat is None or queue not in seat.summary.epochs or not any(c.is_holder(seat.holder) for c in consumers):
            return False
    return True


def scale(group: Supervisor, consumers: int) -> None:
    """Ask for a number of consumers, as `lbg scale` does."""
    group.ask(control.SCALE, {"replicas": consumers})


class Publisher:
    """The publisher process of a run."""

    def __init__(self, group: Supervisor, child: Child, rows: Path) -> None:
        self.rows = rows
        self._group = group
        self._child = child

    @staticmethod
    async def start(group: Supervisor, arguments: Sequence[str]) -> Publisher:
        """Start it; `arguments` are those of `bench.publisher` beyond prefix, rows and parent."""
        folder = group.setting.run
        rows = folder.path / "rows.csv"
        command = [sys.executable, "-m", "bench.publisher", "--prefix", group.setting.group.prefix]
        command += ["--rows", str(rows.absolute()), "--parent", str(os.getpid()), *arguments]
        environment = {URL_VARIABLE: group.broker_url, "PYTHONPATH": PYTHONPATH}
        return Publisher(group, await children.spawn("publisher", command, folder.log("publisher"), environment), rows)

    async def stop(self) -> dict[str, float]:
        """Have it confirm everything and end; return what it said. An early end shows here too.

        Raises:
            Stuck: it did not confirm everything.
        """
        self._child.send(signal.SIGTERM)
        return await self.ended(PUBLISHER_SECONDS)

    async def ended(self, seconds: float) -> dict[str, float]:
        """Wait until it has ended by itself. Raises as `stop`."""
        try:
            async with asyncio.timeout(seconds):
                code = await self._child.process.wait()
        except TimeoutError:
            raise Stuck(f"the publisher has not confirmed everything after {seconds:g} s") from None
        if code != 0:
            raise Stuck(f"the publisher failed, {self._child.ending()}")
        said: dict[str, float] = json.loads(children.last_words(self._child.log))
        self._group.journal.note(run_log.PUBLISHED, count=int(said["count"]))
        return said

    async def kill(self) -> None:
        """Make sure that it is gone. Idempotent."""
        if self._child.is_running:
            self._child.kill()
            await self._child.process.wait()
