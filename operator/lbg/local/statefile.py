"""The SQLite file behind a run: its schema, how it is opened, and every way in which it fails, as one line.

Here lives what does not depend on the meaning of a row; statements over rows are in `lbg.local.store`.

The file is written with `synchronous=OFF`: it survives `kill -9` of every process, and an outage of the machine ends
the run anyway.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lbg.core.membership import StoreUnavailable

SCHEMA_VERSION: Final = 1
BUSY_MS: Final = 50  # the longest that a statement may hold up its caller's event loop while another process writes

_SCHEMA: Final = """
CREATE TABLE run (
    one INTEGER PRIMARY KEY CHECK (one = 1), group_name TEXT NOT NULL, pid INTEGER NOT NULL, started INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, broker TEXT NOT NULL, ended_ms INTEGER, exit_code INTEGER);
CREATE TABLE view (
    one INTEGER PRIMARY KEY CHECK (one = 1), group_name TEXT NOT NULL, spec TEXT NOT NULL, desired INTEGER NOT NULL,
    effective INTEGER NOT NULL, generation INTEGER NOT NULL, table_version INTEGER NOT NULL,
    suspended INTEGER NOT NULL);
CREATE TABLE request (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, by_whom TEXT NOT NULL);
CREATE TABLE seat (
    ordinal INTEGER PRIMARY KEY, version INTEGER NOT NULL, holder TEXT, term INTEGER NOT NULL DEFAULT 0,
    renewals INTEGER NOT NULL DEFAULT 0, generation INTEGER NOT NULL DEFAULT 0, offered INTEGER NOT NULL DEFAULT 0,
    summary TEXT NOT NULL DEFAULT '{}', retired INTEGER NOT NULL DEFAULT 0);
CREATE TABLE process (
    name TEXT PRIMARY KEY, uid TEXT NOT NULL, pid INTEGER NOT NULL, started INTEGER NOT NULL,
    since_ms INTEGER NOT NULL, phase TEXT NOT NULL);
CREATE TABLE connected (name TEXT PRIMARY KEY);
CREATE TABLE lost (name TEXT NOT NULL, at_ms REAL NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, arguments TEXT NOT NULL, by_whom TEXT NOT NULL,
    at_ms INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0, refused INTEGER NOT NULL DEFAULT 0,
    answer TEXT NOT NULL DEFAULT '');
CREATE TABLE document (name TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
INSERT INTO counter VALUES (1, 0);
"""


class StateFile:
    """One connection to a state file. Synchronous; every call is short and raises `StoreUnavailable` when it fails.

    Not shared between threads. Each process opens its own.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self._inode = path.stat().st_ino
        self._closed = False

    def close(self) -> None:
        """Close. Idempotent."""
        self._closed = True
        self.connection.close()

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed something."""
        with self.guarded():
            version: int = self.connection.execute("PRAGMA data_version").fetchone()[0]
            return version

    def execute(self, statement: str, *values: object) -> int:
        """Run one statement and return how many rows it changed. Call it inside `guarded` or `transaction`."""
        return self.connection.execute(statement, values).rowcount

    @contextmanager
    def transaction(self, kind: str) -> Iterator[None]:
        """Hold a transaction: DEFERRED for one consistent read, IMMEDIATE to write."""
        with self.guarded():
            self.connection.execute(f"BEGIN {kind}")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn every failure of the file into one line, also when it was deleted under an open connection."""
        if self._closed:
            raise StoreUnavailable(f"{self.path} was closed")
        try:
            if os.stat(self.path).st_ino != self._inode:
                raise StoreUnavailable(f"{self.path} was replaced by another file")
            yield
        except FileNotFoundError:
            raise StoreUnavailable(f"{self.path} is gone: the run folder was removed") from None
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"{self.path}: {_explained(error)}") from error


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a state file; mode `rwc` creates it and its tables where they are missing, `rw` does not.

    Raises:
        StoreUnavailable: it cannot be opened, is damaged, or has another schema version.
    """
    try:
        connection = _connect(path, mode)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"{path}: {_explained(error)}") from error
    try:
        if mode == "rwc":
            _ensure_schema(connection)
        found = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        connection.close()
        raise StoreUnavailable(f"{path}: {_explained(error)}") from error
    if found != SCHEMA_VERSION:
        connection.close()
        remedy = "finish that run with the version that started it, or start a new run in another folder"
        raise StoreUnavailable(f"{path} has schema version {found}, this program reads {SCHEMA_VERSION}: {remedy}")
    return connection


def _ensure_schema(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file, all of them or none."""
    connection.execute("BEGIN EXCLUSIVE")
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        for statement in filter(str.strip, _SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # isolation_level=None: transactions begin where the code says so, not where the driver guesses.
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_MS / 1000, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


_CAUSES: Final = {
    "not a database": "damaged: it is not a state file; start a new run in another folder",
    "malformed": "damaged; start a new run in another folder",
    "disk is full": "no space left on the device; free some",
    "readonly": "it cannot be written; check the folder's permissions",
    "unable to open": "it cannot be opened; check that the folder exists and may be written",
    "locked": "another process holds it locked",
}


def _explained(error: Exception) -> str:
    """Return the cause in words that name the remedy; SQLite's own text where none is known."""
    text = str(error)
    return next((words for part, words in _CAUSES.items() if part in text), text)
