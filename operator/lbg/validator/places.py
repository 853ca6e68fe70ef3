"""The highest place seen per key, for any number of keys: in memory while they are few, then also in a temporary file.

A place is one integer, `incarnation << 63 | sequence`: it compares as the pair does. Places are kept per lane (one
producer's part of one shard), since a key has one shard for ever.

Why a write is never preceded by a read: the check also keeps the highest place of each lane. An event above that is
above every key of its lane, so its key's place is overwritten blindly. Only an event *below* it, which a correct run
never has, needs to know the place of its own key. The dictionaries are therefore a write-back cache: once they hold
more than `limit` keys, all of them go to SQLite in one sorted batch and are cleared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple

from lbg.validator.errors import temporary_folder_refuses

DEFAULT_LIMIT: Final = 250_000
"""Keys kept in memory before they are written out: 50 MB or so."""

SEQUENCE_BITS: Final = 63

_TABLE: Final = """
    CREATE TABLE place (
        key TEXT NOT NULL, producer TEXT NOT NULL, shard INTEGER NOT NULL,
        incarnation INTEGER NOT NULL, sequence INTEGER NOT NULL,
        PRIMARY KEY (key, producer, shard)
    ) WITHOUT ROWID
"""
# REPLACE without a comparison: a cached place is never below the stored one, see above.
_WRITE: Final = "INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?, ?)"
_FIND: Final = "SELECT incarnation, sequence FROM place WHERE key=? AND producer=? AND shard=?"
_COUNT: Final = """
    SELECT COUNT(DISTINCT key), COALESCE(SUM(lanes - 1), 0)
    FROM (SELECT key, COUNT(*) AS lanes FROM place GROUP BY key, producer)
"""
_STRAYS: Final = "SELECT key FROM place GROUP BY key, producer HAVING COUNT(*) > 1 LIMIT ?"


class KeyCount(NamedTuple):
    """How many different keys, and how many times a producer put a key into one more shard than its first."""

    keys: int
    strays: int


def place(incarnation: int, sequence: int) -> int:
    """Return the place of an event among those of its producer and shard."""
    return incarnation << SEQUENCE_BITS | sequence


def pair(at: int) -> tuple[int, int]:
    """Return (incarnation, sequence) of a place."""
    return at >> SEQUENCE_BITS, at & (1 << SEQUENCE_BITS) - 1


class Places:
    """The highest place per (producer, shard, key)."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._cached: dict[tuple[str, int], dict[str, int]] = {}
        self._stored: sqlite3.Connection | None = None

    def lane(self, producer: str, shard: int) -> dict[str, int]:
        """Return the cached places of a lane for the caller to write into, never to read: see `find`."""
        return self._cached.setdefault((producer, shard), {})

    def find(self, producer: str, shard: int, key: str) -> int | None:
        """Return the place of a key, or None if it has none yet."""
        cached = self._cached[producer, shard].get(key)
        if cached is not None or self._stored is None:
            return cached
        row = self._stored.execute(_FIND, (key, producer, shard)).fetchone()
        return None if row is None else place(*row)

    def trim(self) -> None:
        """Write the cache out if it has outgrown its limit. Call it now and then: it counts the lanes.

        Raises:
            Unusable: the temporary folder takes no more. So do `count` and `strays`.
        """
        if sum(map(len, self._cached.values())) > self._limit:
            self._write_out()

    def count(self) -> KeyCount:
        """Count keys and strays: takes time in proportion to the keys."""
        if self._stored is not None:
            keys, strays = self._write_out().execute(_COUNT).fetchone()
            return KeyCount(keys, strays)
        by_producer: dict[str, set[str]] = {}
        for (producer, _), keys_of_lane in self._cached.items():
            by_producer.setdefault(producer, set()).update(keys_of_lane)
        entries = sum(map(len, self._cached.values()))
        return KeyCount(len(set().union(*by_producer.values())), entries - sum(map(len, by_producer.values())))

    def strays(self, most: int) -> list[str]:
        """Return some keys that a producer put into more than one shard."""
        return [key for (key,) in self._write_out().execute(_STRAYS, (most,))]

    def close(self) -> None:
        """Forget everything. Idempotent."""
        self._cached.clear()
        if self._stored is not None:
            self._stored.close()
            self._stored = None

    def _write_out(self) -> sqlite3.Connection:
        try:
            return self._written_out()
        except sqlite3.Error as error:
            raise temporary_folder_refuses(error) from error

    def _written_out(self) -> sqlite3.Connection:
        if self._stored is None:
            # The empty name: a private file in the temporary folder, which SQLite has unlinked before we use it.
            # It survives no crash and needs none of the journal and syncs that would help it to.
            self._stored = sqlite3.connect("", isolation_level=None)
            self._stored.execute("PRAGMA journal_mode=OFF")
            self._stored.execute("PRAGMA synchronous=OFF")
            self._stored.execute(_TABLE)
        self._stored.execute("BEGIN")
        self._stored.executemany(_WRITE, sorted(self._rows()))  # sorted: neighbours share pages of the tree
        self._stored.execute("COMMIT")
        for lane in self._cached.values():
            lane.clear()
        return self._stored

    def _rows(self) -> Iterator[tuple[str, str, int, int, int]]:
        for (producer, shard), lane in self._cached.items():
            for key, at in lane.items():
                yield key, producer, shard, *pair(at)
