"""Durations as people write them (`200ms`, `30s`, `1h30m`) and as code uses them: float seconds.

The one place that knows the grammar. It is a subset of Go's, so Kubernetes users can write what they know: whole
numbers, units from large to small, each at most once.
"""

from __future__ import annotations

import re
from typing import Final

PATTERN: Final = r"^([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$"
"""The grammar for a JSON schema; it cannot say that one part at least must be there, `parse` does."""

_PARTS: Final = re.compile(PATTERN, re.ASCII)
_UNITS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def parse(written: str) -> float:
    """Return the seconds of a duration, exact to the millisecond.

    Raises:
        ValueError: it is not a duration; the message says how to write one.
    """
    parts = _PARTS.fullmatch(written)
    if parts is None or not written:
        raise ValueError("is not a duration: write a whole number with a unit, such as 200ms, 30s, 5m or 1h30m")
    total = 0
    for part, milliseconds in zip(parts.groups(), _UNITS.values(), strict=True):
        if part is not None:
            total += int(part.rstrip("hms")) * milliseconds
    return total / 1000


def text(seconds: float) -> str:
    """Return the shortest way to write so many seconds, rounded to the millisecond; `parse` reads it back."""
    rest = round(seconds * 1000)
    if rest < 0:
        raise ValueError(f"seconds: {seconds} is negative: a duration is 0 or more")
    written = ""
    for unit, milliseconds in _UNITS.items():
        count, rest = divmod(rest, milliseconds)
        if count:
            written += f"{count}{unit}"
    return written or "0s"
