"""The ledger: the small durable record of one queue, written only by its active consumer.

It answers what an owner must know about those before it: the epoch, whether the queue was handed over cleanly, what
was handled (marks), which events failed or took a process down (attempts), and which shards are blocked. Reading and
writing it is the broker adapter's part; this module holds its meaning and its stored form.

Clean and unclean. Activation clears the clean flag, release sets it. An owner that finds it unset knows that its
predecessor ended without releasing, so marks may be one renewal old and something may have killed the process.

Poison that kills the process. A handler can take its process with it, and with it every neighbour in hand. To find the
guilty one: only after an unclean takeover, a *redelivered* event is journalled before it starts. Whatever the next
owner finds journalled is a *suspect* and runs alone in its process. Only a death while alone counts against an event;
after `maxAttempts` of them it is poison.

The stored form carries a checksum over the rest. Without it one flipped digit in a mark would still read as a ledger,
and every event up to the wrong mark would be dropped as handled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from xxhash import xxh64_hexdigest

from lbg.core import marks

FORMAT: Final = 1
MAX_ERROR: Final = 300


class DamagedLedger(ValueError):
    """The stored bytes are no ledger of a known format, or not the ones that were written."""


@dataclass(slots=True)
class Attempt:
    """What is held against one event that is not handled yet."""

    failures: int = 0  # the handler returned an error
    deaths: int = 0  # the process died while the event ran alone
    journalled: bool = False  # it was started under a journal and had not finished
    alone: bool = False  # it was started alone
    error: str = ""

    @property
    def count(self) -> int:
        """Return failures and deaths together, what `maxAttempts` is compared with."""
        return self.failures + self.deaths


@dataclass(frozen=True, slots=True)
class Block:
    """A shard held by `onPoison: Block`, by the event that blocks it."""

    message_id: str
    key: str
    error: str
    since_ms: int


@dataclass(slots=True)
class Ledger:
    """The record as its owner holds it in memory. `(epoch, version)` grows with every write."""

    epoch: int = 0
    version: int = 0
    clean: bool = True
    marks: marks.Marks = field(default_factory=marks.Marks)
    attempts: dict[str, Attempt] = field(default_factory=dict)  # by message id
    blocks: dict[int, Block] = field(default_factory=dict)  # by shard
    skipped: dict[str, str] = field(default_factory=dict)  # message id -> who asked; kept for the last few
    violations: dict[str, int] = field(default_factory=dict)  # since the queue was created, by kind
    duplicates: int = 0  # dropped, since the queue was created

    def count(self, violation: str) -> None:
        """Count one violation."""
        self.violations[violation] = self.violations.get(violation, 0) + 1

    def keep_attempts(self, message_ids: Iterable[str]) -> None:
        """Forget attempts of all events but these, the ones that are still unacknowledged."""
        alive = set(message_ids)
        self.attempts = {m: a for m, a in self.attempts.items() if m in alive}


def take_over(stored: Ledger | None) -> tuple[Ledger, bool]:
    """Return the ledger of the next epoch and whether the takeover is clean.

    A queue without ledger is clean: nobody owned it. After an unclean takeover marks are in doubt, and an event that
    ran alone when its process died has that death counted here, once.
    """
    if stored is None:
        return Ledger(epoch=1, clean=False), True
    was_clean = stored.clean
    stored.epoch, stored.version, stored.clean = stored.epoch + 1, 0, False
    if not was_clean:
        stored.marks.doubt()
        for attempt in stored.attempts.values():
            if attempt.journalled and attempt.alone:
                attempt.deaths += 1
                attempt.alone = False  # counted; the next start sets it again
                attempt.error = attempt.error or "the process died while this event ran alone"
    return stored, was_clean


def encode(ledger: Ledger) -> bytes:
    """Return the stored form: compact JSON, since people read it when things go wrong."""
    record = {
        "epoch": ledger.epoch,
        "version": ledger.version,
        "clean": ledger.clean,
        "marks": ledger.marks.to_rows(),
        "attempts": {
            m: [a.failures, a.deaths, a.journalled, a.alone, a.error[:MAX_ERROR]] for m, a in ledger.attempts.items()
        },
        "blocks": {str(s): [b.message_id, b.key, b.error[:MAX_ERROR], b.since_ms] for s, b in ledger.blocks.items()},
        "skipped": dict(list(ledger.skipped.items())[-100:]),
        "violations": ledger.violations,
        "duplicates": ledger.duplicates,
    }
    return _dumped({"format": FORMAT, "sum": _checksum(record), **record})


def decode(data: bytes) -> Ledger:
    """Read the stored form.

    Raises:
        DamagedLedger: not a ledger, of another format, or changed since it was written.
    """
    try:
        raw: Any = json.loads(data)
        if raw.pop("format") != FORMAT:
            raise DamagedLedger(f"the stored ledger is not of format {FORMAT}: use a newer consumer image")
        if raw.pop("sum") != _checksum(raw):
            raise DamagedLedger("the stored ledger is damaged: its checksum does not match")
        return Ledger(
            epoch=int(raw["epoch"]),
            version=int(raw["version"]),
            clean=bool(raw["clean"]),
            marks=marks.from_rows(raw["marks"]),
            attempts={m: Attempt(*a) for m, a in raw["attempts"].items()},
            blocks={int(s): Block(*b) for s, b in raw["blocks"].items()},
            skipped=dict(raw["skipped"]),
            violations=dict(raw["violations"]),
            duplicates=int(raw["duplicates"]),
        )
    except DamagedLedger:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as problem:
        raise DamagedLedger(f"the stored ledger is damaged: {type(problem).__name__}") from problem


def _dumped(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def _checksum(record: Mapping[str, object]) -> str:
    return xxh64_hexdigest(_dumped(record))
