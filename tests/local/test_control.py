"""Control of a live run from another terminal: what is asked goes through the state file and gets one answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbg.core import run_log
from lbg.local import control, folders, journal
from lbg.local.errors import LocalError
from tests.local.conftest import LiveRun, clear_away, group_yaml, wait_until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    """One run that follows what is asked of it; each test leaves it with two settled consumers or more."""
    live = LiveRun(tmp_path_factory.mktemp("control"))
    live.up(group_yaml("picky", replicas=2, retry={"maxAttempts": 1}))
    yield live
    clear_away(live)


def names(live: LiveRun) -> set[str]:
    """Return the names of the consumers that run."""
    return {process.name for process in live.processes()}


@pytest.mark.parametrize(("asked", "granted"), [(3, 3), (99, 3), (0, 1), (2, 2)])
def test_scale_is_granted_within_the_bounds(shared: LiveRun, asked: int, granted: int) -> None:
    """What is asked for beyond min and max is clipped, and the answer says so."""
    answer = control.scale(str(shared.folder.path), asked)
    want = f"replicas {granted}" if asked == granted else f"replicas {granted}: {asked} were asked for"
    assert answer.startswith(want)
    shared.settled(granted)


def test_a_killed_consumer_is_replaced_under_a_new_name(shared: LiveRun) -> None:
    """SIGKILL is noted in the log before it is sent, and the group is whole again."""
    shared.settled(2)
    before = shared.processes()
    answer = control.kill(str(shared.folder.path), before[0].name)
    assert answer == f"sent SIGKILL to {before[0].name} (pid {before[0].pid})"
    wait_until(lambda: len(names(shared) - {p.name for p in before}) == 1, "a fresh consumer took its place")
    shared.settled(2)
    assert before[0].name not in names(shared)
    assert [event.consumer for event in shared.events(run_log.CONSUMER_KILLED)] == [before[0].name]
    assert shared.events(run_log.CONSUMER_DIED) == []


def test_a_rollout_replaces_everybody_and_never_runs_short(shared: LiveRun) -> None:
    """Each consumer leaves only after a fresh one has started: maxSurge 1, maxUnavailable 0."""
    shared.settled(2)
    before, seen = names(shared), len(shared.events())
    assert control.rollout(str(shared.folder.path)).startswith("replaced 2 consumers in ")
    shared.settled(2)
    assert not before & names(shared)
    # Of the running ones never fewer than two: each prefix of the log has at least as many starts as ends.
    steps = [event.kind for event in shared.events()[seen:]]
    for end in range(len(steps)):
        assert steps[:end].count(run_log.CONSUMER_STARTED) >= steps[:end].count(run_log.CONSUMER_STOPPED)


def test_a_blocked_event_is_listed_and_can_be_skipped(shared: LiveRun) -> None:
    """The list names the first error; a skip is recorded with who asked, and lets the shard go on."""
    shared.settled(2)
    target = str(shared.folder.path)
    shared.publish(["poison", "harmless"])
    wait_until(lambda: control.blocked(target), "the event is reported as blocked")
    (blocked,) = control.blocked(target)
    assert (blocked.key, "no poison, please" in blocked.error) == ("poison", True)
    assert control.skip(target, blocked.message_id) == "skipped"
    wait_until(lambda: not control.blocked(target), "nothing is blocked any more")
    wait_until(lambda: len(shared.output()) == 2, "both events have a record")
    assert {record["key"]: record["outcome"] for record in shared.output()} == {
        "poison": "skipped",
        "harmless": "handled",
    }


def test_status_has_the_shape_of_the_object(shared: LiveRun) -> None:
    """The status that other terminals read is the one that the plan made."""
    status = control.status(str(shared.folder.path))
    assert {"desired", "effective", "ready", "queues", "conditions", "lastPlan"} <= set(status)
    assert [queue["queue"] for queue in status["queues"]] == [0, 1, 2, 3]


REFUSED: dict[str, tuple[Callable[[str], str], str]] = {
    "an unknown consumer": (
        lambda path: control.kill(path, "consumer-999"),
        "no consumer consumer-999 is running; running: consumer-",
    ),
    "an event that is not blocked": (lambda path: control.skip(path, "p:1:2:3"), "message p:1:2:3 is not blocked"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_in_one_line(shared: LiveRun, case: str) -> None:
    """The supervisor's refusal reaches whoever asked."""
    ask, says = REFUSED[case]
    with pytest.raises(LocalError, match=says) as caught:
        ask(str(shared.folder.path))
    assert "\n" not in str(caught.value)


def test_a_second_supervisor_is_refused(shared: LiveRun) -> None:
    """One folder has one supervisor; the one that is there goes on."""
    second = LiveRun(shared.base)
    second.start((shared.base / "group.yaml").read_text())
    code, _, err = second.ended()
    assert code == 1
    assert err.startswith("LocalError: a run is live in run")
    assert shared.process is not None
    assert shared.process.poll() is None


def test_autoscaling_overrides_what_a_person_asks(run: LiveRun) -> None:
    """In mode Operator the answer and an event say who decides, and the scale stays."""
    run.up(group_yaml(mode="Operator"))
    answer = control.scale(str(run.folder.path), 3)
    assert answer == "replicas 3 overridden with 1: autoscaling.mode Operator decides"
    assert [event.kind for event in run.events() if event.kind == journal.OVERRIDDEN] == [journal.OVERRIDDEN]
    assert run.status()["desired"] == 1


def test_stop_ends_the_run_and_returns_when_it_is_over(run: LiveRun) -> None:
    """After the answer no process is left; asked again, there is no live run."""
    run.up(group_yaml())
    target = str(run.folder.path)
    assert control.stop(target) == "stopping"
    assert run.ended()[0] == 0
    assert run.left_behind() == []
    with pytest.raises(LocalError, match="is finished"):
        control.kill(target, "consumer-1", signal.SIGTERM)


def test_a_run_that_dies_answers_nobody_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Whoever asks a folder that is no run gets one line at once."""
    (tmp_path / folders.RUNS).mkdir(parents=True)  # the search goes up to the nearest one
    with pytest.raises(LocalError, match="no run of group orders"):
        control.rollout("orders", base=tmp_path)
