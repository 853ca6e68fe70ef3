"""Schedules: which floor under the number of consumers is in force at a given wall time.

A schedule's floor begins at each moment of its cron expression and lasts until the next moment of any schedule of the
group. So `0 7 * * 1-5: min 6` and `0 19 * * *: min 1` together are an office day. Of several that begin at the same
moment the highest floor counts. A group that is created at noon has the floor of the moment before noon.

Cron is the five fields of the POSIX crontab with ranges, lists, steps and English names; as there, a restricted day of
month and a restricted day of week are alternatives. `spec.autoscaling` has checked the grammar. Time zones come in as
`tzinfo` values: reading the time zone database is I/O, and a slim image may not have one. Whoever observes loads those
that `zones_of` names; a schedule whose zone is missing is reported by `floor_at` and sets no floor.

Summer time: a moment that is skipped happens as late as the clocks were put forward, and one that occurs twice happens
the first time only. So a daily schedule happens once a day, also on those two days.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from lbg.core.spec.autoscaling import Schedule

_NAMES: Final = {
    name: number
    for first, names in (
        (1, "jan feb mar apr may jun jul aug sep oct nov dec"),
        (0, "sun mon tue wed thu fri sat"),
    )
    for number, name in enumerate(names.split(), first)
}
_LIMITS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))

_LOOK_BACK_DAYS: Final = 8 * 366 + 1
"""29 February comes at least once in eight years, also around a century that leaves one out."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression as sets of numbers; Sunday is 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_either_day: bool  # day of month and day of week are both restricted: either is enough

    def is_on(self, day: date) -> bool:
        """Return whether any moment of a day belongs to the expression."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (of_month or of_week) if self.is_either_day else (of_month and of_week)


@dataclass(frozen=True, slots=True)
class Floor:
    """The floor in force, why, and which time zones could not be found."""

    min: int = 0
    cron: str | None = None  # of the schedule in force
    unknown_zones: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def parse(text: str) -> Cron:
    """Return the sets behind a cron expression.

    Raises:
        ValueError: it is not five fields of numbers, names, ranges, lists and steps.
    """
    fields = text.lower().split()
    if len(fields) != len(_LIMITS):
        raise ValueError(f"cron: {text!r} has {len(fields)} fields: write minute, hour, day, month, day of week")
    minutes, hours, days, months, weekdays = (
        _numbers(field, least, most) for field, (least, most) in zip(fields, _LIMITS, strict=True)
    )
    # A step over everything, such as */2, restricts as well; only a star leaves a field open.
    is_either_day = fields[2] != "*" and fields[4] != "*"
    return Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), is_either_day)


def _numbers(field: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        low = least if first == "*" else _number(first)
        high = most if first == "*" or (step and not last) else _number(last or first)
        if not least <= low <= high <= most or (step and int(step) < 1):
            raise ValueError(f"cron: {part!r} is out of bounds: use {least} to {most}")
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str) -> int:
    return _NAMES[text] if text in _NAMES else int(text)


def last_moment(cron: str, zone: tzinfo, wall: float) -> float | None:
    """Return the latest moment of a cron expression at or before a wall time, or None if it had none in eight years.

    Args:
        cron: five fields, in the local time of `zone`.
        wall: seconds since the Unix epoch, as the result.
    """
    # A moment is a whole minute, so the answer is the same all through a minute.
    return _last_moment(cron, zone, int(wall // 60))


@lru_cache(maxsize=1024)
def _last_moment(cron: str, zone: tzinfo, minute: int) -> float | None:
    expression = parse(cron)
    wall = minute * 60
    # Where clocks were put back, an earlier moment may carry a later local time: start a day ahead and compare in UTC.
    today = datetime.fromtimestamp(wall, zone).date() + timedelta(days=1)
    for days_back in range(_LOOK_BACK_DAYS):
        day = today - timedelta(days=days_back)
        if not expression.is_on(day):
            continue
        moments = [moment for moment in _moments(expression, day, zone) if moment <= wall]
        if moments:
            return max(moments)
    return None


def _moments(expression: Cron, day: date, zone: tzinfo) -> Iterator[float]:
    for hour in expression.hours:
        for minute in expression.minutes:
            yield datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).timestamp()


def zones_of(schedules: Sequence[Schedule]) -> frozenset[str]:
    """Return the IANA names that `floor_at` needs a `tzinfo` for; UTC needs none."""
    return frozenset(schedule.time_zone for schedule in schedules) - {"UTC"}


def floor_at(schedules: Sequence[Schedule], wall: float, zones: Mapping[str, tzinfo]) -> Floor:
    """Return the floor in force at a wall time.

    Args:
        schedules: of one group.
        wall: seconds since the Unix epoch.
        zones: time zones by IANA name.
    """
    known = {"UTC": UTC, **zones}
    unknown = sorted({schedule.time_zone for schedule in schedules} - known.keys())
    begun: list[tuple[float, int, str]] = []
    for schedule in schedules:
        zone = known.get(schedule.time_zone)
        moment = last_moment(schedule.cron, zone, wall) if zone is not None else None
        if moment is not None:
            begun.append((moment, schedule.min, schedule.cron))
    if not begun:
        return Floor(unknown_zones=tuple(unknown))
    _, floor, cron = max(begun)
    return Floor(floor, cron, tuple(unknown))
