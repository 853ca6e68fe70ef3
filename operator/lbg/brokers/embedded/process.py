"""The broker as a process: start one as a child and wait until it serves, or be one.

The child says on a pipe, in one line, either where it serves or why it cannot; a person who starts it by hand reads the
same on standard output and standard error. A child dies with the thread that started it (the kernel sends it SIGTERM),
so that a killed parent leaves nothing behind. It leads a session of its own, so that Ctrl-C reaches the parent only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from lbg.brokers import base

START_LIMIT: Final = 30.0
"""Seconds for a broker to serve, on a machine with better things to do; a large store is read through first."""

_ERRORS: Final[dict[str, type[base.BrokerError]]] = {
    error.__name__: error for error in (base.StoreDamaged, base.Refused, base.Unreachable)
}


@dataclass(eq=False)
class BrokerProcess:
    """A broker that serves at `url` in a child process."""

    url: str
    store: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it has not ended yet."""
        return self.process.poll() is None

    def stop(self, timeout: float = 10.0) -> int:
        """End it in the safe way and return its exit code; one that does not end in time is killed. Idempotent."""
        self.process.terminate()
        # A stopped process handles its SIGTERM only once it runs again.
        self.process.send_signal(signal.SIGCONT)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """End it as a crash would (SIGKILL) and return its exit code. Idempotent."""
        self.process.kill()
        return self.process.wait()


def command(
    store: Path,
    listen: str,
    *,
    handover: base.HandoverAbility = base.HandoverAbility.COOPERATIVE,
    heartbeat: float = base.DEFAULT_HEARTBEAT,
) -> list[str]:
    """Return the command line of a broker, for whoever starts it by other means."""
    options = ["--store", str(store), "--listen", listen, "--handover", handover.value, "--heartbeat", str(heartbeat)]
    return [sys.executable, "-m", "lbg.brokers.embedded", *options]


def launch_and_wait(
    store: Path,
    listen: str,
    *,
    handover: base.HandoverAbility = base.HandoverAbility.COOPERATIVE,
    heartbeat: float = base.DEFAULT_HEARTBEAT,
    log: IO[bytes] | int | None = subprocess.DEVNULL,
    timeout: float = START_LIMIT,
) -> BrokerProcess:
    """Start a broker and block until it serves, `timeout` seconds at most; see `launch`."""
    process, ready = _spawn(command(store, listen, handover=handover, heartbeat=heartbeat), log)
    deadline = time.monotonic() + timeout
    line = b""
    with open(ready, "rb", buffering=0) as pipe:
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                break
            chunk = pipe.read(4096)
            if not chunk:
                break
            line += chunk
    return _judge(line, process, store)


async def launch(
    store: Path,
    listen: str,
    *,
    handover: base.HandoverAbility = base.HandoverAbility.COOPERATIVE,
    heartbeat: float = base.DEFAULT_HEARTBEAT,
    log: IO[bytes] | int | None = subprocess.DEVNULL,
) -> BrokerProcess:
    """Start a broker and wait until it serves. It dies with the calling thread at the latest.

    Args:
        store: the SQLite file; created when it is not there.
        listen: `embedded:///path/to.sock`, or `embedded+tcp://127.0.0.1:PORT` (0: any free port, see `url`).
        handover: which of the three abilities it plays.
        heartbeat: seconds of silence after which a peer counts as gone.
        log: where its standard error goes.

    Raises:
        StoreDamaged: the store cannot be used.
        Refused: another broker uses the store or the address, or the address is not local.
        Unreachable: it ended or did not serve in time for another reason.
    """
    # Not in a worker thread: the child is bound to the life of the thread that starts it.
    process, ready = _spawn(command(store, listen, handover=handover, heartbeat=heartbeat), log)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    with os.fdopen(ready, "rb", buffering=0) as pipe:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        line = b""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_LIMIT):
                    line = await reader.readline()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            transport.close()
    return _judge(line, process, store)


# Why `Popen` and not asyncio's subprocesses: those belong to one event loop, and a broker may be started in one loop,
# used in others and stopped in none.


def _spawn(arguments: list[str], log: IO[bytes] | int | None) -> tuple[subprocess.Popen[bytes], int]:
    ready, child_end = os.pipe()
    try:
        process = subprocess.Popen(
            [*arguments, "--ready-fd", str(child_end), "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=(child_end,),
            start_new_session=True,
        )
    except BaseException:
        os.close(ready)
        raise
    finally:
        os.close(child_end)
    return process, ready


def _judge(line: bytes, process: subprocess.Popen[bytes], store: Path) -> BrokerProcess:
    """Turn what the child said about itself into a running broker or into its error."""
    if not line.endswith(b"\n"):
        process.kill()
        process.wait()
        raise base.Unreachable("the broker process did not start in time, or ended without a word")
    said = json.loads(line)
    if "url" in said:
        return BrokerProcess(said["url"], store, process)
    process.wait()
    raise _ERRORS.get(said["error"], base.Unreachable)(said["message"])
