"""What came of a run, as a row of the table and as JSON, and the file of those that are finished."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from bench.soak.runs import Run
from bench.soak.steps import Course
from lbg.validator import Verdict

COLUMNS: Final = (
    "ability", "run", "seed", "steps", "kills", "moves planned", "moves unplanned", "events", "order errors", "gaps",
    "duplicates on planned moves", "duplicates", "most after one death", "in-hand bound", "verdict",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One finished run."""

    name: str  # ability/number
    seed: int
    steps: int
    kills: int
    moves_planned: int
    moves_unplanned: int
    events: int
    order_errors: int
    gaps: int
    duplicates_on_planned_moves: int
    duplicates: int
    duplicates_per_death: int
    in_hand_bound: int
    handover_p99_ms: float | None
    failover_p99_ms: float | None
    overlaps: int  # planned moves whose new owner started before the old one's last handler had ended
    seconds: float
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether every invariant held."""
        return not self.faults

    @property
    def row(self) -> tuple[object, ...]:
        """Return the cells of `COLUMNS`."""
        ability, number = self.name.split("/")
        return (
            ability,
            number,
            self.seed,
            self.steps,
            self.kills,
            self.moves_planned,
            self.moves_unplanned,
            self.events,
            self.order_errors,
            self.gaps,
            self.duplicates_on_planned_moves,
            self.duplicates,
            self.duplicates_per_death,
            self.in_hand_bound,
            "ok" if self.ok else ", ".join(self.faults),
        )


def judge(run: Run, course: Course, verdict: Verdict, seconds: float) -> Result:
    """Return the result of a run from what was done and what the validator found."""
    faults = [*verdict.faults, *verdict.unknown]
    if course.stuck is not None:
        faults.append(f"stuck: {course.stuck}")
    elif verdict.events != course.published:
        faults.append(f"{course.published} events were published and {verdict.events} handled")
    if verdict.overlapping_planned_moves:
        faults.append(f"{verdict.overlapping_planned_moves} planned moves overlap")
    return Result(
        name=run.name,
        seed=run.seed,
        steps=course.steps,
        kills=course.kills,
        moves_planned=verdict.planned_moves,
        moves_unplanned=verdict.moves - verdict.planned_moves,
        events=verdict.events,
        order_errors=verdict.order_errors,
        gaps=verdict.gaps,
        duplicates_on_planned_moves=verdict.duplicates_on_planned_moves,
        duplicates=verdict.duplicates,
        duplicates_per_death=verdict.duplicates_per_death,
        in_hand_bound=run.in_hand_bound,
        handover_p99_ms=verdict.handover_ms.p99,
        failover_p99_ms=verdict.failover_ms.p99,
        overlaps=verdict.overlapping_planned_moves,
        seconds=round(seconds, 1),
        faults=tuple(faults),
    )


@dataclass(slots=True)
class Progress:
    """The file of finished runs. Its seed is that of the whole soak."""

    path: Path
    seed: int
    finished: list[Result]

    @staticmethod
    def load(path: Path, seed: int) -> Progress:
        """Read the file; a new soak with this seed where there is none, or where it cannot be read."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return Progress(path, int(stored["seed"]), [_result(values) for values in stored["finished"]])
        except (OSError, ValueError, KeyError, TypeError):
            return Progress(path, seed, [])

    def add(self, result: Result) -> None:
        """Note a finished run; in the file on return, whole even if the machine stops here."""
        self.finished.append(result)
        body = {"seed": self.seed, "finished": [asdict(done) for done in self.finished]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(body, indent=1), encoding="utf-8")
        os.replace(beside, self.path)

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that are not finished, in their order."""
        done = {result.name for result in self.finished}
        return [run for run in runs if run.name not in done]


def _result(values: dict[str, Any]) -> Result:
    known = {field.name for field in fields(Result)}
    return Result(**{**{k: v for k, v in values.items() if k in known}, "faults": tuple(values["faults"])})


def totals(results: Sequence[Result]) -> str:
    """Return one line about all of them."""
    bad = [result.name for result in results if not result.ok]
    counts = f"{len(results)} runs, {sum(r.steps for r in results)} steps, {sum(r.kills for r in results)} kills"
    moves = sum(result.moves_planned + result.moves_unplanned for result in results)
    events = sum(result.events for result in results)
    end = f"violations in {', '.join(bad)}" if bad else "no violation"
    return f"{counts}, {moves} moves, {events} events in {sum(r.seconds for r in results):.0f} s: {end}"
