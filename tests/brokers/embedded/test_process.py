"""The broker as a process: how it starts, what it refuses, how it ends, and with whom."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lbg.brokers import base
from lbg.brokers.embedded import process, protocol
from lbg.brokers.embedded.client import EmbeddedAdapter

WAIT_LIMIT = 30.0
"""Seconds in which a process must do what it is about to do; only a hang reaches it."""


async def _names_through(url: str) -> list[str]:
    admin = await EmbeddedAdapter().open_admin(url)
    names = [topology.contract.prefix for topology in await admin.list()]
    await admin.close()
    return names


def run_by_hand(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected to refuse, as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "lbg.brokers.embedded", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT,
        check=False,
    )


def assert_one_line(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    for word in words:
        assert word in ended.stderr


def test_it_serves_a_socket_and_leaves_nothing_behind(folder: Path) -> None:
    """Serves as soon as launch returns; SIGTERM ends it with 0 and removes the socket and SQLite's side files."""
    broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
    ran = broker.is_running  # asserted by name: a type checker would take the property to stay true
    assert ran
    assert asyncio.run(_names_through(broker.url)) == []
    assert os.stat(folder / "socket").st_mode & 0o077 == 0
    assert broker.stop() == 0
    assert not broker.is_running
    assert os.listdir(folder) == ["store.db"]


def test_launch_waits_without_blocking_the_loop(folder: Path) -> None:
    """Lets other tasks run while the process starts."""

    async def main() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        broker = await process.launch(folder / "store.db", f"embedded://{folder}/socket", log=None)
        counting.cancel()
        assert await _names_through(broker.url) == []
        broker.kill()
        return turns

    assert asyncio.run(main()) > 1


def test_launch_raises_what_the_process_says(folder: Path) -> None:
    """Turns the refusal of the process into the error of its kind, without waiting for the limit."""
    (folder / "store.db").write_text("precious")
    with pytest.raises(base.StoreDamaged, match="corrupt"):
        asyncio.run(process.launch(folder / "store.db", f"embedded://{folder}/socket"))


def test_it_serves_a_free_port_of_the_loopback_interface(folder: Path) -> None:
    """Finds a port for 0 and says which."""
    broker = process.launch_and_wait(folder / "store.db", "embedded+tcp://127.0.0.1:0", log=None)
    try:
        assert re.fullmatch(r"embedded\+tcp://127\.0\.0\.1:[1-9]\d+", broker.url)
        assert asyncio.run(_names_through(broker.url)) == []
    finally:
        broker.stop()


def test_a_person_who_starts_it_reads_one_line(folder: Path) -> None:
    """Says on standard output where it serves; Ctrl-C (SIGINT) ends it with 0."""
    arguments = ["--store", str(folder / "store.db"), "--socket", str(folder / "socket"), "--handover", "exclusive"]
    broker = subprocess.Popen(
        [sys.executable, "-m", "lbg.brokers.embedded", *arguments], stdout=subprocess.PIPE, text=True
    )
    with broker:
        assert broker.stdout is not None
        assert str(folder / "socket") in broker.stdout.readline()
        broker.send_signal(signal.SIGINT)
        assert broker.wait(WAIT_LIMIT) == 0
        assert broker.stdout.read() == ""


def test_it_dies_with_the_process_that_launched_it(folder: Path) -> None:
    """Leaves no broker behind when its parent is killed."""
    url = f"embedded://{folder}/socket"
    script = (
        "import signal, sys; from pathlib import Path; from lbg.brokers.embedded import process\n"
        f"broker = process.launch_and_wait(Path({str(folder / 'store.db')!r}), {url!r})\n"
        "print(broker.pid, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watch = os.pidfd_open(pid)
        parent.kill()
    ended = asyncio.run(_until_readable(watch))
    os.close(watch)
    assert ended


async def _until_readable(descriptor: int) -> bool:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        async with asyncio.timeout(WAIT_LIMIT):
            return await event.wait()
    finally:
        loop.remove_reader(descriptor)


def test_it_is_out_of_reach_of_the_terminal(folder: Path) -> None:
    """Leads a session of its own, so that Ctrl-C at the parent's terminal is the parent's to handle."""
    broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
    try:
        assert os.getsid(broker.pid) == broker.pid
    finally:
        broker.stop()


def test_stopping_works_on_a_stopped_process_and_twice(folder: Path) -> None:
    """Ends a broker that SIGSTOP holds; a second stop or kill changes nothing."""
    broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
    os.kill(broker.pid, signal.SIGSTOP)
    assert broker.stop() == 0
    assert broker.stop() == 0
    assert broker.kill() == 0


def test_the_socket_of_a_dead_broker_is_taken_over(folder: Path) -> None:
    """Removes a socket that nobody serves any more and takes its place."""
    url = f"embedded://{folder}/socket"
    process.launch_and_wait(folder / "store.db", url, log=None).kill()
    assert (folder / "socket").is_socket()
    broker = process.launch_and_wait(folder / "store.db", url, log=None)
    assert asyncio.run(_names_through(url)) == []
    assert broker.stop() == 0


def test_a_broker_leaves_another_ones_socket_alone(folder: Path) -> None:
    """Does not remove at its end a socket that has taken the place of its own."""
    broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
    (folder / "socket").unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "socket"))
        assert broker.stop() == 0
        assert (folder / "socket").is_socket()


