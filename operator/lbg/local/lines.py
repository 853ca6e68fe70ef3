"""Files of whole lines: the log, the samples and the output of a run, each appended to and never rewritten.

A line is either there in full or not at all: a torn tail (a kill in the middle of a write, a full disk) is cut off when
the file is opened again. So the number of lines is a fact that a reader of a numbered stream can go on from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lbg.local import folders
from lbg.local.errors import StorageRefused

_CHUNK: Final = 1 << 20


class Lines:
    """An open file of lines. `append` collects, `flush` hands everything to the system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[str] = []
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self.count, self._size = _whole_lines(self._file)
            os.ftruncate(self._file, self._size)
        except OSError as error:
            raise StorageRefused(f"{path}: {folders.explained(error)}") from None

    def append(self, lines: Iterable[str]) -> None:
        """Add lines without their newline; `count` includes them at once."""
        before = len(self._pending)
        self._pending.extend(lines)
        self.count += len(self._pending) - before

    def flush(self) -> None:
        """Write what was appended. After a failure nothing of it is in the file, and it is tried again next time.

        Raises:
            StorageRefused: the system refuses, e.g. because the disk is full.
        """
        if not self._pending:
            return
        data = ("\n".join(self._pending) + "\n").encode()
        try:
            written = 0
            while written < len(data):  # after a short write the next one fails with the reason, e.g. a full disk
                written += os.write(self._file, data[written:])
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise StorageRefused(f"{self.path}: {folders.explained(error)}") from None
        self._size += len(data)
        self._pending.clear()

    def close(self) -> None:
        """Close without flushing. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _whole_lines(file: int) -> tuple[int, int]:
    """Return how many whole lines a file has and where the last of them ends."""
    count, position, end = 0, 0, 0
    while chunk := os.pread(file, _CHUNK, position):
        if (last := chunk.rfind(b"\n")) >= 0:
            count += chunk.count(b"\n")
            end = position + last + 1
        position += len(chunk)
    return count, end
