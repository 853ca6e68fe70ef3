"""Standard output: text for people, JSON for programs. Progress, questions and diagnostics go to standard error.

Colour follows the terminal: none when standard output is not one, or when NO_COLOR is set; the width follows COLUMNS.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from lbg.cli import errors

_UNWRAPPED: Final = 100_000

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """What a command writes to standard output."""

    TEXT = "text"
    JSON = "json"


Output: TypeAlias = Annotated[
    Format, typer.Option("--output", "-o", help="What to write to standard output: text for people, or one JSON value.")
]
"""The option that every command which prints takes."""


def write_json(value: object) -> None:
    """Write one JSON value. Escaped to ASCII, so that no locale can break it."""
    print(json.dumps(value, indent=2, allow_nan=False))


def write_json_line(value: object) -> None:
    """Write one JSON value on one line and at once: an item of a stream that a program follows."""
    print(json.dumps(value, separators=(",", ":"), allow_nan=False), flush=True)


def write(*lines: str) -> None:
    """Write lines of text."""
    for line in lines:
        print(line)


def write_now(line: str) -> None:
    """Write a line of text at once: whoever follows must not wait for a buffer to fill."""
    print(line, flush=True)


def note(line: str) -> None:
    """Write a line to standard error that is no error: what was done, or what to do next."""
    errors.say(line)


def console() -> Console:
    """Return the Rich console on standard output."""
    from rich.console import Console

    # No highlighting: a number in a table is not decoration. Nothing is wrapped in a pipe, so that grep and awk work.
    is_terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, highlight=False, width=None if is_terminal else _UNWRAPPED)


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table; None is shown as `unknown`, never as 0."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        # Text, not str: a name with [brackets] is not markup. A line break in an error would tear its row.
        table.add_row(*(Text("unknown" if cell is None else " ".join(str(cell).split())) for cell in row))
    console().print(table)


def confirmed(question: str, *, yes: bool) -> None:
    """Ask on standard error and read the answer from standard input, unless `--yes` was given.

    Raises:
        NotNow: the answer is not yes.
        BadInput: nobody can answer.
    """
    if yes:
        return
    # Asked in words only where somebody reads them; `echo y | lbg ...` gets no line that it did not ask for.
    if sys.stdin is not None and sys.stdin.isatty():
        print(f"{question} [y/N] ", file=sys.stderr, end="", flush=True)
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        raise errors.BadInput(f"{question} nobody answered: give --yes to go on without a question")
    if answer.strip().lower() not in {"y", "yes"}:
        raise errors.NotNow("nothing was done: the answer was not yes")
