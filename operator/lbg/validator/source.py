"""What was published, in published order: the other side of the comparison, read from a file.

Two kinds of file are understood and told apart by their first line:

- a *manifest*: JSON lines of `{key, producer, incarnation, shard, sequence}`, as a publisher may write it;
- *rows*: CSV with a header, or JSON lines, with the column(s) that make the key, in published order. The shard of each
  key follows from the stream's contract, and sequences are dealt out per shard in row order, which is what one
  publisher does in one life. So (shard, sequence) of an output record names a row, and a row that is missing,
  invented or out of place shows as what it is.

Here files become `Published` entries. Holding them for the comparison is the business of `expected`.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from lbg.core import hashing
from lbg.core.hashing import Algorithm
from lbg.validator.errors import Unusable

KEY_SEPARATOR: Final = "/"
"""Joins the values of several key columns, as `lbg publish` does."""

_IDENTITY: Final = ("producer", "incarnation", "shard", "sequence")


class Published(NamedTuple):
    """One published event. Without producer and incarnation it belongs to the one life that the output shows."""

    key: str
    shard: int
    sequence: int
    producer: str | None = None
    incarnation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of what was published, and how to read it: as it was published. A manifest needs the path only.

    Args:
        path: CSV, JSON lines or a manifest; CSV named `.tsv` has tabs.
        key: the columns that make the key.
        count: HC of the stream, where rows are to be hashed; None: as the run's log has it.
        algorithm: the stream's, where `count` is given.
        missing: values of a key column that count as none.
        missing_key: the key that was published for rows without one; None refuses them.
    """

    path: Path
    key: tuple[str, ...] = ("key",)
    count: int | None = None
    algorithm: Algorithm = Algorithm.XXH64
    missing: frozenset[str] = frozenset({""})
    missing_key: str | None = None


def replayed(keys: Iterable[str], shard_of: Callable[[str], int]) -> Iterator[Published]:
    """Deal out sequences to keys in published order, as one publisher does in one life.

    Raises:
        hashing.KeyRefused: the algorithm cannot hash a key.
    """
    dealt: Counter[int] = Counter()
    for key in keys:
        shard = shard_of(key)
        yield Published(key, shard, dealt[shard])
        dealt[shard] += 1


def read(file: SourceFile) -> Iterator[Published]:
    """Read a source file from its beginning.

    Raises:
        Unusable: it cannot be read, a column is missing, a line is damaged, or rows come without a count.
    """
    try:
        with file.path.open(encoding="utf-8-sig", newline="") as text:
            yield from _entries(file, text)
    except OSError as error:
        raise Unusable(f"source {file.path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise Unusable(f"source {file.path}: not UTF-8 text (byte {error.start}): {error.reason}") from error
    except csv.Error as error:
        raise Unusable(f"source {file.path}: not CSV: {error}") from error


def _entries(file: SourceFile, text: Iterable[str]) -> Iterator[Published]:
    lines = iter(text)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        return
    whole = itertools.chain([first], lines)
    if not first.lstrip().startswith("{"):
        yield from _dealt(file, _csv_keys(file, whole))
        return
    objects = _objects(file, whole)
    head = next(objects)
    rest = itertools.chain([head], objects)
    if all(name in head[1] for name in _IDENTITY):
        yield from _manifest(file, rest)
    else:
        yield from _dealt(file, _json_keys(file, rest))


def _dealt(file: SourceFile, keys: Iterable[tuple[int, str]]) -> Iterator[Published]:
    if file.count is None:
        remedy = "name the stream's contract (--group GROUP.yaml or --count HC), or take a manifest"
        raise Unusable(f"source {file.path}: {remedy}")
    sharder = hashing.sharder(file.count, file.algorithm)
    row = 0

    def numbered() -> Iterator[str]:
        nonlocal row
        for row, key in keys:  # noqa: B007  # named in the error below
            yield key

    try:
        yield from replayed(numbered(), sharder)
    except hashing.KeyRefused as error:
        raise Unusable(f"source {file.path}, line {row}: {error}") from None


def _csv_keys(file: SourceFile, text: Iterable[str]) -> Iterator[tuple[int, str]]:
    reader = csv.reader(text, delimiter="\t" if file.path.suffix.lower() == ".tsv" else ",")
    header = next(reader)
    places = [_place(file, header, column) for column in file.key]
    for row in reader:
        if row:
            values = [row[place] if place < len(row) else None for place in places]
            yield reader.line_num, _joined(file, reader.line_num, values)


def _place(file: SourceFile, header: Sequence[str], column: str) -> int:
    try:
        return header.index(column)
    except ValueError:
        raise Unusable(f"source {file.path}: no column {column}; it has {', '.join(header)[:200]}") from None


def _json_keys(file: SourceFile, objects: Iterable[tuple[int, Mapping[str, object]]]) -> Iterator[tuple[int, str]]:
    for number, row in objects:
        values: list[str | None] = []
        for column in file.key:
            value = row.get(column)
            if value is None:
                values.append(None)
                continue
            # A publisher turns a number into text by its own rule; a float or a list has too many of them.
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise Unusable(f"source {file.path}, line {number}: {column} is neither text nor an integer")
            values.append(str(value))
        yield number, _joined(file, number, values)


def _joined(file: SourceFile, number: int, values: Sequence[str | None]) -> str:
    present = [value for value in values if value is not None and value not in file.missing]
    if len(present) == len(values):
        return KEY_SEPARATOR.join(present)
    if file.missing_key is None:
        names = ", ".join(file.key)
        raise Unusable(f"source {file.path}, line {number}: no {names}: say which key was published for such rows")
    return file.missing_key


def _objects(file: SourceFile, text: Iterable[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise Unusable(f"source {file.path}, line {number}: expected one JSON object a line") from None
        if not isinstance(value, dict):
            raise Unusable(f"source {file.path}, line {number}: expected a JSON object, got {type(value).__name__}")
        yield number, value


def _manifest(file: SourceFile, objects: Iterable[tuple[int, Mapping[str, object]]]) -> Iterator[Published]:
    for number, values in objects:
        key, producer = values.get("key"), values.get("producer")
        numbers = [values.get(name) for name in ("incarnation", "shard", "sequence")]
        if not isinstance(key, str) or not isinstance(producer, str):
            raise Unusable(f"source {file.path}, line {number}: key and producer must be text")
        if not all(isinstance(value, int) and not isinstance(value, bool) and value >= 0 for value in numbers):
            raise Unusable(f"source {file.path}, line {number}: incarnation, shard, sequence must be integers from 0")
        incarnation, shard, sequence = (int(str(value)) for value in numbers)
        yield Published(key, shard, sequence, producer, incarnation)
