"""The SQLite file of the embedded broker: schema, one transaction per write batch, and pages of what is stored.

All SQL is here. The file is in WAL mode with synchronous=FULL: what a committed transaction holds survives `kill -9` of
the process and loss of power alike. One connection writes and one reads, so that a page can be read while a commit
waits for the disk. The writer may be handed to another thread for `commit`, one call at a time.

Rows of messages and records have one integer key, `(queue or log) << 40 | position`: one B-tree without a second index,
in which a queue is a range, its order is the order of keys, and acknowledged neighbours go in one range delete.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lbg.brokers import base
from lbg.brokers.embedded.queues import Entry

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x4C424731
"""Marks the file as ours ("LBG1"), so that somebody's own database is never taken for a store."""

PAGE_MESSAGES: Final = 1_000
PAGE_BYTES: Final = 1024 * 1024
CHECK_BYTES: Final = 256 * 1024 * 1024
"""Files up to this size are read through once at start, which finds damage before a consumer does."""

_POSITION_BITS: Final = 40
_POSITIONS: Final = (1 << _POSITION_BITS) - 1

_SCHEMA: Final = """
CREATE TABLE groups (
    id INTEGER PRIMARY KEY, prefix TEXT NOT NULL, owner TEXT NOT NULL, topology TEXT NOT NULL, UNIQUE (prefix, owner)
);
CREATE TABLE queues (
    id INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, number INTEGER NOT NULL,
    published INTEGER NOT NULL, acked INTEGER NOT NULL, announced INTEGER NOT NULL
);
CREATE TABLE logs (id INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, name TEXT NOT NULL);
CREATE TABLE messages (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE records (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE ledgers (
    queue_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, version INTEGER NOT NULL, data BLOB NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A stored group; `topology` is plain JSON values."""

    id: int
    prefix: str
    owner: str
    topology: dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A stored queue with its counters."""

    id: int
    group: int
    number: int
    published: int = 0
    acked: int = 0
    announced: int = 0


@dataclass(frozen=True, slots=True)
class LogRow:
    """A stored log; `records` is found by looking."""

    id: int
    group: int
    name: str
    records: int = 0


@dataclass(slots=True)
class WriteBatch:
    """What one transaction changes. Order inside does not matter, except that deletions of groups come last."""

    messages: dict[int, list[Entry]] = field(default_factory=dict)  # by queue, positions ascending
    records: dict[int, list[Entry]] = field(default_factory=dict)  # by log, offsets ascending
    acked: dict[int, list[int]] = field(default_factory=dict)  # by queue, positions in any order
    ledgers: dict[int, base.LedgerEntry] = field(default_factory=dict)
    groups: list[GroupRow] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    logs: list[LogRow] = field(default_factory=list)
    dropped: list[tuple[int, list[int], list[int]]] = field(default_factory=list)  # group, its queues, its logs

    @property
    def has_topology(self) -> bool:
        """Tell whether groups or logs change."""
        return bool(self.groups or self.logs or self.dropped)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a store holds when it is opened."""

    groups: list[GroupRow]
    queues: list[QueueRow]
    logs: list[LogRow]


