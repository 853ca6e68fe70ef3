"""What libraries log while a command runs: warnings as single lines on standard error, redacted like every error."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from lbg.cli import errors


class _Lines(logging.Handler):
    """Writes a record as one line. Its traceback is left out: what a command fails with comes through `errors`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write it."""
        try:
            line = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                line = f"{line}: {record.exc_info[1]}"
        except Exception:  # noqa: BLE001  # the contract of logging: a bad record is the handler's to report
            self.handleError(record)
        else:
            errors.say(f"{record.levelname.lower()}: {line}")


@contextlib.contextmanager
def on_standard_error() -> Iterator[None]:
    """Write warnings and worse of all libraries to standard error within the block; everything with LBG_DEBUG=1."""
    root, lines = logging.getLogger(), _Lines()
    lines.setLevel(logging.DEBUG if os.environ.get("LBG_DEBUG") == "1" else logging.WARNING)
    before = root.level
    root.addHandler(lines)
    root.setLevel(min(before, lines.level) if before else lines.level)
    try:
        yield
    finally:
        root.removeHandler(lines)
        root.setLevel(before)
