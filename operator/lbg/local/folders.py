"""Run folders: what lies where, how a run is found by its group's name, and whether its supervisor is alive.

A run folder holds everything about one run and nothing about another, so that it can be kept, sent or removed whole.
Runs are found by looking, not by a registry: a list beside the folders could disagree with them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lbg.core.membership import StoreUnavailable
from lbg.local import store
from lbg.local.errors import LocalError, StorageRefused

RUNS: Final = Path(".lbg", "runs")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names inside a run folder."""

    path: Path

    @property
    def state(self) -> Path:
        """Return the state file, see `lbg.local.store`."""
        return self.path / "state.db"

    @property
    def group(self) -> Path:
        """Return the group's YAML as it was when the run started."""
        return self.path / "group.yaml"

    @property
    def events(self) -> Path:
        """Return the run's own log, see `lbg.core.run_log`."""
        return self.path / "events.jsonl"

    @property
    def metrics(self) -> Path:
        """Return the samples over time, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def broker(self) -> Path:
        """Return the embedded broker's file."""
        return self.path / "broker.db"

    @property
    def lock(self) -> Path:
        """Return the file that the supervisor holds locked."""
        return self.path / "run.lock"

    def log(self, name: str) -> Path:
        """Return where a child's standard output and error go."""
        return self.path / "logs" / f"{name}.log"

    @property
    def output(self) -> Path:
        """Return the copy of the group's output stream, in arrival order."""
        return self.path / "output.jsonl"

    def create(self) -> None:
        """Create the folder and what lies in it. Idempotent.

        Raises:
            StorageRefused: it cannot be created or written.
        """
        try:
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
            self.lock.touch()
        except OSError as error:
            raise StorageRefused(f"run folder {self.path}: {explained(error)}; choose another with --dir") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for one supervisor; the kernel lets go of it when the process dies, whatever way.

        Raises:
            LocalError: another supervisor holds it.
        """
        with self.lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                remedy = "stop it first with `lbg stop`, or choose another folder with --dir"
                raise LocalError(f"a run is live in {self.path}: {remedy}") from None
            yield


def fresh(group: str, base: Path, now: datetime) -> RunFolder:
    """Return a folder for a new run of a group; a second run within the same second gets a number."""
    stem = f"{group}-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, 1_000))
    return RunFolder(next(base / RUNS / name for name in names if not (base / RUNS / name).exists()))


def find(group_or_dir: str, base: Path) -> RunFolder:
    """Find a run by its folder, or the live run of a group under `base` or a folder above it.

    Raises:
        LocalError: there is none, it is finished, or several are live.
    """
    if (Path(group_or_dir) / "state.db").exists():
        return _live(RunFolder(Path(group_or_dir)))
    runs = [run for run in _runs(base) if _group(run) == group_or_dir]
    live = [run for run in runs if is_live(run)]
    if len(live) == 1:
        return live[0]
    if live:
        names = ", ".join(str(run.path) for run in live)
        raise LocalError(f"group {group_or_dir} has {len(live)} live runs, name one by its folder: {names}")
    if runs:
        raise LocalError(f"group {group_or_dir} has no live run: the last one, {runs[-1].path}, is finished")
    if os.sep in group_or_dir:
        raise LocalError(f"{group_or_dir} is no run folder: it has no state.db")
    raise LocalError(
        f"no run of group {group_or_dir} under {base / RUNS}: start one with `lbg run`, or name its folder"
    )


def latest(group: str, base: Path) -> RunFolder | None:
    """Return the newest run of a group, live or finished, under `base` or a folder above it; None without one."""
    return next((run for run in reversed(list(_runs(base))) if _group(run) == group), None)


def is_live(run: RunFolder) -> bool:
    """Return whether the supervisor of a run is alive; a process that only reuses its number does not count."""
    try:
        with contextlib.closing(store.open_existing(run.state)) as state:
            who = state.run()
    except StoreUnavailable:
        return False
    return who.ended_ms is None and started(who.pid) == who.started


def started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone or a zombie (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program stands in parentheses and may hold spaces and parentheses itself.
    values = text[text.rindex(")") + 2 :].split()
    return None if values[0] in "ZX" else int(values[19])


def explained(error: OSError) -> str:
    """Return what the system says, without its number and path."""
    return (error.strerror or str(error)).lower()


def _live(run: RunFolder) -> RunFolder:
    if not is_live(run):
        raise LocalError(
            f"the run in {run.path} is finished: start it again with `lbg run GROUP.yaml --dir {run.path}`"
        )
    return run


def _runs(base: Path) -> Iterator[RunFolder]:
    """List run folders under the nearest `.lbg/runs`, oldest first."""
    for folder in (base, *base.absolute().parents):
        if (folder / RUNS).is_dir():
            yield from (RunFolder(path.parent) for path in sorted((folder / RUNS).glob("*/state.db")))
            return


def _group(run: RunFolder) -> str | None:
    try:
        with contextlib.closing(store.open_existing(run.state)) as state:
            return state.run().group
    except StoreUnavailable:
        return None
