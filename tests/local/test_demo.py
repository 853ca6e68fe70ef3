"""The demo in small: the same story, the same checks, and a report that would say so if something did not hold."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lbg import validator
from lbg.local.demo import report, scale
from lbg.local.demo.story import Course
from lbg.local.folders import RunFolder

TELL = """
import sys
from pathlib import Path
from lbg.local.demo import telling

sys.exit(telling.run(telling.Options(fast=True, json=True, folder=Path("run"))))
"""
ENDS_WITHIN = 110.0


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], RunFolder]:
    """The small demo, told once."""
    base = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-c", TELL]
    ended = subprocess.run(
        command, cwd=base, capture_output=True, text=True, check=False, timeout=ENDS_WITHIN, start_new_session=True
    )
    return ended, RunFolder(base / "run")


def test_every_invariant_holds(told: tuple[subprocess.CompletedProcess[str], RunFolder]) -> None:
    """1 -> 4 -> 1 by itself, with a kill and a rollout, and every source row in order: exit code 0."""
    ended, _ = told
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["ok"]
    assert all(said["demo"]["claims"].values())
    assert (said["events"], said["order_errors"], said["gaps"]) == (scale.FAST.rows, 0, 0)
    assert said["moves"] > 0


def course(**seen: object) -> Course:
    """Return the course of a demo in which everything happened, but for what is given."""
    whole = Course(highest=4, killed="consumer-1", before_rollout=4, replaced=4, came_back=True)
    return replace(whole, **seen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "fails"),
    [
        ({"highest": 3}, "the group scaled itself to 4 consumers"),
        ({"replaced": 3}, "a rollout replaced every consumer"),
        ({"came_back": False}, "the group scaled itself back to 1 consumer"),
    ],
    ids=["never reached four", "one was not replaced", "stayed large"],
)
def test_a_course_that_falls_short_is_not_ok(
    told: tuple[subprocess.CompletedProcess[str], RunFolder], seen: dict[str, object], fails: str
) -> None:
    """Each claim can fail, and is named when it does."""
    made = report.report(told[1], scale.FAST, course(**seen))
    assert not made.ok
    assert [claim.text for claim in made.claims if not claim.holds] == [fails]
    assert f"FAIL  {fails}" in made.text()


def test_an_output_that_lacks_an_event_is_not_ok(
    told: tuple[subprocess.CompletedProcess[str], RunFolder], tmp_path: Path
) -> None:
    """The comparison with the source finds the one row that is missing, wherever it is."""
    spoiled = RunFolder(tmp_path)
    for name in ("events.jsonl", "source.csv"):
        (tmp_path / name).write_bytes((told[1].path / name).read_bytes())
    lines = told[1].output.read_bytes().splitlines(keepends=True)
    spoiled.output.write_bytes(b"".join(lines[:-1]))
    made = report.report(spoiled, scale.FAST, course())
    assert not made.ok
    assert made.verdict.gaps + made.verdict.duplicates >= 1


def test_verify_says_the_same_again(told: tuple[subprocess.CompletedProcess[str], RunFolder]) -> None:
    """What the demo claims can be checked by hand from what it left."""
    folder = told[1].path
    verdict = validator.verify_path(folder, source=validator.SourceFile(path=folder / "source.csv"))
    assert (verdict.ok, verdict.events) == (True, scale.FAST.rows)


def test_the_peak_is_more_than_one_consumer_can_do() -> None:
    """The stated cost makes three consumers too few at the fit that scaling aims for, and four enough."""
    for size in (scale.FULL, scale.FAST):
        assert size.peak > 2 * size.capacity
        assert 3 < size.peak / 0.8 / size.capacity < 4
