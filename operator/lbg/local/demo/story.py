"""What happens during the demo: load rises, one consumer is killed, a rollout replaces all, load falls.

The story watches the group and never scales it. What it saw goes into a `Course`, from which the report is made.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lbg.core import run_log
from lbg.local import children, control
from lbg.local.children import Child
from lbg.local.coordinator import Look
from lbg.local.demo.scale import MOST_CONSUMERS, Scale
from lbg.local.errors import LocalError
from lbg.local.pod import URL_VARIABLE
from lbg.local.supervisor import Supervisor

LOOK_SECONDS: Final = 0.05
PATIENCE: Final = 240.0
"""Seconds that a phase may take beyond the load itself: a machine may be slow, but not stuck."""


@dataclass(slots=True)
class Course:
    """What the story saw."""

    began: float = 0.0  # monotonic
    highest: int = 0  # replicas that were desired, effective and connected at the same time
    killed: str | None = None
    killed_in_hand: int = 0
    before_rollout: int = 0  # consumers that the rollout had to replace
    replaced: int = 0  # of them, those that it did
    came_back: bool = False
    confirmed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # phase -> when it was over, since the beginning


class Story:
    """One telling. Call it with the supervisor of a run that has just come up."""

    def __init__(self, scale: Scale, source: Path, say: Callable[[str], None]) -> None:
        self.course = Course()
        self._scale = scale
        self._source = source
        self._say = say
        self._publishing: asyncio.Future[None] | None = None

    async def __call__(self, run: Supervisor) -> int:
        """Tell the story to its end; return 0. Raises LocalError when a phase does not come to its end."""
        self.course.began = time.monotonic()
        await self._until(run, lambda look: _settled(look) >= 1, "one consumer is connected")
        publisher = await self._start_publisher(run)
        self._publishing = publishing = asyncio.ensure_future(self._await_publisher(run, publisher))
        try:
            await self._at_peak(run, publishing)
            await publishing
            await self._until(run, lambda look: look.plan.status.backlog == 0, "nothing waits any more")
            await self._until(
                run, lambda look: _settled(look) == 1 and len(run.crew.members) == 1, "back to 1 consumer"
            )
            self.course.came_back = True
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            if publisher.is_running:
                publisher.kill()
                await publisher.process.wait()
        return 0

    async def _at_peak(self, run: Supervisor, publishing: asyncio.Future[None]) -> None:
        want = MOST_CONSUMERS
        await self._until(run, lambda look: _settled(look) == want or publishing.done(), f"scaled to {want} consumers")
        await self._calm()
        self._kill_one(run)
        await self._until(run, lambda look: _all_seated(look, self.course.killed), "the killed consumer is replaced")
        await self._calm()
        self._say("demo: rollout, one fresh consumer at a time takes the place of an old one")
        before = {member.name for member in run.crew.members if not member.leaving}
        order = run.ask(control.ROLLOUT, {})
        await self._until(run, lambda _: run.answer_to(order).done, "all consumers are replaced")
        answer = run.answer_to(order)
        if answer.refused:
            raise LocalError(f"demo: the rollout was refused: {answer.answer}")
        self.course.before_rollout = len(before)
        self.course.replaced = len(before - {member.name for member in run.crew.members})

    def _kill_one(self, run: Supervisor) -> None:
        """Kill the consumer that has most in hand: the worst moment that there is to choose."""
        assert run.look is not None
        busiest = max(
            (seat for seat in run.look.seen.seats or () if seat.holder is not None),
            key=lambda seat: (len(seat.summary.epochs), seat.summary.in_hand),
        )
        assert busiest.holder is not None
        name = busiest.holder.rsplit("_", 2)[0]
        in_hand = busiest.summary.in_hand
        self._say(f"demo: SIGKILL to {name}, active on {len(busiest.summary.epochs)} queues, {in_hand} events in hand")
        self.course.killed, self.course.killed_in_hand = name, in_hand
        run.crew.kill(name, signal.SIGKILL)

    async def _start_publisher(self, run: Supervisor) -> Child:
        scale = self._scale
        arguments = [sys.executable, "-m", "lbg.local.demo.load", "--prefix", run.setting.group.prefix]
        arguments += ["--rows", str(scale.rows), "--seconds", str(scale.seconds), "--source", str(self._source)]
        arguments += ["--parent", str(os.getpid())]
        log = run.setting.run.log("publisher")
        return await children.spawn("publisher", arguments, log, {URL_VARIABLE: run.broker_url})

    async def _await_publisher(self, run: Supervisor, publisher: Child) -> None:
        code = await publisher.process.wait()
        if code != 0:
            raise LocalError(f"demo: the publisher ended early, {publisher.ending()}")
        self.course.confirmed = self._scale.rows
        run.journal.note(run_log.PUBLISHED, count=self._scale.rows)
        self._done("all events are published and confirmed")

    async def _until(self, run: Supervisor, is_so: Callable[[Look], bool], what: str) -> None:
        limit = time.monotonic() + self._scale.seconds + PATIENCE
        while run.look is None or not is_so(run.look):
            if run.look is not None:
                self.course.highest = max(self.course.highest, _settled(run.look))
            if self._publishing is not None and self._publishing.done():
                self._publishing.result()  # without the load there is nothing to wait for
            if time.monotonic() > limit:
                raise LocalError(f"demo: gave up waiting until {what}; {run.trouble() or 'see the run folder'}")
            await asyncio.sleep(LOOK_SECONDS)
        self.course.highest = max(self.course.highest, _settled(run.look))
        self._done(what)

    def _done(self, what: str) -> None:
        passed = time.monotonic() - self.course.began
        self.course.seconds[what] = passed
        self._say(f"demo: {what} ({passed:.1f} s)")

    async def _calm(self) -> None:
        await asyncio.sleep(self._scale.calm_seconds)


def _settled(look: Look) -> int:
    """Return the number of consumers if desired, effective and connected agree, else 0."""
    status = look.plan.status
    return status.desired if status.desired == status.effective == status.ready else 0


def _is_alone(run: Supervisor, look: Look) -> bool:
    return _settled(look) == 1 and len(run.crew.members) == 1


def _all_seated(look: Look, killed: str | None) -> bool:
    """Return whether a look that knows of the death sees every seat held by a living consumer again."""
    consumers = look.seen.consumers or ()
    if any(consumer.name == killed for consumer in consumers):
        return False
    seats = [seat for seat in look.seen.seats or () if seat.ordinal < look.plan.status.desired]
    return _settled(look) > 0 and all(any(c.is_holder(seat.holder) for c in consumers) for seat in seats)
