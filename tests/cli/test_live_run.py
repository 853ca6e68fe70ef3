"""`lbg run` and the commands for a live run, on one real run that all tests here share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lbg.local import folders

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg, Ran

GROUP = """\
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {name: orders}
spec:
  hashing: {count: 16}
  queues: {count: 4}
  consumers: {replicas: 1, max: 3, handler: {republish: {to: out}}}
  autoscaling: {mode: "Off"}
"""

HAPPENS_WITHIN = 60.0
"""Seconds until what was asked of a run must have happened; a consumer starts in about one."""

STATUS = {
    "observedGeneration",
    "desired",
    "effective",
    "replicas",
    "ready",
    "selector",
    "generation",
    "tableVersion",
    "backlog",
    "queueCount",
    "queues",
    "violations",
    "lastPlan",
    "conditions",
}


@dataclass(frozen=True)
class Live:
    """A run that goes on."""

    base: Path
    folder: Path
    process: subprocess.Popen[str]


def until(happened: Callable[[], bool]) -> None:
    """Look until it has happened."""
    deadline = time.monotonic() + HAPPENS_WITHIN
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"


def started(base: Path, installed: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `lbg run` on the group of these tests in a folder of its own."""
    (base / "group.yaml").write_text(GROUP)
    env = {name: value for name, value in os.environ.items() if not name.startswith("LBG_")}
    return subprocess.Popen(
        [installed, "run", "group.yaml", *arguments],
        cwd=base,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Iterator[Live]:
    """One run for all tests below; each of them leaves it as live as it was."""
    base = tmp_path_factory.mktemp("live")
    process = started(base, installed, "-o", "json")
    assert process.stdout is not None
    folder = base / json.loads(process.stdout.readline())["folder"]
    until(lambda: folders.is_live(folders.RunFolder(folder)))
    yield Live(base, folder, process)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=HAPPENS_WITHIN)


@pytest.fixture
def here(live: Live, monkeypatch: pytest.MonkeyPatch) -> Live:
    """The run, with its folder's folder as the working directory."""
    monkeypatch.chdir(live.base)
    return live


def status(lbg: Lbg) -> dict[str, Any]:
    """What `lbg status -o json` shows, once the run has looked at its group for the first time."""
    seen: list[Ran] = []

    def is_there() -> bool:
        seen.append(lbg("status", "orders", "-o", "json"))
        return seen[-1].code == 0

    until(is_there)
    found: dict[str, Any] = json.loads(seen[-1].out)
    return found


def owners_in(found: dict[str, Any]) -> frozenset[str]:
    """The consumers that a status names as owners."""
    return frozenset(queue["owner"] for queue in found["queues"])


