"""Where the records and the log come from: a run folder, a file, standard input; whole or still growing.

Lines are handed on as they lie there. What they say is the checker's business.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lbg.validator.errors import Unusable

STANDARD_INPUT: Final = "-"
OUTPUT: Final = "output.jsonl"
LOG: Final = "events.jsonl"

_LONGEST: Final = 1 << 20
"""Bytes of a line. A record takes 400; a file without newlines must not be read into memory to find that out."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to read. `output` None is standard input; `log` None is none, and a log may turn up later."""

    output: Path | None
    log: Path | None


def locate(path: str | os.PathLike[str], log: Path | None = None) -> Inputs:
    """Find output and log: of a run folder both; beside a file named as in a run folder, its log.

    Raises:
        Unusable: there is no output, or not the log that was named.
    """
    if log is not None and not log.exists():
        raise Unusable(f"{log}: no such log")
    if os.fspath(path) == STANDARD_INPUT:
        return Inputs(None, log)
    at = Path(path)
    if at.is_dir():
        output = at / OUTPUT
        if not output.exists():
            others = ", ".join(sorted(other.name for other in at.glob("output-*.jsonl"))[:20])
            remedy = f"name one of its streams: {others}" if others else "is it the folder of a run?"
            raise Unusable(f"{at}: no {OUTPUT} in this folder: {remedy}")
    else:
        output = at
        if not output.exists():
            raise Unusable(f"{at}: no such file or run folder")
    beside = output.with_name(LOG)
    is_of_run = output.name.startswith("output") and output.suffix == ".jsonl"
    return Inputs(output, log or (beside if is_of_run else None))


class Tail:
    """Reads a file by whole lines, as far as it goes now; asked again, it goes on from there."""

    def __init__(self, path: Path | None) -> None:
        """Open a file, or standard input.

        Raises:
            Unusable: it cannot be opened.
        """
        self._path = path
        self._name = "standard input" if path is None else str(path)
        self._skipping = False
        self.partial = b""
        try:
            self._file: BinaryIO = sys.stdin.buffer if path is None else path.open("rb", buffering=1 << 18)
        except OSError as error:
            raise self._unusable(error) from error

    def lines(self) -> Iterator[bytes]:
        """Iterate over the lines that are complete, with their newline; `partial` is what follows the last of them.

        A line that is too long comes as its beginning.

        Raises:
            Unusable: the file cannot be read, or has become shorter than what was read of it.
        """
        self.partial = b""
        try:
            while piece := self._file.readline(_LONGEST):
                whole = piece.endswith(b"\n")
                if self._skipping:
                    self._skipping = not whole
                elif whole:
                    yield piece
                elif len(piece) == _LONGEST:
                    self._skipping = True
                    yield piece
                else:
                    # Read again next time, from its beginning: its writer may also take it back.
                    self.partial = piece
                    if self._path is not None:
                        self._file.seek(-len(piece), os.SEEK_CUR)
                    return
            self._must_not_have_shrunk()
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """Close, unless it is standard input. Idempotent."""
        if self._path is not None:
            self._file.close()

    def _must_not_have_shrunk(self) -> None:
        if self._path is None:
            return
        size, position = os.fstat(self._file.fileno()).st_size, self._file.tell()
        if size < position:
            raise Unusable(f"{self._name}: has been cut from {position} to {size} bytes while it was read: start again")

    def _unusable(self, error: OSError) -> Unusable:
        return Unusable(f"{self._name}: {(error.strerror or str(error)).lower()}")
