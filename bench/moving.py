"""How long a queue stands still when it moves, on purpose and after SIGKILL: real consumer processes at half load.

The gaps are the validator's (`lbg verify`), from the output records and the run's log. Planned: from the last handler
end at the old owner to the first handler start at the new one; so what was in hand is not in it. Failover: from the
kill to the first handler start at the next owner. Only moves with a backlog count, since without one the gap is the
publisher's. Handlers wait long enough that there is one at most moves.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Final

from bench import figures, handlers, staging
from lbg import validator
from lbg.brokers.base import HandoverAbility
from lbg.local.coordinator import Look
from lbg.local.supervisor import Supervisor
from lbg.validator import Verdict
from lbg.validator.moves import Delays

MOVES: Final = 200
PLANNED_MS: Final = 50.0
FAILOVER_MS: Final = 1000.0
FEW: Final = 2
MANY: Final = 3
QUEUES: Final = 24
LANES: Final = 32
MOST_MS: Final = 200
RATE: Final = int(0.5 * FEW * LANES / (MOST_MS / 2 / 1000))
"""Half of what the smaller number of consumers could handle if the machine did nothing but wait."""
SETTLED_SECONDS: Final = 30.0
STEADY_SECONDS: Final = 0.7  # before a kill, so that every queue has events in hand as in the long run

_GROUP: Final = f"""
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {{name: moving}}
spec:
  hashing: {{count: 256}}
  queues: {{count: {QUEUES}}}
  consumers:
    replicas: {MANY}
    min: {FEW}
    max: {MANY}
    lanes: {LANES}
    handler: {{python: '{handlers.__name__}:waits'}}
    output: {{to: out}}
    retry: {{maxAttempts: 1000, backoff: 10ms}}
  autoscaling: {{mode: External}}
"""


def measure(quick: bool) -> figures.Result:
    """Measure each ability."""
    rounds = 3 if quick else 40
    found = []
    for ability in HandoverAbility:
        verdict = _verdict(ability, rounds)
        # The target of the issue: an exclusive bind is retried until it succeeds, so its gaps are only reported.
        has_target = ability is not HandoverAbility.EXCLUSIVE
        planned, unplanned = verdict.planned_moves, verdict.moves - verdict.planned_moves
        found += _figures(
            f"{ability}: planned", planned, verdict.handover_ms, ("<=", PLANNED_MS) if has_target else None
        )
        found += _figures(
            f"{ability}: failover", unplanned, verdict.failover_ms, ("<", FAILOVER_MS) if has_target else None
        )
    return figures.Result(
        bench="moves",
        about="time without service of a queue that moves while events wait",
        conditions={
            "consumers": f"{FEW} to {MANY} processes",
            "queues": QUEUES,
            "load": f"{RATE} events/s, half of what {FEW} consumers can do",
            "handler": f"async, waits 0 to {MOST_MS} ms, {LANES} lanes",
            "kills": rounds,
            "clock": "wall, output records and run log",
        },
        figures=found,
    )


def _figures(name: str, moves: int, delays: Delays, target: figures.Wanted | None) -> list[figures.Figure]:
    return [
        figures.figure(f"{name} moves", moves, "", (">=", MOVES)),
        figures.figure(f"{name} moves with a backlog", delays.count, ""),
        figures.figure(f"{name} gap, p50", delays.p50, "ms"),
        figures.figure(f"{name} gap, p99", delays.p99, "ms", target),
        figures.figure(f"{name} gap, longest", delays.max, "ms"),
    ]


def _verdict(ability: HandoverAbility, rounds: int) -> Verdict:
    """Run a group, move its queues about, and verify it: a gap of a run that broke order says nothing."""
    folder = Path(tempfile.mkdtemp(prefix="lbg-bench-"))
    story = _Story(rounds)
    try:
        code = asyncio.run(staging.play(_GROUP, folder, ability, {handlers.MOST_VARIABLE: str(MOST_MS)}, story))
    except staging.Stuck as stuck:
        raise staging.Stuck(f"{ability}: {stuck}; run folder {folder}") from None
    if code >= 128:
        shutil.rmtree(folder, ignore_errors=True)
        raise KeyboardInterrupt
    source = validator.SourceFile(path=folder / "rows.csv")
    verdict = validator.verify_path(folder, source=source, options=validator.Options(in_hand_bound=2 * LANES))
    if not verdict.ok:
        raise staging.Stuck(f"{ability}: {', '.join(verdict.faults + verdict.unknown)}; run folder {folder}")
    shutil.rmtree(folder)
    return verdict


class _Story:
    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    async def __call__(self, group: Supervisor) -> int:
        await staging.until(group, lambda look: bool(look.plan.status.ready), "a consumer connected", SETTLED_SECONDS)
        publisher = await staging.Publisher.start(group, ["--rate", str(RATE), "--keys", "2000"])
        try:
            await self._move(group)
            await publisher.stop()
            await staging.until(group, lambda look: look.plan.status.backlog == 0, "drained", SETTLED_SECONDS)
        finally:
            await publisher.kill()
        return 0

    async def _move(self, group: Supervisor) -> None:
        await _settled(group, MANY)
        for number in range(self._rounds):
            await asyncio.sleep(STEADY_SECONDS)
            victim = group.crew.members[number % MANY].name
            group.crew.kill(victim, signal.SIGKILL)
            await _settled(group, MANY, without=victim)
            if number % 4 == 0:
                for consumers in (FEW, MANY):
                    staging.scale(group, consumers)
                    await _settled(group, consumers)


async def _settled(group: Supervisor, consumers: int, *, without: str = "") -> None:
    def is_so(look: Look) -> bool:
        is_gone = all(consumer.name != without for consumer in look.seen.consumers or ())
        return is_gone and look.plan.status.desired == consumers and staging.is_settled(group, look)

    await staging.until(group, is_so, f"settled at {consumers} consumers", SETTLED_SECONDS)
