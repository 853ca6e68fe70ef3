"""The state of one run in one SQLite file: seats, the group's view, processes, orders from other terminals, status.

Here live the statements over its rows, `lbg.local.statefile` has the schema. Who may write what: the supervisor writes
the view, creates, deletes and clears seats, lists its processes and publishes the status; a consumer writes only its
own seat; another terminal only files orders. No decision is taken here.

Why SQLite and not memory: consumers are processes of their own, any of them (and the supervisor) may be killed at any
time, and a reader in another terminal must see one consistent state. The file carries no safety.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lbg.core import membership
from lbg.core.membership import GroupView, Membership, Request, Seat, StaleSeat, StoreUnavailable
from lbg.local import statefile
from lbg.local.statefile import StateFile

POLL_SECONDS: Final = 0.012  # between two looks at data_version; one look costs a few microseconds


@dataclass(frozen=True, slots=True)
class Run:
    """Who supervises this folder. `started` tells a living supervisor from another process with its number."""

    group: str
    pid: int
    started: int  # start time of the process in clock ticks since boot
    created_ms: int
    broker: str  # what serves the group, for people; never a URL with credentials
    ended_ms: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A consumer process as the supervisor knows it."""

    name: str
    uid: str
    pid: int
    started: int  # as in Run
    since_ms: int
    phase: str = "running"  # running | stopping


@dataclass(frozen=True, slots=True)
class Order:
    """Something another terminal asks the supervisor to do, and what became of it."""

    id: int
    kind: str  # scale | kill | rollout | skip | stop
    arguments: Mapping[str, Any]
    by: str  # who asked, for the record
    at_ms: int
    done: bool = False
    refused: bool = False
    answer: str = ""