class Store:
    """One open store file, held by this process alone.

    Raises:
        StoreDamaged: it cannot be used; the line says why and what helps. Every method raises this one.
        Refused: another broker process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as undo:
            self._lock = _lock_file(path)
            undo.callback(os.close, self._lock)
            with self._faults():
                self._writer = self._connect()
                undo.callback(self._writer.close)
                self._prepare()
                self._reader = self._connect()
                self._reader.execute("PRAGMA query_only = 1")
            undo.pop_all()

    def close(self) -> None:
        """Close the file; SQLite folds the write-ahead log into it."""
        with self._faults():
            self._reader.close()
            self._writer.close()
        os.close(self._lock)

    def _connect(self) -> sqlite3.Connection:
        # Threads: the engine hands the writer to its commit thread and waits for it before the next use.
        return sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, cached_statements=64)

    def _prepare(self) -> None:
        """Look at what the file is before anything is written to it, then create or open it."""
        db = self._writer
        # Reading counts tables first: a header that SQLite cannot read shows as an error here and not as an empty file.
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if tables and application != APPLICATION_ID:
            raise self.damaged("is a database of something else: choose another file")
        if version > SCHEMA_VERSION:
            raise self.damaged(
                f"has schema version {version}, this program knows up to {SCHEMA_VERSION}: use the newer program"
            )
        if self.path.stat().st_size <= CHECK_BYTES:
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise self.damaged(f"is corrupt ({_one_line(verdict)}): restore it from a copy, or move it away")
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise self.damaged("lies on a file system without shared memory maps: choose a local disk")
        # FULL: each commit waits for the disk. NORMAL would lose confirmed messages with the power.
        db.execute("PRAGMA synchronous = FULL")
        if not tables:
            # In one transaction, so that a crash leaves an empty file or a whole schema.
            db.executescript(
                f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
                f"{_SCHEMA} COMMIT;"
            )

    # Reading.

    def contents(self) -> Contents:
        """Return everything but messages, records and ledgers."""
        with self._faults():
            groups = [
                GroupRow(id_, prefix, owner, json.loads(topology))
                for id_, prefix, owner, topology in self._writer.execute("SELECT * FROM groups ORDER BY id")
            ]
            queues = [QueueRow(*row) for row in self._writer.execute("SELECT * FROM queues ORDER BY group_id, number")]
            logs = [
                LogRow(id_, group, name, self._count_records(id_))
                for id_, group, name in self._writer.execute("SELECT * FROM logs").fetchall()
            ]
        return Contents(groups, queues, logs)

    def _count_records(self, log: int) -> int:
        low, high = _span(log)
        (last,) = self._writer.execute("SELECT max(id) FROM records WHERE id BETWEEN ? AND ?", (low, high)).fetchone()
        return 0 if last is None else (last & _POSITIONS) + 1

    def messages(self, queue: int, after: int, upto: int) -> tuple[list[Entry], int]:
        """Return the next page of messages above one position and up to another, and the position it reaches.

        Holes are what was acknowledged before an earlier run of the broker ended.
        """
        low, _ = _span(queue)
        entries, complete = self._page("messages", low + after + 1, low + upto)
        return entries, upto if complete else entries[-1][0]

    def records(self, log: int, start: int, stop: int) -> list[Entry]:
        """Return the next page of records from one offset to below another."""
        low, _ = _span(log)
        return self._page("records", low + start, low + stop - 1)[0]

    def _page(self, table: str, low: int, high: int) -> tuple[list[Entry], bool]:
        entries: list[Entry] = []
        size = 0
        with self._faults(), contextlib.closing(self._reader.cursor()) as cursor:
            # The cursor must not outlive the page: an open read keeps SQLite from reusing the write-ahead log.
            cursor.execute(
                f"SELECT id, data FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
                (low, high, PAGE_MESSAGES),
            )
            for key, data in cursor:
                entries.append((key & _POSITIONS, data))
                size += len(data)
                if size >= PAGE_BYTES:
                    return entries, False
        return entries, len(entries) < PAGE_MESSAGES

    def ledger(self, queue: int) -> base.LedgerEntry | None:
        """Return the stored ledger of a queue, or None.

        Raises:
            LedgerUnreadable: the store does not give it.
        """
        try:
            row = self._reader.execute(
                "SELECT epoch, version, data FROM ledgers WHERE queue_id = ?", (queue,)
            ).fetchone()
        except sqlite3.Error as error:
            raise base.LedgerUnreadable(f"store {self.path}: ledger of queue {queue}: {_one_line(error)}") from None
        return None if row is None else base.LedgerEntry(*row)

    # Writing.

    def write(self, batch: WriteBatch) -> None:
        """Open a transaction and put a batch into it; `commit` makes it durable.

        Deletions come after insertions, and whole groups last: a batch may hold messages for a group that it deletes.
        """
        with self._faults():
            db = self._writer
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO messages VALUES (?, ?)", _keyed(batch.messages))
            db.executemany("INSERT INTO records VALUES (?, ?)", _keyed(batch.records))
            db.executemany("DELETE FROM messages WHERE id BETWEEN ? AND ?", _spans(batch.acked))
            db.executemany(
                "INSERT OR REPLACE INTO ledgers VALUES (?, ?, ?, ?)",
                ((queue, e.epoch, e.version, e.data) for queue, e in batch.ledgers.items()),
            )
            db.executemany(
                "INSERT OR REPLACE INTO queues VALUES (?, ?, ?, ?, ?, ?)",
                ((q.id, q.group, q.number, q.published, q.acked, q.announced) for q in batch.queues),
            )
            if batch.has_topology:
                self._write_topology(batch)

    def _write_topology(self, batch: WriteBatch) -> None:
        db = self._writer
        db.executemany(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?)",
            ((g.id, g.prefix, g.owner, json.dumps(g.topology)) for g in batch.groups),
        )
        db.executemany("INSERT INTO logs VALUES (?, ?, ?)", ((log.id, log.group, log.name) for log in batch.logs))
        for group, queues, logs in batch.dropped:
            db.executemany("DELETE FROM messages WHERE id BETWEEN ? AND ?", map(_span, queues))
            db.executemany("DELETE FROM records WHERE id BETWEEN ? AND ?", map(_span, logs))
            db.executemany("DELETE FROM ledgers WHERE queue_id = ?", ((queue,) for queue in queues))
            db.executemany("DELETE FROM queues WHERE id = ?", ((queue,) for queue in queues))
            db.executemany("DELETE FROM logs WHERE id = ?", ((log,) for log in logs))
            db.execute("DELETE FROM groups WHERE id = ?", (group,))

    def commit(self) -> None:
        """Commit the open transaction and wait for the disk."""
        with self._faults():
            self._writer.execute("COMMIT")

    # Errors.

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, OSError) as error:
            raise self.damaged(_remedy(error)) from None

    def damaged(self, why: str) -> base.StoreDamaged:
        """Return the error that says why this store cannot be used."""
        return base.StoreDamaged(f"store {self.path} {why}")


def _keyed(entries: dict[int, list[Entry]]) -> Iterator[tuple[int, bytes]]:
    for owner, rows in entries.items():
        low = owner << _POSITION_BITS
        for position, data in rows:
            yield low | position, data


def _span(owner: int) -> tuple[int, int]:
    return owner << _POSITION_BITS, owner << _POSITION_BITS | _POSITIONS


def _spans(acked: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    for owner, positions in acked.items():
        low = owner << _POSITION_BITS
        for first, last in _runs(sorted(positions)):
            yield low | first, low | last


def _runs(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    # Consumers acknowledge neighbours together: one range delete is a fraction of as many single ones.
    first = last = None
    for position in positions:
        if first is None or last is None:
            first = last = position
        elif position == last + 1:
            last = position
        else:
            yield first, last
            first = last = position
    if first is not None and last is not None:
        yield first, last


def _lock_file(path: Path) -> int:
    """Open the file and lock it for the life of the process.

    The lock is taken on the file itself, so nothing is left behind; SQLite uses another kind of lock. The descriptor
    must stay open: closing any descriptor of a file drops all of SQLite's own locks on it (POSIX).
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise base.StoreDamaged(f"store {path} {_remedy(error)}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise base.Refused(f"store {path} is in use by another broker: stop it, or choose another file") from None
    return descriptor


_REMEDIES: Final = {
    errno.ENOENT: "has no folder to lie in: create it",
    errno.ENOTDIR: "has no folder to lie in: part of the path is a file",
    errno.EISDIR: "is a folder: give the path of a file",
    errno.EACCES: "cannot be written: permission is missing",
    errno.EPERM: "cannot be written: permission is missing",
    errno.EROFS: "cannot be written: the file system is read-only",
    errno.ENOSPC: "cannot grow: the disk is full; free space and start again, nothing confirmed is lost",
}


def _remedy(error: Exception) -> str:
    if isinstance(error, OSError):
        return _REMEDIES.get(error.errno or 0) or f"cannot be opened: {_one_line(error)}"
    text = _one_line(error)
    # Extended codes (SQLITE_READONLY_DBMOVED...) carry the primary one in their low byte.
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if primary == sqlite3.SQLITE_FULL:
        return _REMEDIES[errno.ENOSPC]
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return "cannot be written: the file, its folder or its file system is read-only"
    if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) or isinstance(error, ValueError):
        return f"is corrupt ({text}): restore it from a copy, or move it away"
    if primary == sqlite3.SQLITE_IOERR:
        return f"cannot be read or written ({text}): look at the disk; nothing confirmed is lost"
    return f"failed: {text}"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
