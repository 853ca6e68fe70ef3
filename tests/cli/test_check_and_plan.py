"""`lbg check` shows a group with its defaults, `lbg plan` what a change of replicas would move."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

GROUP = """\
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {name: orders}
spec:
  hashing: {count: 64}
  queues: {count: 12}
  consumers:
    replicas: 3
    max: 8
    handler: {republish: {to: out}}
"""


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """A good group in a file."""
    file = tmp_path / "group.yaml"
    file.write_text(GROUP)
    return file


def test_check_fills_in_the_defaults(lbg: Lbg, group: Path) -> None:
    """What is printed is a group's YAML again, with what the author left out."""
    ran = lbg("check", group)
    assert (ran.code, ran.err) == (0, "")
    shown = yaml.safe_load(ran.out)
    assert shown["spec"]["hashing"] == {"count": 64, "algorithm": "xxh64"}
    assert shown["spec"]["consumers"]["window"] == 50


def test_check_accepts_what_it_printed(lbg: Lbg, group: Path) -> None:
    """The completed group is valid, and complete: checking it changes nothing."""
    printed = lbg("check", group).out
    again = lbg("check", "-", stdin=printed)
    assert again.code == 0, again.err
    assert again.out.splitlines()[1:] == printed.splitlines()[1:]


def test_check_gives_the_contract(lbg: Lbg, group: Path) -> None:
    """JSON holds what publishers need, and the whole group."""
    answer = json.loads(lbg("check", group, "-o", "json").out)
    assert set(answer) == {"ok", "source", "contract", "group"}
    assert answer["ok"] is True
    assert answer["contract"] == {"prefix": "orders", "count": 64, "algorithm": "xxh64", "queues": 12}
    assert answer["group"]["spec"]["consumers"]["replicas"] == 3


def test_check_names_each_bad_field_once(lbg: Lbg, tmp_path: Path) -> None:
    """Two bad fields are two lines, and two problems in JSON; the exit code says bad input."""
    file = tmp_path / "bad.yaml"
    file.write_text(GROUP.replace("count: 64", "count: 0").replace("max: 8", "max: many"))
    ran = lbg("check", file, "-o", "json")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 2
    answer = json.loads(ran.out)
    assert set(answer) == {"ok", "source", "problems"}
    assert answer["ok"] is False
    assert {problem["path"] for problem in answer["problems"]} == {"spec.hashing.count", "spec.consumers.max"}
    assert all(set(problem) == {"path", "value", "problem", "remedy"} for problem in answer["problems"])


def test_plan_has_exactly_the_published_keys(lbg: Lbg, group: Path) -> None:
    """from, to, moves with queue, from, to; lower_bound; owners of every queue."""
    answer = json.loads(lbg("plan", group, "--replicas", "3:4", "-o", "json").out)
    assert set(answer) == {"from", "to", "moves", "lower_bound", "owners"}
    assert (answer["from"], answer["to"], answer["lower_bound"]) == (3, 4, 3)
    assert len(answer["moves"]) == 3
    assert all(set(move) == {"queue", "from", "to"} and move["to"] == 3 for move in answer["moves"])
    assert set(answer["owners"]) == {str(queue) for queue in range(12)}
    assert set(answer["owners"].values()) == {0, 1, 2, 3}


def test_plan_starts_at_the_replicas_of_the_file(lbg: Lbg, group: Path) -> None:
    """A single number is the target."""
    answer = json.loads(lbg("plan", group, "--replicas", "4", "-o", "json").out)
    assert (answer["from"], answer["to"]) == (3, 4)


def test_plan_to_zero_leaves_nobody(lbg: Lbg, group: Path) -> None:
    """At zero consumers every queue moves to nobody, which JSON calls null."""
    answer = json.loads(lbg("plan", group, "--replicas", "2:0", "-o", "json").out)
    assert {move["to"] for move in answer["moves"]} == {None}
    assert set(answer["owners"].values()) == {None}


def test_plan_as_text_names_every_move(lbg: Lbg, group: Path) -> None:
    """A person sees the sum, the moves and the holdings."""
    want = json.loads(lbg("plan", group, "--replicas", "3:4", "-o", "json").out)["moves"]
    lines = [line.split() for line in lbg("plan", group, "--replicas", "3:4").out.splitlines()]
    assert all([str(move["queue"]), str(move["from"]), "3"] in lines for move in want)


@pytest.mark.parametrize("step", ["3:13", "x", "3:", ":4", "3:4:5", "-1", "1.5", "٣:٤"])
def test_step_that_makes_no_sense_is_refused(lbg: Lbg, group: Path, step: str) -> None:
    """More consumers than queues, or what is no step at all, gives one line that names the option."""
    ran = lbg("plan", group, f"--replicas={step}")
    assert ran.code == 2
    assert "--replicas" in ran.line()
