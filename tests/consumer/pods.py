"""Real consumer processes for tests, killed by real signals and replaced at once, as a Deployment would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from lbg.core.membership import GroupView, Membership
from lbg.local import folders, pod, store


@dataclass
class Pods:
    """Keeps a number of consumer processes running against one state file."""

    run: folders.RunFolder
    url: str
    state: store.State
    count: int
    deaths: int = 0
    _number: int = 0
    _ending: bool = False
    _keepers: list[asyncio.Task[None]] = field(default_factory=list)
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    def start(self) -> None:
        """Start them all."""
        self._keepers = [asyncio.ensure_future(self._keep()) for _ in range(self.count)]

    def look(self) -> Membership:
        """Read the membership."""
        return self.state.membership()

    async def end(self) -> None:
        """Kill them all."""
        self._ending = True
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*self._keepers)

    async def _keep(self) -> None:
        while not self._ending:
            self._number += 1
            name = f"pod-{self._number}"
            arguments = ["--run", str(self.run.path), "--name", name, "--uid", name, "--parent", str(os.getpid())]
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "lbg.local.pod", *arguments,
                env={**os.environ, pod.URL_VARIABLE: self.url, "PYTHONPATH": str(Path(__file__).parents[2])},
                stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            self.processes[name] = process
            code = await process.wait()
            del self.processes[name]
            self.deaths += code == -signal.SIGKILL and not self._ending
            self._clear(name)

    def _clear(self, name: str) -> None:
        """Free the seat of a pod that is gone, as the coordinator does."""
        for seat in self.look().seats:
            if seat.holder is not None and seat.holder.startswith(f"{name}_"):
                self.state.replace_seat(seat.cleared())


@contextlib.asynccontextmanager
async def pods(folder: Path, view: GroupView, url: str, count: int) -> AsyncIterator[Pods]:
    """Run `count` consumers on seats 0..count-1; everything is gone afterwards."""
    run = folders.RunFolder(folder / "run")
    run.create()
    state = store.create(run.state)
    for ordinal in range(count):
        state.create_seat(ordinal)
    state.write_view(view)
    group = Pods(run, url, state, count)
    group.start()
    try:
        yield group
    finally:
        await group.end()
        state.close()
