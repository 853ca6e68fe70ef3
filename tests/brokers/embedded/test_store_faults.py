"""What can be wrong with a store file: one line each, and nothing confirmed is lost."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lbg.brokers import base
from lbg.brokers.base import HandoverAbility
from lbg.brokers.embedded import process
from lbg.brokers.embedded.client import EmbeddedAdapter
from lbg.brokers.embedded.server import Server
from lbg.brokers.embedded.store import SCHEMA_VERSION, Store
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.wire import Message
from lbg.testing.contract import Taker

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE = 1

TOPOLOGY = base.Topology(Contract("orders", 8, Algorithm.XXH64, 1), "tests")


def start_and_read_refusal(store: Path, preexec_fn: Callable[[], None] | None = None) -> str:
    """Start a broker that must end with 1, and return its only line."""
    ended = subprocess.run(
        process.command(store, f"embedded://{store.parent}/socket"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=preexec_fn,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


def make_store(path: Path, size: int = 0) -> None:
    store = Store(path)
    store.close()
    if size:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.executemany("INSERT INTO messages VALUES (?, ?)", ((at, bytes(1_000)) for at in range(size)))
            db.commit()


def overwrite_header(path: Path) -> None:
    make_store(path)
    with path.open("r+b") as file:
        file.write(b"not a database at all")


def overwrite_middle(path: Path) -> None:
    make_store(path, size=500)
    with path.open("r+b") as file:
        file.seek(100 * 4096)
        file.write(os.urandom(8 * 4096))


def truncate(path: Path) -> None:
    make_store(path, size=500)
    os.truncate(path, 50 * 4096 + 100)


def write_text(path: Path) -> None:
    path.write_text("apiVersion: lbg.dev/v1alpha1\n" * 100)


def use_for_something_else(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE diary (entry TEXT)")


def raise_version(path: Path) -> None:
    make_store(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def make_folder(path: Path) -> None:
    path.mkdir()


def remove_a_queue(path: Path) -> None:
    broker = process.launch_and_wait(path, f"embedded://{path.parent}/other", log=None)
    asyncio.run(declare(broker.url))
    broker.stop()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM queues")
        db.commit()


async def declare(url: str) -> None:
    admin = await EmbeddedAdapter().open_admin(url)
    await admin.declare(TOPOLOGY)
    await admin.close()


def damage_topology(path: Path) -> None:
    make_store(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("INSERT INTO groups VALUES (1, 'p', 'o', '{\"contract\": {}}')")
        db.commit()


@pytest.mark.parametrize(
    ("break_it", "word"),
    [
        pytest.param(overwrite_header, "corrupt", id="a damaged header"),
        pytest.param(overwrite_middle, "corrupt", id="damaged pages"),
        pytest.param(truncate, "corrupt", id="a truncated file"),
        pytest.param(write_text, "corrupt", id="a text file"),
        pytest.param(use_for_something_else, "something else", id="another program's database"),
        pytest.param(raise_version, "newer program", id="a store of a newer program"),
        pytest.param(make_folder, "folder", id="a folder"),
        pytest.param(remove_a_queue, "missing", id="a group without its queue"),
        pytest.param(damage_topology, "cannot read", id="a group that makes no sense"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_in_one_line(
    folder: Path, break_it: Callable[[Path], None], word: str
) -> None:
    """Names the file, what is wrong and what helps, and does not touch it."""
    store = folder / "store.db"
    break_it(store)
    before = store.read_bytes() if store.is_file() else None
    line = start_and_read_refusal(store)
    assert str(store) in line
    assert word in line
    if before is not None:
        assert store.read_bytes() == before


def obey_permissions() -> None:
    """Take from root, in a child process, the capability to ignore file permissions; others never had it."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)


@pytest.mark.parametrize("what", ["file", "folder", "new file"])
def test_a_read_only_store_is_refused_in_one_line(folder: Path, what: str) -> None:
    """Says that permission is missing for a read-only file, and for a folder that takes no write-ahead log."""
    store = folder / "data" / "store.db"
    store.parent.mkdir()
    if what != "new file":
        make_store(store)
    target = store if what == "file" else store.parent
    target.chmod(0o500)
    try:
        line = start_and_read_refusal(store, preexec_fn=obey_permissions)
    finally:
        target.chmod(0o700)
    assert str(store) in line
    assert "cannot be written" in line


async def publish_until_it_stops(url: str) -> int:
    """Declare a stream, publish numbered messages of 1 kB until the broker is gone, and return how many it accepted."""
    await declare(url)
    session = await EmbeddedAdapter().open_session(url, name="publisher")
    publisher = session.publisher()
    accepted = 0
    outcome = base.Outcome.ACCEPTED
    while outcome is base.Outcome.ACCEPTED:
        message = Message(b"%06d" % accepted + bytes(1_000))
        (outcome,) = await publisher.submit([base.Outgoing(base.ToShard("orders", 0), message)])
        accepted += outcome is base.Outcome.ACCEPTED
    assert outcome is base.Outcome.UNKNOWN
    await session.close()
    return accepted


async def numbers_in(url: str) -> list[int]:
    """Take everything that the queue holds, and return the numbers."""
    admin = await EmbeddedAdapter().open_admin(url)
    (state,) = await admin.observe("orders")
    session = await EmbeddedAdapter().open_session(url, name="taker")
    taker = Taker(acks=True)
    taker.link = await session.bind("orders", 0, name="taker", window=100, listener=taker)
    assert state.published is not None
    await taker.until(state.published)
    await session.close()
    await admin.close()
    return [int(delivery.message.body[:6]) for delivery in taker.deliveries]


def assert_all_there(folder: Path, accepted: int) -> None:
    """Start a broker that may write again, and find what was confirmed, in order, with at most one more."""
    broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=None)
    numbers = asyncio.run(numbers_in(broker.url))
    assert broker.stop() == 0
    assert numbers == list(range(len(numbers)))
    assert 0 < accepted <= len(numbers) <= accepted + 1


def test_a_full_disk_stops_the_broker_and_loses_nothing_confirmed(folder: Path) -> None:
    """Fails with the line of a full disk, confirms nothing that it did not store, and goes on once there is room."""

    async def fill() -> tuple[int, str]:
        store = Store(folder / "store.db")
        store._writer.execute("PRAGMA max_page_count = 200")  # as a disk with room for 800 kB
        server = Server(store, HandoverAbility.COOPERATIVE)
        await server.listen_unix(str(folder / "socket"))
        accepted = await publish_until_it_stops(f"embedded://{folder}/socket")
        failure = await server.failed
        await server.stop()
        store.close()
        return accepted, failure.message

    accepted, line = asyncio.run(fill())
    assert "full" in line
    assert str(folder / "store.db") in line
    assert "\n" not in line
    (folder / "socket").unlink()
    assert_all_there(folder, accepted)


def test_a_write_that_fails_ends_the_process_with_one_line(folder: Path) -> None:
    """Ends with 1 when the file cannot grow any more; what was confirmed is there when it can again."""
    with (folder / "log").open("w+b") as log:
        broker = process.launch_and_wait(folder / "store.db", f"embedded://{folder}/socket", log=log)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (500_000, 500_000))
        accepted = asyncio.run(publish_until_it_stops(broker.url))
        assert broker.process.wait(60) == 1
        log.seek(0)
        (line,) = log.read().decode().splitlines()
    assert str(folder / "store.db") in line
    assert_all_there(folder, accepted)