def settle(lbg: Lbg, consumers: int, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Wait until so many consumers serve, each queue with an owner and none of `without`, and return the status."""
    seen: list[dict[str, Any]] = [{}]

    def settled() -> bool:
        seen[0] = status(lbg)
        owners = owners_in(seen[0])
        return seen[0]["ready"] == seen[0]["effective"] == len(owners) == consumers and not owners & {None, *without}

    until(settled)
    return seen[0]


@pytest.mark.usefixtures("here")
def test_status_has_the_shape_of_the_object(lbg: Lbg) -> None:
    """The published keys, and per queue owner, standby, epoch and backlog."""
    found = settle(lbg, status(lbg)["desired"])
    assert set(found) >= STATUS
    assert set(found["queues"][0]) >= {"queue", "owner", "ordinal", "standby", "epoch", "backlog"}
    assert len(found["queues"]) == found["queueCount"] == 4


@pytest.mark.usefixtures("here")
def test_status_as_text_has_a_row_per_queue(lbg: Lbg) -> None:
    """The group need not be named while only one run is live here."""
    settle(lbg, status(lbg)["desired"])
    ran = lbg("status")
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()]
    assert {row[0] for row in rows if row} >= {"desired", "queue", "0", "1", "2", "3"}


@pytest.mark.usefixtures("here")
def test_scale_changes_the_number_of_consumers(lbg: Lbg) -> None:
    """Where no autoscaler decides, what was asked for happens, within the bounds of the group."""
    assert lbg("scale", "orders", "2", "-o", "json").code == 0
    settle(lbg, 2)
    answer = json.loads(lbg("scale", "orders", "9", "-o", "json").out)
    assert set(answer) == {"ok", "answer"}
    settle(lbg, 3)


@pytest.mark.usefixtures("here")
def test_killed_consumer_is_replaced(lbg: Lbg) -> None:
    """After SIGKILL the other consumers and a new one serve all queues."""
    lbg("scale", "orders", "2")
    victim = min(owners_in(settle(lbg, 2)))
    assert lbg("kill", "orders", victim).code == 0
    settle(lbg, 2, without=frozenset({victim}))


@pytest.mark.usefixtures("here")
def test_unknown_consumer_cannot_be_killed(lbg: Lbg) -> None:
    """The refusal names it."""
    ran = lbg("kill", "orders", "consumer-0")
    assert ran.code == 1
    assert "consumer-0" in ran.line()


@pytest.mark.usefixtures("here")
def test_rollout_replaces_every_consumer(lbg: Lbg) -> None:
    """Afterwards none of the old ones serves."""
    lbg("scale", "orders", "2")
    before = owners_in(settle(lbg, 2))
    assert lbg("rollout", "orders").code == 0
    settle(lbg, 2, without=before)


@pytest.mark.usefixtures("here")
def test_nothing_is_blocked(lbg: Lbg) -> None:
    """An empty list is an answer; an event that is not blocked cannot be skipped."""
    assert json.loads(lbg("blocked", "orders", "-o", "json").out) == {"blocked": []}
    ran = lbg("skip", "a:1:2:3", "--group", "orders", "--yes")
    assert ran.code == 1
    assert "a:1:2:3" in ran.line()


@pytest.mark.usefixtures("here")
def test_broker_of_the_run_needs_no_url(lbg: Lbg) -> None:
    """`lbg list` finds the embedded broker of the only live run, and a stream in use is not deleted."""
    settle(lbg, status(lbg)["desired"])
    (stream,) = json.loads(lbg("list", "-o", "json").out)["streams"]
    assert stream["prefix"] == "orders"
    refused = lbg("delete", "orders", "--yes")
    assert refused.code == 1
    assert "in use" in refused.line()


def test_published_rows_are_handled_in_order(here: Live, lbg: Lbg) -> None:
    """From a file through the run to the verdict: without a URL, a contract or a number typed twice."""
    (here.base / "rows.csv").write_text("id,at\n" + "".join(f"k{at % 7},{at}\n" for at in range(300)))
    published = lbg("publish", "rows.csv", "--key", "id", "--order", "at", "--group", "orders", "-o", "json")
    assert (published.code, json.loads(published.out)["confirmed"]) == (0, 300)
    source = ["--source", "rows.csv", "--key", "id"]
    verdict: dict[str, Any] = {}

    def is_complete() -> bool:
        verdict.update(json.loads(lbg("verify", here.folder, *source, "-o", "json").out))
        return bool(verdict["gaps"] == 0)

    until(is_complete)
    assert (verdict["events"], verdict["keys"], verdict["order_errors"], verdict["ok"]) == (300, 7, 0, True), verdict


def test_second_run_in_the_same_folder_is_refused(here: Live, lbg: Lbg) -> None:
    """One supervisor per folder, and the one that is there is not disturbed."""
    ran = lbg("run", "group.yaml", "--dir", here.folder)
    assert ran.code == 1
    assert str(here.folder) in ran.line()
    assert here.process.poll() is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_a_run_in_order(tmp_path: Path, installed: Path, number: signal.Signals, code: int) -> None:
    """The code is the signal's, no traceback is shown, and no process is left behind."""
    process = started(tmp_path, installed, "--plain")
    assert process.stdout is not None
    line = ""
    while "consumer-1 started" not in line:
        line = process.stdout.readline()
        assert line, "the run ended before it had a consumer"
    process.send_signal(number)
    _, err = process.communicate(timeout=HAPPENS_WITHIN)
    assert process.returncode == code
    assert "Traceback" not in err
    assert children_of(tmp_path) == []


def test_reader_that_goes_away_ends_the_run(tmp_path: Path, installed: Path) -> None:
    """`lbg run ... | head` leaves no process behind."""
    process = started(tmp_path, installed, "--plain")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as stream:
        err = stream.read()
    assert process.wait(HAPPENS_WITHIN) == 141
    assert err == ""
    assert children_of(tmp_path) == []


def test_stop_ends_the_run(live: Live, lbg: Lbg, monkeypatch: pytest.MonkeyPatch) -> None:
    """When `lbg stop` returns, the run has ended, with code 0. The last test of this run."""
    monkeypatch.chdir(live.base)
    assert lbg("stop", "orders").code == 0
    out, err = live.process.communicate(timeout=HAPPENS_WITHIN)
    assert (live.process.returncode, err) == (0, "")
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert {"consumer-started", "consumer-killed", "rolled-out", "scaled"} <= set(kinds)
    assert lbg("status", "orders").code == 1


def children_of(base: Path) -> list[str]:
    """The command lines of the processes that still have a file below a folder in theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(base) in command:
            found.append(command)
    return found