class State(StateFile):
    """Everything that a run knows about itself, over one connection."""

    def membership(self) -> Membership:
        """Read the view and all seats in one transaction."""
        with self.transaction("DEFERRED"):
            view = self._view()
            rows = self.connection.execute(_SEATS).fetchall()
        if view is None:
            raise StoreUnavailable(f"{self.path}: the supervisor has not described the group yet")
        return Membership(view, tuple(map(_seat, rows)))

    def view(self) -> GroupView | None:
        """Read the view; None before it was written first."""
        with self.transaction("DEFERRED"):
            return self._view()

    def seats(self) -> tuple[Seat, ...]:
        """Read all seats by ordinal."""
        with self.guarded():
            return tuple(map(_seat, self.connection.execute(_SEATS).fetchall()))

    def replace_seat(self, seat: Seat) -> Seat:
        """Write a seat if its version is still the stored one. Raises `StaleSeat` otherwise."""
        values = (seat.holder, seat.term, seat.renewals, seat.generation, seat.offered, seat.summary.to_json())
        with self.transaction("IMMEDIATE"):
            version = self._next_version()
            statement = (
                "UPDATE seat SET version=?, holder=?, term=?, renewals=?, generation=?, offered=?, summary=?"
                " WHERE ordinal=? AND version=? AND NOT retired"
            )
            if self.execute(statement, version, *values, seat.ordinal, int(seat.version)) == 0:
                raise StaleSeat(f"seat {seat.ordinal}: somebody else wrote first")
        return replace(seat, version=str(version))

    def create_seat(self, ordinal: int) -> None:
        """Create a vacant seat; one that exists is left alone. A seat that was deleted comes back with its old term.

        Term and generation never go back: a holder from before the deletion must compare as older.
        """
        with self.transaction("IMMEDIATE"):
            version = self._next_version()
            self.execute("UPDATE seat SET retired=0, version=? WHERE ordinal=? AND retired", version, ordinal)
            self.execute("INSERT OR IGNORE INTO seat (ordinal, version) VALUES (?, ?)", ordinal, version)

    def delete_seat(self, ordinal: int) -> None:
        """Delete a seat if it is vacant. Idempotent."""
        with self.transaction("IMMEDIATE"):
            version = self._next_version()
            statement = "UPDATE seat SET retired=1, summary='{}', version=? WHERE ordinal=? AND holder IS NULL"
            self.execute(statement, version, ordinal)

    def write_view(self, view: GroupView) -> None:
        """Replace the view and its requests. Raises ValueError when the assignment generation would go back."""
        with self.transaction("IMMEDIATE"):
            stored = self.connection.execute("SELECT generation FROM view").fetchone()
            if stored and stored[0] > view.generation:
                raise ValueError(f"generation {view.generation} is older than the stored {stored[0]}")
            self.execute(
                "INSERT OR REPLACE INTO view VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
                view.group,
                view.spec,
                view.desired,
                view.effective,
                view.generation,
                view.table_version,
                view.suspended,
            )
            self.execute("DELETE FROM request")
            rows = [(r.id, r.kind, r.target, r.by) for r in view.requests]
            self.connection.executemany("INSERT INTO request VALUES (?, ?, ?, ?)", rows)

    def run(self) -> Run:
        """Read who supervises this folder."""
        with self.guarded():
            row = self.connection.execute("SELECT * FROM run").fetchone()
        if row is None:
            raise StoreUnavailable(f"{self.path} names no run: it was cut short while it was created; start a new run")
        return Run(*row[1:])

    def write_run(self, run: Run) -> None:
        """Replace who supervises this folder."""
        values = (run.group, run.pid, run.started, run.created_ms, run.broker, run.ended_ms, run.exit_code)
        with self.guarded():
            self.execute("INSERT OR REPLACE INTO run VALUES (1, ?, ?, ?, ?, ?, ?, ?)", *values)

    def processes(self) -> tuple[Process, ...]:
        """List consumer processes in order of their start."""
        with self.guarded():
            rows = self.connection.execute("SELECT * FROM process ORDER BY since_ms, rowid").fetchall()
        return tuple(Process(*row) for row in rows)

    def write_processes(self, processes: Sequence[Process]) -> None:
        """Replace the list of consumer processes."""
        rows = [(p.name, p.uid, p.pid, p.started, p.since_ms, p.phase) for p in processes]
        with self.transaction("IMMEDIATE"):
            self.execute("DELETE FROM process")
            self.connection.executemany("INSERT INTO process VALUES (?, ?, ?, ?, ?, ?)", rows)

    def report_connected(self, name: str) -> None:
        """Say that a consumer is connected to the broker, seated or not: what readiness means."""
        with self.guarded():
            self.execute("INSERT OR IGNORE INTO connected VALUES (?)", name)

    def report_lost(self, name: str, at_ms: float) -> None:
        """Say that a consumer has lost its connection, and when: for readiness, and for the run's log."""
        with self.transaction("IMMEDIATE"):
            self.execute("DELETE FROM connected WHERE name=?", name)
            self.execute("INSERT INTO lost VALUES (?, ?)", name, at_ms)

    def take_lost(self) -> tuple[tuple[str, float], ...]:
        """Return the losses that were reported since the last call, with their times."""
        with self.guarded():
            # Looked at first: a DELETE that finds nothing would still be a commit, and wake every consumer.
            if self.connection.execute("SELECT count(*) FROM lost").fetchone()[0] == 0:
                return ()
            return tuple(self.connection.execute("DELETE FROM lost RETURNING name, at_ms").fetchall())

    def connected(self) -> frozenset[str]:
        """Return the names of the consumers that said so. Those of dead ones stay until they are forgotten."""
        with self.guarded():
            return frozenset(name for (name,) in self.connection.execute("SELECT name FROM connected"))

    def file_order(self, kind: str, arguments: Mapping[str, Any], by: str, at_ms: int) -> int:
        """File an order for the supervisor; return its number."""
        with self.guarded():
            row = (kind, json.dumps(arguments), by, at_ms)
            cursor = self.connection.execute(
                "INSERT INTO orders (kind, arguments, by_whom, at_ms) VALUES (?, ?, ?, ?)", row
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def orders(self, *, only_open: bool = True) -> tuple[Order, ...]:
        """List orders, oldest first."""
        where = "WHERE NOT done" if only_open else ""
        with self.guarded():
            rows = self.connection.execute(f"SELECT * FROM orders {where} ORDER BY id").fetchall()
        return tuple(map(_order, rows))

    def order(self, number: int) -> Order:
        """Read one order."""
        with self.guarded():
            return _order(self.connection.execute("SELECT * FROM orders WHERE id=?", (number,)).fetchone())

    def answer_order(self, number: int, answer: str, *, refused: bool = False) -> None:
        """Close an order with one line for the person who filed it."""
        with self.guarded():
            self.execute("UPDATE orders SET done=1, refused=?, answer=? WHERE id=?", refused, answer, number)

    def document(self, name: str) -> Any:
        """Read a JSON document that the supervisor publishes, or None."""
        with self.guarded():
            row = self.connection.execute("SELECT body FROM document WHERE name=?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def write_document(self, name: str, body: Any) -> None:
        """Publish a JSON document under a name."""
        with self.guarded():
            self.execute("INSERT OR REPLACE INTO document VALUES (?, ?)", name, json.dumps(body))

    def _view(self) -> GroupView | None:
        row = self.connection.execute("SELECT * FROM view").fetchone()
        if row is None:
            return None
        requests = self.connection.execute("SELECT id, kind, target, by_whom FROM request ORDER BY rowid").fetchall()
        _, group, spec, desired, effective, generation, table_version, suspended = row
        asked = tuple(Request(*request) for request in requests)
        return GroupView(group, spec, desired, effective, generation, table_version, bool(suspended), asked)

    def _next_version(self) -> int:
        # One counter for all seats: the version of a seat that was deleted and created again must not match an old one.
        statement = "UPDATE counter SET value = value + 1 RETURNING value"
        version: int = self.connection.execute(statement).fetchone()[0]
        return version


class SqliteMembership:
    """`MembershipStore` over a state file; what a consumer process holds.

    Calls run on the event loop: a read or a write takes tens of microseconds, and at most `statefile.BUSY_MS` while
    another process commits. A thread would cost more than it saves.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen = -1

    async def observe(self) -> Membership:
        """Read the view and all seats."""
        # Before the read: a commit that lands in between must count as unseen.
        self._seen = self._state.data_version()
        return self._state.membership()

    async def replace(self, seat: Seat) -> Seat:
        """Write a seat by compare-and-swap. Raises `StaleSeat`."""
        return self._state.replace_seat(seat)

    async def changed(self, at_most: float) -> None:
        """Return when another process has committed since the last `observe`, or after `at_most` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + at_most
        while self._state.data_version() == self._seen and (left := deadline - loop.time()) > 0:  # noqa: ASYNC110
            # Another process writes, so no Event of this one can be set: SQLite has no notification between processes.
            await asyncio.sleep(min(POLL_SECONDS, left))

    async def close(self) -> None:
        """Close. Idempotent."""
        self._state.close()


def create(path: Path) -> State:
    """Create a state file, or open the one that is there.

    Raises:
        StoreUnavailable: the folder cannot be written, or the file is damaged or of another version.
    """
    return State(path, statefile.connect(path, mode="rwc"))


def open_existing(path: Path) -> State:
    """Open a state file that another process has created.

    Raises:
        StoreUnavailable: it is absent, locked, damaged, or written by another version.
    """
    if not path.exists():
        raise StoreUnavailable(f"{path}: no such file: the run folder is incomplete or was removed")
    return State(path, statefile.connect(path, mode="rw"))


_SEATS: Final = (
    "SELECT ordinal, version, holder, term, renewals, generation, offered, summary FROM seat"
    " WHERE NOT retired ORDER BY ordinal"
)


def _seat(row: tuple[Any, ...]) -> Seat:
    ordinal, version, holder, term, renewals, generation, offered, summary = row
    report = membership.summary_from_json(summary)
    return Seat(ordinal, str(version), holder, term, renewals, generation, bool(offered), report)


def _order(row: tuple[Any, ...]) -> Order:
    number, kind, arguments, by, at_ms, done, refused, answer = row
    return Order(number, kind, json.loads(arguments), by, at_ms, bool(done), bool(refused), answer)
