"""Real runs for the tests of local mode: a supervisor in a process of its own, looked at through its run folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lbg import publishing
from lbg.core import run_log
from lbg.core.membership import StoreUnavailable
from lbg.core.run_log import RunEvent
from lbg.local import store
from lbg.local.folders import RunFolder

HAPPENS_WITHIN = 30.0
"""Seconds until what was asked for must have happened, on a machine with other things to do."""

LOOK_SECONDS = 0.02
_NEVER = threading.Event()

HANDLERS = """
import asyncio, os, signal
from pathlib import Path

async def echo(event):
    return event.body

async def slow(event):
    await asyncio.sleep(3600)

async def picky(event):
    if event.key == "poison":
        raise ValueError("no poison, please")
    return event.body
"""

START = """
import sys
from pathlib import Path
from lbg.brokers.base import BrokerError
from lbg.local import run
from lbg.local.errors import LocalError

try:
    sys.exit(run.run(run.Options(group=Path("group.yaml"), folder=Path("run"), live=False)))
except (LocalError, BrokerError) as refused:
    sys.exit(f"{type(refused).__name__}: {refused}")
"""


def group_yaml(handler: str = "echo", mode: str = "External", replicas: int = 1, **consumers: object) -> str:
    """Return a small group that uses a handler of `HANDLERS`."""
    spec = {
        "hashing": {"count": 16},
        "queues": {"count": 4},
        "consumers": {
            "replicas": replicas,
            "max": 3,
            "handler": {"python": f"shop:{handler}"},
            "output": {"to": "out"},
            "drainBudget": "5s",
            **consumers,
        },
        "autoscaling": {"mode": mode},
    }
    group = {
        "apiVersion": "lbg.dev/v1alpha1",
        "kind": "LoadBalancedGroup",
        "metadata": {"name": "orders"},
        "spec": spec,
    }
    return json.dumps(group)


def wait_until(is_so: Callable[[], object], what: str) -> None:
    """Look until it is so; fail with `what` after `HAPPENS_WITHIN`."""
    deadline = time.monotonic() + HAPPENS_WITHIN
    while not is_so():
        assert time.monotonic() < deadline, f"never happened: {what}"
        _NEVER.wait(LOOK_SECONDS)  # a busy loop would take the processor from the run


@dataclass
class LiveRun:
    """A run in the folder `base`/run, and what can be seen of it from outside."""

    base: Path
    process: subprocess.Popen[str] | None = None
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.base / "run")

    def start(self, text: str) -> None:
        """Start a supervisor on a group; it need not be up when this returns."""
        (self.base / "group.yaml").write_text(text)
        (self.base / "shop.py").write_text(HANDLERS)
        # A session of its own, as a terminal gives it: signals for the supervisor must not reach the test.
        self.process = subprocess.Popen(
            [sys.executable, "-c", START],
            cwd=self.base,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(self.process)

    def up(self, text: str) -> None:
        """Start a supervisor and wait until all its consumers are seated and connected."""
        self.start(text)
        self.settled()

    def settled(self, count: int | None = None) -> None:
        """Wait until desired, effective and ready agree, and are `count` if that is given."""
        wait_until(lambda: self._is_settled(count), f"settled at {count}")

    def _is_settled(self, count: int | None) -> bool:
        status = self.status()
        numbers = {status.get(name) for name in ("desired", "effective", "ready", "replicas")}
        return len(numbers) == 1 and numbers != {None} and (count is None or numbers == {count})

    def status(self) -> Mapping[str, Any]:
        """Return the status that was published last, empty before the first."""
        try:
            with contextlib.closing(store.open_existing(self.folder.state)) as state:
                return state.document("status") or {}
        except StoreUnavailable:
            return {}

    def processes(self) -> tuple[store.Process, ...]:
        """Return the consumers as the supervisor lists them."""
        with contextlib.closing(store.open_existing(self.folder.state)) as state:
            return state.processes()

    def events(self, kind: str | None = None) -> list[RunEvent]:
        """Return the run's log, or the events of one kind."""
        with contextlib.suppress(FileNotFoundError):
            lines = self.folder.events.read_text().splitlines()
            found = [run_log.from_json(line) for line in lines]
            return [event for event in found if kind in (None, event.kind)]
        return []

    def output(self) -> list[dict[str, Any]]:
        """Return the records of the output so far."""
        return [json.loads(line) for line in self.folder.output.read_text().splitlines()]

    def publish(self, keys: list[str]) -> None:
        """Publish one event per key, and wait for the confirms."""
        with contextlib.closing(store.open_existing(self.folder.state)) as state:
            url = state.run().broker

        async def publish() -> None:
            async with publishing.Producer.open(url, "orders", "test") as producer:
                for number, key in enumerate(keys):
                    await producer.send(key, str(number).encode())

        asyncio.run(publish())

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def ended(self) -> tuple[int, str, str]:
        """Wait for the supervisor's end; return its exit code and what it printed."""
        assert self.process is not None
        out, err = self.process.communicate(timeout=HAPPENS_WITHIN)
        return self.process.returncode, out, err

    def left_behind(self) -> list[str]:
        """Return the command lines of living processes that work in this run's folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.folder.path) in command:
                    found.append(command)
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    """A run that is not started yet, and is gone with all its processes after the test."""
    live = LiveRun(tmp_path)
    yield live
    clear_away(live)


def clear_away(live: LiveRun) -> None:
    """Kill what a test left, by the numbers of the supervisors that it started: their children die with them."""
    for process in live.started:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    wait_until(lambda: not live.left_behind(), "no process of the run is left")
