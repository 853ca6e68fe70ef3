"""The soak's bookkeeping: which runs there are, what counts as a violation, and going on after an interruption."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import handlers, publisher
from bench.soak import results, runs
from bench.soak.results import Progress, Result
from bench.soak.runs import Run
from bench.soak.steps import Course
from lbg import validator
from lbg.core import spec
from lbg.core.outputs import OutputRecord
from lbg.validator import Verdict

RUN = next(runs.all_runs(1))


def record(sequence: int, consumer: str = "a_u_n", epoch: int = 1, **fields: object) -> OutputRecord:
    """A record of shard 0, handled in a millisecond."""
    values = {
        "message_id": f"p:1:0:{sequence}", "key": "k", "shard": 0, "queue": 0, "epoch": epoch, "producer": "p",
        "incarnation": 1, "sequence": sequence, "consumer": consumer, "ordinal": 0, "attempt": 1, "redelivered": False,
        "first_after_handover": False, "clean": True, "started": 10.0 * sequence, "ended": 10.0 * sequence + 1,
        "published": 0.0,
    }  # fmt: skip
    return OutputRecord(**{**values, **fields})  # type: ignore[arg-type]


def verdict(*records: OutputRecord) -> Verdict:
    """The validator's word on some records, with an empty log: nobody was killed."""
    return validator.verify(records, log=[], options=validator.Options(in_hand_bound=RUN.in_hand_bound))


def judged(found: Verdict, **course: object) -> Result:
    """A result; by default as many events were published as were handled."""
    values = {"kills": 1, "steps": 2, "published": found.events, **course}
    return results.judge(RUN, Course(**values), found, 1.0)  # type: ignore[arg-type]


def test_each_ability_gets_four_runs_of_forty_steps_and_one_of_twenty_five() -> None:
    """Fifteen runs, each ability in turn, every name and seed once."""
    made = list(runs.all_runs(7))
    by_ability: dict[str, list[int]] = {}
    for run in made:
        by_ability.setdefault(run.ability, []).append(run.shape.steps)
    assert by_ability == {name: [40, 40, 40, 40, 25] for name in ("cooperative", "broker", "exclusive")}
    assert len({run.name for run in made}) == len({run.seed for run in made}) == 15


def test_the_seed_of_the_soak_decides_the_seeds_of_its_runs() -> None:
    """The same seed makes the same runs, another one others."""
    assert list(runs.all_runs(7)) == list(runs.all_runs(7))
    assert {run.seed for run in runs.all_runs(7)}.isdisjoint(run.seed for run in runs.all_runs(8))


@pytest.mark.parametrize("run", list(runs.all_runs(1)), ids=lambda run: run.name)
def test_every_run_has_a_group_that_is_valid_and_outlives_its_kills(run: Run) -> None:
    """The YAML is accepted, and an event may be in hand in every death of the run without becoming poison."""
    group = spec.load(run.group, "the soak's group").spec
    assert group.consumers.retry.max_attempts > run.shape.steps
    assert (group.consumers.window, group.consumers.lanes) == (run.shape.window, run.shape.lanes)


def test_a_run_that_holds_is_ok() -> None:
    """In order, complete, as many as were published."""
    assert judged(verdict(record(0), record(1), record(2))).faults == ()


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        ([record(0), record(2), record(1)], "order_errors"),
        ([record(0), record(2)], "gaps"),
        ([record(0), record(1), record(1, "b_u_n", 2)], "duplicates_on_planned_moves"),
        ([record(0), record(1, "b_u_n", 2, started=0.5)], "1 planned moves overlap"),
    ],
    ids=["an order error", "a gap", "a duplicate on a planned move", "two owners at once"],
)
def test_each_violation_is_named(records: list[OutputRecord], fault: str) -> None:
    """What the validator finds is what the row says."""
    assert fault in judged(verdict(*records)).faults


def test_what_was_published_and_never_handled_is_a_violation() -> None:
    """A lost tail opens no gap, so the counts are compared."""
    assert judged(verdict(record(0)), published=2).faults == ("2 events were published and 1 handled",)


def test_a_run_that_gets_stuck_is_a_violation_of_its_own() -> None:
    """Then the counts say nothing, and the reason is kept."""
    assert judged(verdict(record(0)), published=0, stuck="not drained after 60 s").faults == (
        "stuck: not drained after 60 s",
    )


def test_a_soak_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """The finished runs and the seed survive; the rest is missing, in its order."""
    path = tmp_path / "soak" / "progress.json"
    result = judged(verdict(record(0)))
    Progress.load(path, 7).add(result)
    again = Progress.load(path, 8)
    assert (again.seed, again.finished) == (7, [result])
    assert [run.name for run in again.missing(runs.all_runs(7))] == [run.name for run in runs.all_runs(7)][1:]


def test_a_progress_file_that_cannot_be_read_starts_a_new_soak(tmp_path: Path) -> None:
    """Half a file is no reason to fail: what it said is made again."""
    path = tmp_path / "progress.json"
    path.write_text('{"seed": 7, "finished": [{"na')
    assert Progress.load(path, 8) == Progress(path, 8, [])


def test_the_last_line_names_the_runs_that_broke_something() -> None:
    """One line for all: counts, and where to look."""
    good = judged(verdict(record(0)))
    bad = replace(good, name="broker/2", faults=("gaps",))
    assert results.totals([good]).endswith("no violation")
    assert results.totals([good, bad]).endswith("violations in broker/2")


def test_an_event_costs_the_same_wherever_and_however_often_it_is_handled() -> None:
    """The handler time follows from seed, shard and sequence, within its bounds."""
    costs = [handlers.cost(3, shard, sequence, 0.1, 0.2) for shard in range(10) for sequence in range(10)]
    assert costs == [handlers.cost(3, shard, sequence, 0.1, 0.2) for shard in range(10) for sequence in range(10)]
    assert all(0.1 <= cost <= 0.2 for cost in costs)
    assert len(set(costs)) == 100


def test_keys_are_drawn_by_seed() -> None:
    """Two publishers with one seed publish the same keys; all keys come up."""
    one, other = publisher.draw_keys(5, 20), publisher.draw_keys(5, 20)
    drawn = [next(one) for _ in range(2000)]
    assert drawn == [next(other) for _ in range(2000)]
    assert len(set(drawn)) == 20
