"""What happens in a run: random steps under load, then everything that was published is handled."""

from __future__ import annotations

import asyncio
import random
import signal
from dataclasses import dataclass
from typing import Final

from bench import staging
from bench.soak.runs import MOST_CONSUMERS, Run
from lbg.local.coordinator import Look
from lbg.local.supervisor import Supervisor

KILL_SHARE: Final = 0.35
START_SECONDS: Final = 30.0


@dataclass(slots=True)
class Course:
    """What was done."""

    kills: int = 0
    steps: int = 0
    published: int = 0
    stuck: str | None = None


class Steps:
    """The story of one run. Call it with a supervisor that has just come up; the exit code says nothing."""

    def __init__(self, run: Run) -> None:
        self.course = Course()
        self._run = run
        self._rng = random.Random(run.seed)
        self._asked = run.shape.fewest

    async def __call__(self, group: Supervisor) -> int:
        """Make the steps; whatever does not happen in time is noted, and ends the run."""
        try:
            await self._tell(group)
        except staging.Stuck as stuck:
            self.course.stuck = str(stuck)
        return 0

    async def _tell(self, group: Supervisor) -> None:
        await staging.until(group, lambda look: bool(look.plan.status.ready), "a consumer connected", START_SECONDS)
        publisher = await staging.Publisher.start(group, self._run.publisher)
        try:
            for _ in range(self._run.shape.steps):
                await asyncio.sleep(self._rng.uniform(0.0, self._run.shape.most_pause))
                self._step(group)
            self.course.published = int((await publisher.stop())["count"])
        finally:
            await publisher.kill()
        staging.scale(group, MOST_CONSUMERS)
        await staging.until(group, lambda look: _is_drained(look, group), "drained", self._run.shape.patience)

    def _step(self, group: Supervisor) -> None:
        # Both are drawn at every step, so that what a kill finds to kill does not shift the steps after it.
        kills, which = self._rng.random() < KILL_SHARE, self._rng.random()
        asked = self._rng.choice([n for n in range(self._run.shape.fewest, MOST_CONSUMERS + 1) if n != self._asked])
        self.course.steps += 1
        members = group.crew.members
        if kills and members:
            victim = members[int(which * len(members))].name
            group.crew.kill(victim, signal.SIGKILL)
            self.course.kills += 1
            return
        self._asked = asked
        staging.scale(group, asked)


def _is_drained(look: Look, group: Supervisor) -> bool:
    # Unknown is not empty. The last process to leave must be gone: what it still says would be missing in the output.
    status = look.plan.status
    return status.backlog == 0 and status.desired == status.effective == status.ready == len(group.crew.members)
