"""Rows of a file as events: CSV with a header, or JSON lines, read as a stream of any length.

The body of an event is its row as a JSON object: of a CSV file every value is a string, since CSV has no other type; a
JSON line passes through as it stands. Errors name file, line and column, since files are long and their authors absent.
How rows are sent, and how fast, is `feeding`'s business.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal, NoReturn, TypeAlias

from lbg.publishing.errors import InvalidOption, PublishError
from lbg.publishing.ordering import Disorder, RowOrder

STDIN: Final = "-"
KEY_SEPARATOR: Final = "/"
"""Joins the values of several key columns."""

MISSING_KEY: Final = "no-key"
"""The documented key of rows that have none, where they are to be published at all (`Layout.missing_key`)."""

LONGEST_LINE: Final = 16 * 1024 * 1024
"""Bytes. A file without line breaks is no file of rows, and must not fill the memory."""

Kind: TypeAlias = Literal["csv", "jsonl"]
_KINDS: Final[Mapping[str, Kind]] = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BOM: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 200  # characters of a list of columns in a message


class SourceUnreadable(PublishError):
    """The file cannot be opened or read."""


class RowRefused(PublishError):
    """A row, or the whole layout, does not fit: `file:line: column: what is wrong and what to do`."""

    def __init__(self, source: str, line: int, problem: str, column: str | None = None) -> None:
        where = f"{source}:{line}: " + (f"column {column}: " if column is not None else "")
        super().__init__(where + problem)
        self.source = source
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What the columns mean.

    Args:
        key: the column that holds the key; the values of several are joined with KEY_SEPARATOR.
        order: columns by which the rows must be in order, compared one after the other; equal rows are in order.
        kind: None: by the ending of the file's name.
        missing: values that count as none, such as "NA".
        missing_key: the key of rows without one, such as MISSING_KEY; None refuses them.
        delimiter: of CSV; None: a tab for `.tsv`, else a comma.

    Raises:
        InvalidOption: no key column, or a delimiter that cannot be one.
    """

    key: tuple[str, ...]
    order: tuple[str, ...] = ()
    kind: Kind | None = None
    missing: frozenset[str] = frozenset({""})
    missing_key: str | None = None
    delimiter: str | None = None

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidOption("key: no column is named: name the one that holds the key")
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '\r\n"'):
            raise InvalidOption(f"delimiter: {self.delimiter!r} is not one character that can separate columns")


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `offset` is how many bytes of the source were read up to its end."""

    source: str
    line: int  # its last, from 1
    offset: int
    key: str
    body: bytes


def read(path: str | Path, layout: Layout) -> Iterator[Row]:
    """Read the rows of a file, or of standard input ("-"), in their order. The file is open while the iterator is.

    Raises:
        SourceUnreadable: the file cannot be opened or read, or its name does not tell its kind.
        RowRefused: a row cannot be published; those before it were yielded.
    """
    if str(path) == STDIN:
        yield from read_from(sys.stdin.buffer, "standard input", layout)
        return
    try:
        file = open(path, "rb")  # noqa: SIM115  # closed below, behind the error for one that cannot be opened
    except OSError as error:
        raise SourceUnreadable(f"{path}: {error.strerror or error}") from None
    with closing(file):
        yield from read_from(file, str(path), layout)


def read_from(source: BinaryIO, name: str, layout: Layout) -> Iterator[Row]:
    """Read the rows of an open source; `name` stands in errors, and its ending tells the kind where `layout` does not.

    Raises:
        SourceUnreadable, RowRefused: as `read`.
    """
    kind = layout.kind or _KINDS.get(Path(name).suffix.lower())
    if kind is None:
        raise SourceUnreadable(f"{name}: cannot tell its format: say whether it is csv or jsonl")
    lines = _Lines(source, name)
    reader = _csv_rows(lines, layout) if kind == "csv" else _json_rows(lines, layout)
    order = RowOrder(layout.order)
    for values, body in reader:
        try:
            order.check(values, lines.number)
        except Disorder as disorder:
            raise RowRefused(name, lines.number, disorder.problem, disorder.column) from None
        yield Row(name, lines.number, lines.offset, _key(lines, values, layout), body)


class _Lines:
    """The lines of a source as text, counted."""

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source = source
        self.name = name
        self.number = 0
        self.offset = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._next():
            self.number += 1
            self.offset += len(line)
            if len(line) > LONGEST_LINE:
                self.refuse(f"the line is longer than {LONGEST_LINE} bytes: expected one row a line")
            if self.number == 1:
                line = line.removeprefix(_BOM)
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                self.refuse(f"byte {error.start + 1} is not UTF-8: convert the file")

    def _next(self) -> bytes:
        try:
            return self._source.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise SourceUnreadable(f"{self.name}: {error.strerror or error}") from None

    def refuse(self, problem: str, column: str | None = None) -> NoReturn:
        raise RowRefused(self.name, self.number, problem, column)


def _csv_rows(lines: _Lines, layout: Layout) -> Iterator[tuple[Mapping[str, object], bytes]]:
    delimiter = layout.delimiter or ("\t" if lines.name.lower().endswith(".tsv") else ",")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = _next_row(reader, lines)
    if header is None:
        raise RowRefused(lines.name, 1, "the file is empty: expected a line of column names")
    _check_header(lines, header, layout)
    while (fields := _next_row(reader, lines)) is not None:
        if not fields:
            continue  # an empty line
        if len(fields) != len(header):
            lines.refuse(f"{len(fields)} fields, and {len(header)} columns: check the quotes and the delimiter")
        values = dict(zip(header, fields, strict=True))
        yield values, json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _next_row(reader: Iterator[list[str]], lines: _Lines) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        lines.refuse(f"not CSV: {error}")


def _check_header(lines: _Lines, header: Sequence[str], layout: Layout) -> None:
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        lines.refuse("two columns have this name: rename one", twice)
    for name in (*layout.key, *layout.order):
        if name not in header:
            lines.refuse(f"is not in the file: it has {', '.join(header)[:_SHOWN]}", name)


def _json_rows(lines: _Lines, layout: Layout) -> Iterator[tuple[Mapping[str, object], bytes]]:
    for line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            values = json.loads(text, parse_constant=_no_constant)
        except RecursionError:
            lines.refuse("nested too deeply")
        except ValueError as error:
            lines.refuse(f"not JSON: {error}")
        if not isinstance(values, dict):
            lines.refuse(f"expected a JSON object, got {_word(values)}")
        for name in layout.order:
            if name not in values:
                lines.refuse("is not in the row, and the rows must be in its order", name)
        yield values, text.encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _key(lines: _Lines, values: Mapping[str, object], layout: Layout) -> str:
    parts = []
    for column in layout.key:
        value = values.get(column)
        if value is None or (isinstance(value, str) and value in layout.missing):
            if layout.missing_key is None:
                remedy = "mend the row, or name a key for rows without one (--missing-key KEY)"
                lines.refuse(f"the key is missing: {remedy}", column)
            return layout.missing_key
        if isinstance(value, bool) or not isinstance(value, str | int):
            # Of a float or a list every language makes another text, and so another shard.
            lines.refuse(f"a key is a string or an integer, not {_word(value)}: publish it as a string", column)
        parts.append(str(value))
    return KEY_SEPARATOR.join(parts)


def _word(value: object) -> str:
    words = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return words.get(type(value), "a number")
