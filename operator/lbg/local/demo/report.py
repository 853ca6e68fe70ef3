"""The demo's verdict: the validator's table against the source, the course of the scale, and whether everything held.

Nothing is measured here. What is claimed comes from the output, the run's log and the source file, all of which stay in
the run folder: `lbg verify` on it says the same again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lbg import validator
from lbg.core import run_log
from lbg.local.demo.scale import MOST_CONSUMERS, Scale
from lbg.local.demo.story import Course
from lbg.local.folders import RunFolder
from lbg.validator import Verdict


class Claim(NamedTuple):
    """One thing that must hold."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What is shown at the end."""

    verdict: Verdict
    scales: tuple[str, ...]
    claims: tuple[Claim, ...]

    @property
    def ok(self) -> bool:
        """Return whether everything held."""
        return all(claim.holds for claim in self.claims)

    def text(self) -> str:
        """Return the report for a terminal."""
        checks = [f"  {'ok  ' if claim.holds else 'FAIL'}  {claim.text}" for claim in self.claims]
        parts = [validator.render_text(self.verdict), "", "replicas over time", *self.scales, "", "invariants", *checks]
        return "\n".join(parts)


def report(run: RunFolder, scale: Scale, course: Course) -> Report:
    """Verify a finished run against its source. Raises validator.Unusable when a file cannot be read."""
    source = validator.SourceFile(path=run.path / "source.csv")
    options = validator.Options(in_hand_bound=2 * scale.lanes)
    verdict = validator.verify_path(run.path, source=source, options=options)
    return Report(verdict, tuple(_scales(run)), tuple(_claims(verdict, scale, course)))


def _claims(verdict: Verdict, scale: Scale, course: Course) -> Iterator[Claim]:
    yield Claim(
        f"every one of {scale.rows:,} source rows was handled", verdict.events == verdict.published == scale.rows
    )
    yield Claim("no event was handled out of order for its key", verdict.order_errors == 0)
    yield Claim("no event is missing", verdict.gaps == 0)
    yield Claim("no planned move repeated an event", verdict.duplicates_on_planned_moves == 0)
    in_hand = f"SIGKILL repeated at most what may be in hand (2 x {scale.lanes} lanes: handling and confirming)"
    yield Claim(in_hand, course.killed is not None and verdict.duplicates_beyond_in_hand == 0)
    yield Claim(f"the group scaled itself to {MOST_CONSUMERS} consumers", course.highest == MOST_CONSUMERS)
    yield Claim("a rollout replaced every consumer", 0 < course.before_rollout == course.replaced)
    yield Claim("the group scaled itself back to 1 consumer", course.came_back)
    yield Claim("the validator found nothing else", verdict.ok)


def _scales(run: RunFolder) -> Iterator[str]:
    """Return one line per change of the desired CC, with the group's own reason."""
    began: float | None = None
    for line in run.events.read_text(encoding="utf-8").splitlines():
        event = run_log.from_json(line)
        began = event.at_ms if began is None else began
        if event.kind == run_log.SCALED:
            detail = event.detail
            yield f"  {(event.at_ms - began) / 1000:6.1f} s  {detail['from']} -> {detail['to']}  {detail['why']}"


def to_json(made: Report, course: Course, seconds: float) -> str:
    """Return the report as one JSON object: the validator's, with the course of the demo beside it."""
    body = {
        **validator.to_json(made.verdict),
        "demo": {
            "ok": made.ok,
            "seconds": round(seconds, 1),
            "claims": {claim.text: claim.holds for claim in made.claims},
            "scales": [line.strip() for line in made.scales],
            "phases": {name: round(at, 1) for name, at in course.seconds.items()},
        },
    }
    return json.dumps(body, indent=2)
