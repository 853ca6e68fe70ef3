"""Run folders: finding the one live run of a group, and telling it from finished, stale and doubled ones."""

import contextlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lbg.local import folders, store
from lbg.local.errors import LocalError, StorageRefused

NOW = datetime(2026, 11, 27, 8, 0, 0, tzinfo=UTC)


def write_run(run: folders.RunFolder, group: str, *, pid: int, started: int, ended_ms: int | None = None) -> None:
    """Create a run folder as a supervisor leaves it."""
    run.create()
    with contextlib.closing(store.create(run.state)) as state:
        state.write_run(store.Run(group, pid, started, 0, "embedded", ended_ms))


def living(run: folders.RunFolder, group: str) -> None:
    """Create the folder of a run that this very process supervises."""
    started = folders.started(os.getpid())
    assert started is not None
    write_run(run, group, pid=os.getpid(), started=started)


def test_two_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    """A new run never takes the folder of another."""
    first = folders.fresh("orders", tmp_path, NOW)
    first.create()
    second = folders.fresh("orders", tmp_path, NOW)
    assert first.path.name == "orders-20261127T080000Z"
    assert second.path.name == "orders-20261127T080000Z-2"


def test_the_live_run_of_a_group_is_found_by_name_from_a_folder_below(tmp_path: Path) -> None:
    """The finished run and the run of another group do not count; the search goes up as git's does."""
    live = folders.fresh("orders", tmp_path, NOW)
    living(live, "orders")
    done = folders.fresh("orders", tmp_path, NOW)
    write_run(done, "orders", pid=os.getpid(), started=1, ended_ms=5)
    living(folders.fresh("other", tmp_path, NOW), "other")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert folders.find("orders", below) == live
    assert folders.find(str(live.path), below) == live


def test_a_run_whose_number_another_process_has_now_is_finished(tmp_path: Path) -> None:
    """A supervisor that was killed left no end; its number alone does not make it live."""
    run = folders.fresh("orders", tmp_path, NOW)
    write_run(run, "orders", pid=os.getpid(), started=1)
    with pytest.raises(LocalError, match=r"no live run: the last one, .*, is finished"):
        folders.find("orders", tmp_path)
    with pytest.raises(LocalError, match="is finished"):
        folders.find(str(run.path), tmp_path)


def test_several_live_runs_of_a_group_are_named(tmp_path: Path) -> None:
    """An order must not go to a run that was picked by chance."""
    runs = []
    for _ in range(2):
        runs.append(folders.fresh("orders", tmp_path, NOW))
        living(runs[-1], "orders")
    with pytest.raises(LocalError, match="2 live runs") as caught:
        folders.find("orders", tmp_path)
    assert all(str(run.path) in str(caught.value) for run in runs)


@pytest.mark.parametrize(("name", "says"), [("orders", "no run of group orders"), ("./x", "is no run folder")])
def test_what_is_not_there_is_one_line(tmp_path: Path, name: str, says: str) -> None:
    """A wrong name and a wrong folder are told apart."""
    with pytest.raises(LocalError, match=says):
        folders.find(name, tmp_path)


def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    """A state file that cannot be read is not a run that could be meant."""
    damaged = folders.fresh("orders", tmp_path, NOW)
    damaged.create()
    damaged.state.write_bytes(b"no database" * 99)
    live = folders.fresh("orders", tmp_path, NOW)
    living(live, "orders")
    assert folders.find("orders", tmp_path) == live


def test_a_folder_has_one_supervisor_at_a_time(tmp_path: Path) -> None:
    """The second is refused while the first holds it, and let in after it has gone."""
    run = folders.RunFolder(tmp_path / "run")
    run.create()
    with run.held(), pytest.raises(LocalError, match="a run is live in"), run.held():
        pytest.fail("two supervisors hold one folder")
    with run.held():
        pass


def test_a_folder_that_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    """The line names the folder and the remedy. A file in its place stops root, too."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageRefused, match="not a directory; choose another with --dir"):
        folders.RunFolder(tmp_path / "file" / "run").create()


def test_a_zombie_counts_as_gone() -> None:
    """A process that has exited and was not reaped yet supervises nothing."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert folders.started(child.pid) is None
    child.wait()
    assert folders.started(child.pid) is None