class TestRefusals:
    """What stands in the way at start: one line, exit code 1, the same line as an error for who launched it."""

    def refuse(self, folder: Path, error: type[base.BrokerError], store: Path, url: str, *words: str) -> None:
        with pytest.raises(error) as refused:
            process.launch_and_wait(store, url, log=subprocess.DEVNULL)
        for word in words:
            assert word in refused.value.message
        assert_one_line(run_by_hand("--store", str(store), "--listen", url), *words)

    def test_a_socket_that_another_broker_serves(self, folder: Path) -> None:
        """Refuses a busy socket and leaves its broker alone."""
        url = f"embedded://{folder}/socket"
        broker = process.launch_and_wait(folder / "store.db", url, log=None)
        self.refuse(folder, base.Refused, folder / "other.db", url, "another broker", str(folder / "socket"))
        assert asyncio.run(_names_through(url)) == []
        broker.stop()

    def test_a_store_that_another_broker_has_open(self, folder: Path) -> None:
        """Refuses a second broker on one file."""
        broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
        self.refuse(folder, base.Refused, folder / "store.db", f"embedded://{folder}/other", "in use", "store.db")
        broker.stop()

    def test_a_file_in_the_place_of_the_socket(self, folder: Path) -> None:
        """Refuses to remove somebody's file."""
        (folder / "socket").write_text("precious")
        self.refuse(folder, base.Refused, folder / "store.db", f"embedded://{folder}/socket", "no socket")
        assert (folder / "socket").read_text() == "precious"

    def test_a_folder_that_does_not_exist(self, folder: Path) -> None:
        """Names the folder of the socket and of the store."""
        self.refuse(folder, base.Refused, folder / "store.db", f"embedded://{folder}/no/socket", "no/socket", "create")
        self.refuse(folder, base.StoreDamaged, folder / "no" / "store.db", f"embedded://{folder}/s", "create")

    def test_a_socket_path_that_is_too_long(self, folder: Path) -> None:
        """Says how long it is, how long it may be, and what helps, at the broker and at its clients."""
        url = f"embedded://{folder}/{'x' * 107}"
        length = len(f"{folder}/") + 107
        self.refuse(folder, base.Unreachable, folder / "store.db", url, str(length), "107", "shorter")
        with pytest.raises(base.Unreachable, match="shorter"):
            asyncio.run(_names_through(url))

    def test_a_busy_port(self, folder: Path) -> None:
        """Names the port and what to do."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"embedded+tcp://127.0.0.1:{taken.getsockname()[1]}"
            self.refuse(folder, base.Refused, folder / "store.db", url, url, "another port")

    def test_an_address_that_others_could_reach(self, folder: Path) -> None:
        """Serves the loopback interface only: it knows no passwords."""
        self.refuse(folder, base.Refused, folder / "store.db", "embedded+tcp://0.0.0.0:0", "127.0.0.1")

    def test_a_wrong_command_line(self, folder: Path) -> None:
        """Ends with 2 and a usage line for an unknown handover, a bad heartbeat, and nothing to listen on."""
        for arguments in (["--handover", "magic"], ["--heartbeat", "0"], ["--heartbeat", "soon"], []):
            listen = ["--socket", "s"] if arguments else []
            ended = run_by_hand("--store", str(folder / "store.db"), *listen, *arguments)
            assert ended.returncode == 2
            assert "usage:" in ended.stderr
            assert "Traceback" not in ended.stderr


class TestReaching:
    """What a client says when there is no broker where it looks."""

    @pytest.mark.parametrize(
        "url",
        [
            "embedded:///nonexistent/socket",
            "embedded://host/socket",
            "embedded://",
            "embedded+tcp://127.0.0.1:1",
            "embedded+tcp://127.0.0.1",
            "embedded+tcp://127.0.0.1:port",
        ],
    )
    def test_an_address_where_nothing_answers_is_unreachable(self, url: str) -> None:
        """Says so in one line that repeats the URL."""
        with pytest.raises(base.Unreachable) as unreachable:
            asyncio.run(_names_through(url))
        assert url in unreachable.value.message
        assert "\n" not in unreachable.value.message

    def test_a_stale_socket_is_unreachable(self, folder: Path) -> None:
        """Says that no broker listens at the socket of a dead one."""
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / "socket"))
        with pytest.raises(base.Unreachable, match="no broker listens"):
            asyncio.run(_names_through(f"embedded://{folder}/socket"))

    def test_something_else_that_answers_is_no_broker(self) -> None:
        """Gives up on a server of another protocol."""

        async def main() -> None:
            async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"220 mail.example.org ESMTP\r\n")
                await writer.drain()
                writer.close()
                await writer.wait_closed()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            async with server:
                with pytest.raises(base.Unreachable, match="no embedded broker"):
                    await _names_through(f"embedded+tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")

        asyncio.run(main())

    def test_a_stopped_broker_is_unreachable(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gives up on a broker that the kernel answers for, and says what may be the matter."""
        broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
        os.kill(broker.pid, signal.SIGSTOP)
        monkeypatch.setattr(base, "DEFAULT_HEARTBEAT", 0.2)
        with pytest.raises(base.Unreachable, match="stopped"):
            asyncio.run(_names_through(broker.url))
        broker.stop()

    def test_a_client_of_another_version_is_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tells a client that speaks another version of the protocol which one the broker speaks."""
        broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
        monkeypatch.setattr(protocol, "VERSION", 99)
        with pytest.raises(base.Refused, match="99"):
            asyncio.run(_names_through(broker.url))
        broker.stop()
