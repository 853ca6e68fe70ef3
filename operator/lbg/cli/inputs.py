"""What commands read: a group's YAML from a file or standard input, and the numbers of `--replicas`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from lbg.cli.errors import BadInput

if TYPE_CHECKING:
    from lbg.core import spec

GroupFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="GROUP.yaml", help="File with a LoadBalancedGroup; - reads standard input.")
]
"""The argument of every command that takes a group."""

_STANDARD_INPUT: Final = "standard input"
_LONGEST: Final = 5_000_000  # bytes; beyond what any group may have, and short enough to read in one piece


def read_group(file: Path) -> spec.LoadBalancedGroup:
    """Read a group.

    Raises:
        SpecError: a field is wrong; one line for each.
        BadInput: the file is not text, or far too long for a group.
        OSError: it cannot be read.
    """
    from lbg.core import spec

    source = _STANDARD_INPUT if str(file) == "-" else str(file)
    return spec.load(_text(file, source), source)


def _text(file: Path, source: str) -> str:
    if source == _STANDARD_INPUT:
        content = b"" if sys.stdin is None else sys.stdin.buffer.read(_LONGEST + 1)
    else:
        with file.open("rb") as opened:
            content = opened.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise BadInput(f"{source}: has more than {_LONGEST} bytes: that is no group's YAML")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{source}: is not UTF-8 text (byte {error.start}): save it as UTF-8") from None


def not_empty(path: str, name: str) -> str:
    """Return a path as it was given. An unset variable of a script must not stand for the current folder.

    Raises:
        BadInput: it is empty.
    """
    if not path.strip():
        raise BadInput(f"{name}: is empty: name a path, or . for the current folder")
    return path


def folder(path: str) -> Path:
    """Read the folder of `--dir`. Raises as `not_empty`."""
    return Path(not_empty(path, "--dir"))


def replicas_step(text: str, now: int) -> tuple[int, int]:
    """Read `FROM:TO`, or `TO` from the group's own number of replicas.

    Raises:
        BadInput: it is neither.
    """
    before, colon, after = text.rpartition(":")
    numbers = [before, after] if colon else [after]
    if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
        raise BadInput(f"--replicas: {text!r} is no step: write FROM:TO such as 3:4, or TO alone")
    return (int(before) if colon else now), int(after)


def columns(text: str) -> tuple[str, ...]:
    """Read names of columns, separated by commas.

    Raises:
        BadInput: a name is empty.
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise BadInput(f"{text!r} does not name columns: write one, or several with commas between them")
    return names
