"""How a run ends: in order, at once, or by a kill; no process is left behind and no traceback shown."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from lbg.core import run_log
from lbg.local import journal
from tests.local.conftest import HAPPENS_WITHIN, LiveRun, group_yaml, wait_until

MILESTONES: dict[str, Callable[[LiveRun], bool]] = {
    "the folder is there": lambda run: run.folder.path.is_dir(),
    "the broker has its file": lambda run: run.folder.broker.exists(),
    "the broker serves": lambda run: bool(run.events(run_log.BROKER_STARTED)),
    "a consumer is started": lambda run: bool(run.events(run_log.CONSUMER_STARTED)),
    "everything is up": lambda run: run.status().get("ready") == 2,
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.parametrize(("milestone", "number"), list(zip(MILESTONES, [*CODES, *CODES], strict=False)))
def test_a_signal_ends_the_run_whenever_it_comes(run: LiveRun, milestone: str, number: signal.Signals) -> None:
    """The exit code is the shell's for that signal; nothing is left behind, and nothing but lines was printed."""
    run.start(group_yaml(replicas=2))
    wait_until(lambda: MILESTONES[milestone](run), milestone)
    run.send(number)
    code, out, err = run.ended()
    assert code == CODES[number]
    assert err == ""
    assert "Traceback" not in out
    assert run.left_behind() == []


def test_a_run_ends_consumers_first_and_the_broker_last(run: LiveRun) -> None:
    """Consumers hand over before they go, and every record is in the folder when the run is over."""
    run.up(group_yaml(replicas=2))
    run.publish([f"key-{n}" for n in range(200)])
    wait_until(lambda: len(run.output()) == 200, "everything is handled")
    run.send(signal.SIGINT)
    assert run.ended()[0] == 130
    assert [event.kind for event in run.events()][-4:] == [
        run_log.EFFECTIVE,
        run_log.CONSUMER_STOPPED,
        run_log.CONSUMER_STOPPED,
        journal.RUN_ENDED,
    ]
    assert len(run.output()) == 200
    assert run.left_behind() == []


def test_a_second_signal_ends_the_run_at_once(run: LiveRun) -> None:
    """A handler that does not come back holds up the first Ctrl-C for its drain budget, and the second not at all."""
    run.up(group_yaml("slow", drainBudget="1h"))
    run.publish(["key"])
    wait_until(lambda: run.status().get("backlog") == 1, "the handler has the event")
    run.send(signal.SIGINT)
    wait_until(lambda: run.events(journal.RUN_STOPPING), "the run is ending")
    run.send(signal.SIGINT)
    code, _, err = run.ended()
    assert (code, err) == (130, "")
    assert run.left_behind() == []


def test_a_killed_supervisor_leaves_no_process_behind(run: LiveRun) -> None:
    """The kernel takes consumers and broker down with their parent, also when it had no chance to say so."""
    run.up(group_yaml(replicas=2))
    assert len(run.left_behind()) == 3
    run.send(signal.SIGKILL)
    run.ended()
    wait_until(lambda: run.left_behind() == [], "broker and consumers are gone")


def test_a_closed_standard_output_ends_the_run(run: LiveRun) -> None:
    """`lbg run ... | head` ends as other commands do when their reader goes away."""
    run.up(group_yaml())
    assert run.process is not None
    assert run.process.stdout is not None
    run.process.stdout.close()
    os.kill(run.processes()[0].pid, signal.SIGKILL)  # an event that would be printed
    run.process.wait(HAPPENS_WITHIN)
    assert run.process.returncode == 141
    assert run.left_behind() == []
