"""Whether rows come in the order of their columns, told row by row.

A producer publishes rows as they stand. A file that is not in order would be published in the wrong one, consumers
would keep that order faithfully, and no later check could tell. What a row is, and where it comes from, is `rows`'
business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}", re.ASCII)  # int() itself refuses more than 4,300 digits
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_SHOWN: Final = 60  # characters of a value in a message


@dataclass(eq=False)
class Disorder(Exception):
    """A row that is out of order or cannot be compared: the column, and what is wrong with it."""

    column: str
    problem: str

    def __str__(self) -> str:
        return f"{self.column}: {self.problem}"


class _Value(NamedTuple):
    """A value that can be compared with others of its kind."""

    kind: str
    comparable: int | float | datetime | str


class RowOrder:
    """Compares each row with the one before it. Equal rows are in order.

    The first row decides how a column is compared: as numbers, as ISO 8601 timestamps with or without offset, or as
    text. A later value of another kind is refused rather than compared as something else.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._kinds: list[str] = []
        self._last: tuple[object, ...] | None = None
        self._last_line = 0
        self._last_shown = ""

    def check(self, values: Mapping[str, object], line: int) -> None:
        """Take the next row.

        Raises:
            Disorder: it comes before the last row, or a value is missing or of another kind.
        """
        if not self._columns:
            return
        row = tuple(self._comparable(index, column, values[column]) for index, column in enumerate(self._columns))
        shown = ", ".join(str(values[column]) for column in self._columns)[:_SHOWN]
        if self._last is not None and row < self._last:
            raise Disorder(
                ", ".join(self._columns),
                f"{shown} comes after {self._last_shown} of line {self._last_line}: sort the file",
            )
        self._last, self._last_line, self._last_shown = row, line, shown

    def _comparable(self, index: int, column: str, value: object) -> object:
        if index < len(self._kinds):
            wanted = self._kinds[index]
            if wanted == "text" and isinstance(value, str) and value:
                return value
            found = _value(column, value)
            if found.kind != wanted:
                raise Disorder(column, f"{str(value)[:_SHOWN]!r} is {found.kind}, and the first row had {wanted}")
            return found.comparable
        found = _value(column, value)
        self._kinds.append(found.kind)
        return found.comparable


def _value(column: str, value: object) -> _Value:
    if isinstance(value, str):
        if not value:
            raise Disorder(column, "the value is missing, and the rows must be in its order")
        return _from_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Disorder(column, f"a row is ordered by a string or a number, not by {type(value).__name__}")
    return _Value("a number", value)


def _from_text(text: str) -> _Value:
    if _INTEGER.fullmatch(text):
        return _Value("a number", int(text))  # exact: a float would call large neighbours equal
    if _DECIMAL.fullmatch(text):
        return _Value("a number", float(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _Value("text", text)
    if moment.tzinfo is None:
        return _Value("a timestamp without offset", moment)
    return _Value("a timestamp with offset", moment)
