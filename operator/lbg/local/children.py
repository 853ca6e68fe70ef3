"""Child processes of a run: how they start, how they end, and what they said last.

Every child gets a session of its own, so that Ctrl-C in the terminal reaches the supervisor alone and the order of
leaving is ours. Every child dies with its parent, also when the parent is killed with SIGKILL. What a child prints goes
to a file in the run folder, never to the screen.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lbg.local import folders
from lbg.local.errors import StorageRefused

_TAIL: Final = 4096
_PR_SET_PDEATHSIG: Final = 1  # prctl(2)


@dataclass(frozen=True, slots=True)
class Child:
    """A started process. `born` is monotonic seconds."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    started: int  # clock ticks since boot, see `folders.started`
    born: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        """Return the process number."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Return whether it has not exited yet."""
        return self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal; a process that has just exited is fine."""
        # Not `Process.send_signal`: it polls first, and may take the exit status from asyncio's watcher, which then
        # reports 255 for a process that left in order.
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it and everything it started that stayed in its session's first process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, grace: float) -> bool:
        """Send SIGTERM, and SIGKILL after `grace` seconds. Return whether it left by itself."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()
            return False
        return True

    def ending(self) -> str:
        """Return how it ended, with its last words, as one line."""
        return ending(self.process.returncode, self.log)


async def spawn(name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> Child:
    """Start a process in a session of its own, with its output appended to a file.

    Call it on the main thread: a child dies with the *thread* that started it (prctl(2), PR_SET_PDEATHSIG).

    Raises:
        StorageRefused: the log cannot be opened.
    """
    try:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
            )
    except OSError as error:
        raise StorageRefused(f"{log}: {folders.explained(error)}") from None
    return Child(name, process, log, folders.started(process.pid) or 0)


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends; False when the parent has ended already.

    Called by the child itself, first thing. SIGKILL and not SIGTERM: with the supervisor the broker goes too, so there
    is nobody left to hand over to, and what was not acknowledged is delivered again by the next run.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A parent that ended before the call would never be noticed.
    return os.getppid() == parent


def ending(code: int | None, log: Path) -> str:
    """Return how a process with this exit code ended, with the last words in its log, as one line."""
    if code is None:
        return "still running"
    how = f"signal {_signal_name(-code)}" if code < 0 else f"exit code {code}"
    said = last_words(log) if code > 0 else ""
    return f"{how}: {said}" if said else how


def last_words(log: Path) -> str:
    """Return the last line that is not empty, which is where a program says why it ends; empty if there is none."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = file.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return str(number)
