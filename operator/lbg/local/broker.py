"""The broker of a run: the embedded one as a child process that is kept alive, or one that runs elsewhere.

A broker process that dies is started again on the same file and the same address, with a pause that grows while it dies
at once; its clients reconnect by themselves. What is confirmed survives (see `lbg.brokers.embedded`).
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lbg.brokers import base
from lbg.brokers.embedded import process
from lbg.brokers.embedded.connection import MAX_SOCKET_PATH, UNIX_SCHEME
from lbg.core import run_log
from lbg.local import children, journal
from lbg.local.folders import RunFolder
from lbg.local.journal import Journal

_LOOK_SECONDS: Final = 0.05
_YOUNG: Final = 10.0
_PAUSE: Final = 0.2
_MAX_PAUSE: Final = 10.0
_STOP_GRACE: Final = 10.0


class EmbeddedBroker:
    """Keeps one embedded broker process alive between `start` and `stop`."""

    def __init__(
        self, run: RunFolder, handover: base.HandoverAbility, notes: Journal, on_change: Callable[[], None]
    ) -> None:
        self._run = run
        self._handover = handover
        self._journal = notes
        self._on_change = on_change
        self._folder: Path | None = None  # of the socket, where the run folder's path is too long for one
        self._process: process.BrokerProcess | None = None
        self.url = ""
        self.trouble: str | None = None

    @property
    def pid(self) -> int | None:
        """Return the process number while it runs."""
        return self._process.pid if self._process is not None and self._process.is_running else None

    async def start(self) -> None:
        """Start it and wait until it serves. Raises BrokerError when it cannot."""
        self.url = f"{UNIX_SCHEME}://{urllib.parse.quote(str(self._socket()))}"
        await self._launch()

    async def keep(self) -> None:
        """Start it again whenever it dies; until cancelled."""
        deaths = 0
        while True:
            born = time.monotonic()
            while self._process is not None and self._process.is_running:
                await asyncio.sleep(_LOOK_SECONDS)
                if time.monotonic() - born > _YOUNG:
                    deaths, self.trouble = 0, None
            if self._process is not None:
                why = children.ending(self._process.process.returncode, self._run.log("broker"))
                self._journal.note(run_log.BROKER_DIED, why=why)
                if deaths:
                    self.trouble = f"the broker dies at once: {why}"
            deaths += 1
            self._on_change()
            await asyncio.sleep(min(_MAX_PAUSE, _PAUSE * 2.0 ** (deaths - 1)))
            try:
                await self._launch()
            except base.BrokerError as refused:
                self._process = None
                self.trouble = f"the broker does not start: {refused}"
                self._journal.note(journal.NOTE, broker=f"does not start: {refused}")
            self._on_change()

    async def stop(self) -> None:
        """End it in the safe way, kill it if it does not end. Idempotent."""
        if self._process is not None:
            # Its own wait would block the event loop, and with it a second Ctrl-C.
            self._process.process.terminate()
            self._process.process.send_signal(signal.SIGCONT)  # a stopped one takes its SIGTERM only once it runs
            deadline = time.monotonic() + _STOP_GRACE
            while self._process.is_running and time.monotonic() < deadline:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """End it now. Idempotent."""
        if self._process is not None:
            self._process.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _launch(self) -> None:
        with self._run.log("broker").open("ab") as log:
            self._process = await process.launch(self._run.broker, self.url, handover=self._handover, log=log)
        self._journal.note(run_log.BROKER_STARTED, pid=self._process.pid, handover=self._handover.value)

    def _socket(self) -> Path:
        """Return where to listen: in the run folder, unless the kernel does not take so long a path (unix(7))."""
        inside = self._run.path.absolute() / "broker.sock"
        if len(str(inside).encode()) <= MAX_SOCKET_PATH:
            return inside
        self._folder = Path(tempfile.mkdtemp(prefix="lbg-"))
        return self._folder / "broker.sock"


def shown(url: str) -> str:
    """Return a broker's URL without its credentials and parameters, for people and files."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
