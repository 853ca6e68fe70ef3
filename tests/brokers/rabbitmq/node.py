"""A private RabbitMQ node for tests: its own ports, folder, cookie and node name; never the system's service.

The distribution's server program is started directly; its wrapper wants the rabbitmq user and the system's data folder.
The Erlang port mapper is private as well, and both end with the node, also after a crash of the test run (a guard
process watches for that). Statistics are sampled often, since tests wait for them.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pytest

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PATIENCE: Final = 60.0  # seconds a start may take on a busy machine
USER: Final = "guest"

CONFIG: Final = """\
listeners.tcp.default = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {http}
collect_statistics_interval = 250
management.rates_mode = basic
loopback_users = none
log.console.level = warning
"""

# Quorum queues report their figures by a tick of their own, which has no key in the other file.
ADVANCED: Final = "[{rabbit, [{quorum_tick_interval, 250}]}].\n"

# Waits for the end of the test process by end-of-file on its input, then ends the node's group and the port mapper's.
# Python and not a shell: dash cannot kill a process group.
GUARD: Final = """
import contextlib, os, shutil, signal, sys
sys.stdin.read()
for group in sys.argv[2:]:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(group), signal.SIGKILL)
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


@functools.cache
def require_server() -> None:
    """Install Debian's server where that is possible; skip the test where it is not."""
    if SERVER.exists():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("RabbitMQ is not installed, and installing it needs root and apt-get")
    print("installing rabbitmq-server with apt-get for the tests (the system's service is not started)")
    # A policy of exit code 101 keeps the package from starting its service.
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder, "policy-rc.d")
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "POLICYRCD": str(policy)}
        for command in (["update"], ["install", "-y", "--no-install-recommends", "rabbitmq-server"]):
            done = subprocess.run(
                ["apt-get", "-q", *command], env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"apt-get {command[0]} failed: {done.stderr.strip().splitlines()[-1:]}")


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Node:
    """One node in a folder of its own."""

    def __init__(self) -> None:
        require_server()
        self.folder = Path(tempfile.mkdtemp(prefix="lbg-rabbitmq-"))
        self.amqp, self.http, self._dist, self._mapper_port = (free_port() for _ in range(4))
        self.environment = self._prepare()
        self._mapper = subprocess.Popen(
            [shutil.which("epmd") or "/usr/bin/epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1"],
            env=self.environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.start()

    def _prepare(self) -> dict[str, str]:
        at = self.folder
        (at / "rabbitmq.conf").write_text(CONFIG.format(amqp=self.amqp, http=self.http))
        (at / "advanced.config").write_text(ADVANCED)
        (at / "plugins").write_text("[rabbitmq_management].\n")
        cookie = at / ".erlang.cookie"
        cookie.write_text(os.urandom(12).hex())
        cookie.chmod(0o400)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(at),
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": f"lbg-{self.amqp}@localhost",
            "RABBITMQ_DIST_PORT": str(self._dist),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(at / "data"),
            "RABBITMQ_LOG_BASE": str(at / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(at / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(at / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(at / "advanced.config"),
            # Two schedulers and no busy waiting: other tests share the machine.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
        }

    @property
    def url(self) -> str:
        """Return the broker URL, with where the management API is."""
        return f"amqp://{USER}:{USER}@127.0.0.1:{self.amqp}/?management=http://127.0.0.1:{self.http}"

    def start(self) -> None:
        """Start on what is stored, and wait until both ports answer."""
        log = (self.folder / "console.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [str(SERVER)],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        groups = [str(self._process.pid), str(self._mapper.pid)]
        command = [sys.executable, "-c", GUARD, str(self.folder), *groups]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        deadline = time.monotonic() + PATIENCE
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self.folder / "console.log").read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"the private RabbitMQ node did not start:\n{tail}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)

    def _is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.amqp), 1):
                pass
            connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=2)
            with contextlib.closing(connection):
                connection.request("GET", "/api/overview")
                return connection.getresponse().status == 401
        except OSError:
            return False

    def kill(self) -> None:
        """End the node with SIGKILL, as a power cut of the process would."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        self._end_guard()

    def _end_guard(self) -> None:
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard = None

    def stop(self) -> None:
        """End everything and remove the folder. What is stored is not needed, so nothing is asked politely."""
        self.kill()
        self._mapper.kill()
        self._mapper.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
