"""Real brokers for the tests: each a process of its own, with a back door into its file."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from lbg.brokers import base
from lbg.brokers.embedded import client, process
from lbg.testing import contract


class EmbeddedUnderTest(contract.BrokerUnderTest):
    """A broker process in a folder of its own; the back door is SQL on its file."""

    def __init__(self, folder: Path, handover: base.HandoverAbility, heartbeat: float) -> None:
        self.adapter = client.EmbeddedAdapter()
        self.store = folder / "store.db"
        self.url = f"embedded://{folder}/socket"
        self.handover = handover
        self.heartbeat = heartbeat
        self.process = self.start()

    def start(self) -> process.BrokerProcess:
        return process.launch_and_wait(self.store, self.url, handover=self.handover, heartbeat=self.heartbeat, log=None)

    async def count_messages(self, prefix: str, queue: int) -> int:
        # Position and queue share one key, see the store.
        count: int = self._figure(
            "SELECT count(*) FROM messages JOIN queues ON messages.id >> 40 = queues.id"
            " JOIN groups ON groups.id = group_id WHERE prefix = ? AND number = ?",
            prefix,
            queue,
        )
        return count

    async def count_records(self, prefix: str, output: str) -> int:
        count: int = self._figure(
            "SELECT count(*) FROM records JOIN logs ON records.id >> 40 = logs.id"
            " JOIN groups ON groups.id = group_id WHERE prefix = ? AND name = ?",
            prefix,
            output,
        )
        return count

    async def ledger(self, prefix: str, queue: int) -> bytes | None:
        data: bytes | None = self._figure(
            "SELECT (SELECT data FROM ledgers JOIN queues ON queues.id = queue_id"
            " JOIN groups ON groups.id = group_id WHERE prefix = ? AND number = ?)",
            prefix,
            queue,
        )
        return data

    def _figure(self, sql: str, *values: object) -> Any:
        with contextlib.closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as db:
            return db.execute(sql, values).fetchone()[0]

    async def cut(self, session: base.Session) -> None:
        cast("client.EmbeddedSession", session).connection.abort("cut by the test")

    async def restart(self) -> None:
        self.process.kill()
        self.process = self.start()


BrokerOf: TypeAlias = dict[base.HandoverAbility, EmbeddedUnderTest]
"""What the fixture `broker_of` gives."""

NewBroker: TypeAlias = Callable[..., EmbeddedUnderTest]
"""What the fixture `new_broker` gives; takes what `broker_in_own_folder` takes."""


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder and remove it. Not tmp_path: the path of a socket must be short."""
    folder = Path(tempfile.mkdtemp(prefix="lbg-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def broker_in_own_folder(
    handover: base.HandoverAbility, heartbeat: float = base.DEFAULT_HEARTBEAT
) -> Iterator[EmbeddedUnderTest]:
    """Run a broker for a while."""
    with short_folder() as folder:
        broker = EmbeddedUnderTest(folder, handover, heartbeat)
        try:
            yield broker
        finally:
            broker.process.stop()


@pytest.fixture(scope="module")
def broker_of() -> Iterator[BrokerOf]:
    """One broker for each handover ability."""
    with contextlib.ExitStack() as stack:
        yield {ability: stack.enter_context(broker_in_own_folder(ability)) for ability in base.HandoverAbility}


@pytest.fixture
def new_broker() -> Iterator[NewBroker]:
    """Start brokers that live for one test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **options: stack.enter_context(broker_in_own_folder(*args, **options))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a test an empty folder with a short path."""
    with short_folder() as path:
        yield path
