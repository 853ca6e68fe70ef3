"""Output records with every field set, so that a test states only what it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from lbg.core.outputs import OutputRecord

PLAIN = OutputRecord(
    message_id="p:1:0:0",
    key="k",
    shard=0,
    queue=0,
    epoch=1,
    producer="p",
    incarnation=1,
    sequence=0,
    consumer="a",
    ordinal=0,
    attempt=1,
    redelivered=False,
    first_after_handover=False,
    clean=True,
    started=1000.0,
    ended=1000.0,
    published=1000.0,
)


def make(sequence: int = 0, **changes: object) -> OutputRecord:
    """Return a record of the given sequence; `at` sets all three times at once."""
    at = changes.pop("at", None)
    if at is not None:
        changes = {"started": at, "ended": at, "published": at, **changes}
    return replace(PLAIN, sequence=sequence, **changes)  # type: ignore[arg-type]  # named by the tests


@pytest.fixture(scope="session")
def record() -> Callable[..., OutputRecord]:
    """Return the builder: `record(3, key="x")` is event 3 of key x, in order, handled by consumer a."""
    return make


@pytest.fixture(scope="session")
def unsequenced() -> OutputRecord:
    """Return a record of an event that a foreign publisher sent without identity."""
    return replace(PLAIN, message_id="", shard=-1, producer="", incarnation=-1, sequence=-1)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Iterable[OutputRecord]], Path]:
    """Return a function that writes records to a file, one line each."""

    def write(records: Iterable[OutputRecord]) -> Path:
        path = tmp_path / "records.jsonl"
        path.write_text("".join(record.to_json() + "\n" for record in records))
        return path

    return write
