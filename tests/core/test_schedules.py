"""Schedules: which floor is in force when, also on the days on which the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import hypothesis
import pytest
from hypothesis import strategies as st

from lbg.core import schedules
from lbg.core.schedules import Floor
from lbg.core.spec.autoscaling import Schedule

HOUR = timedelta(hours=1)


class Vienna(tzinfo):
    """Central European time by its rule, so that the tests need no time zone database."""

    @staticmethod
    def _is_summer(utc: datetime) -> bool:
        def last_sunday(month: int) -> datetime:
            day = utc.replace(month=month, day=31, hour=1, minute=0, second=0, microsecond=0)
            return day - timedelta(days=day.isoweekday() % 7)

        return last_sunday(3) <= utc < last_sunday(10)

    def utcoffset(self, when: datetime | None) -> timedelta:
        """Return the offset; of a time that exists twice or not at all, `fold` chooses (PEP 495)."""
        assert when is not None
        local = when.replace(tzinfo=None)
        summer, winter = self._is_summer(local - 2 * HOUR), not self._is_summer(local - HOUR)
        if summer == winter:
            return (2 * HOUR if summer else HOUR) if when.fold == 0 else (HOUR if summer else 2 * HOUR)
        return 2 * HOUR if summer else HOUR

    def dst(self, when: datetime | None) -> timedelta:
        """Return the part of the offset that is summer time."""
        return self.utcoffset(when) - HOUR

    def tzname(self, when: datetime | None) -> str:
        """Return the name."""
        return "CEST" if self.dst(when) else "CET"

    def fromutc(self, when: datetime) -> datetime:
        """Return local time, with `fold` set the second time round."""
        utc = when.replace(tzinfo=None)
        local = utc + (2 * HOUR if self._is_summer(utc) else HOUR)
        is_second = not self._is_summer(utc) and self._is_summer(utc - HOUR)
        return local.replace(tzinfo=self, fold=int(is_second))


VIENNA = Vienna()


def at(text: str, zone: tzinfo | None = None) -> float:
    """Return a moment written as local time."""
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


@pytest.mark.parametrize(
    ("cron", "now", "want"),
    [
        ("0 8 * * *", "2026-11-27T08:00", "2026-11-27T08:00"),
        ("0 8 * * *", "2026-11-27T07:59", "2026-11-26T08:00"),
        ("*/15 * * * *", "2026-11-27T10:44", "2026-11-27T10:30"),
        ("5/20 * * * *", "2026-11-27T10:44", "2026-11-27T10:25"),
        ("0 8-18/5 * * *", "2026-11-27T17:00", "2026-11-27T13:00"),
        ("0 8 * * 1-5", "2026-11-29T12:00", "2026-11-27T08:00"),
        ("0 8 * * mon-fri", "2026-11-29T12:00", "2026-11-27T08:00"),
        ("0 0 * * 7", "2026-11-29T12:00", "2026-11-29T00:00"),
        ("0 0 * * 0", "2026-11-29T12:00", "2026-11-29T00:00"),
        ("30 6 1,15 * *", "2026-11-27T12:00", "2026-11-15T06:30"),
        ("0 0 24 dec *", "2026-11-27T12:00", "2025-12-24T00:00"),
        ("0 0 29 2 *", "2026-11-27T12:00", "2024-02-29T00:00"),
        ("0 0 13 * fri", "2026-11-14T00:00", "2026-11-13T00:00"),
        ("0 0 13 * fri", "2026-11-20T01:00", "2026-11-20T00:00"),
    ],
)
def test_the_last_moment_of_an_expression(cron: str, now: str, want: str) -> None:
    """Ranges, lists, steps, names, either kind of day, leap days: the latest moment at or before now."""
    assert schedules.last_moment(cron, UTC, at(now)) == at(want)


def test_a_day_that_never_comes_has_no_moment() -> None:
    """30 February is no error, and no moment either."""
    assert schedules.last_moment("0 0 30 2 *", UTC, at("2026-11-27T12:00")) is None


@hypothesis.given(minute=st.integers(0, 59), hour=st.integers(0, 23), wall=st.integers(1_700_000_000, 1_800_000_000))
def test_a_daily_moment_lies_within_the_last_day_and_a_change_of_the_clocks(minute: int, hour: int, wall: int) -> None:
    """Where there is summer time a daily schedule began within the last 25 hours, at its local time or an hour on."""
    moment = schedules.last_moment(f"{minute} {hour} * * *", VIENNA, wall)
    assert moment is not None
    assert 0 <= wall - moment < 25 * 3600
    local = datetime.fromtimestamp(moment, VIENNA)
    written = local.replace(hour=hour, minute=minute, fold=0)
    assert local.replace(tzinfo=None) - written.replace(tzinfo=None) in (timedelta(0), timedelta(hours=1))


def test_a_moment_that_the_clocks_skip_comes_an_hour_later_on_the_wall() -> None:
    """On the last Sunday of March 02:30 does not exist in Vienna; the floor begins when 02:30 would have been."""
    before, after = at("2026-03-29T01:59", VIENNA), at("2026-03-29T03:30", VIENNA)
    assert schedules.last_moment("30 2 * * *", VIENNA, before) == at("2026-03-28T02:30", VIENNA)
    assert schedules.last_moment("30 2 * * *", VIENNA, after) == after


def test_a_moment_that_comes_twice_counts_the_first_time_and_is_not_forgotten() -> None:
    """On the last Sunday of October 02:30 comes twice; between the two the floor stays in force."""
    first = datetime(2026, 10, 25, 2, 30, fold=0, tzinfo=VIENNA).timestamp()
    between = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=VIENNA).timestamp()
    again = datetime(2026, 10, 25, 2, 45, fold=1, tzinfo=VIENNA).timestamp()
    assert schedules.last_moment("30 2 * * *", VIENNA, between) == first
    assert schedules.last_moment("30 2 * * *", VIENNA, again) == first


OFFICE = (
    Schedule(cron="0 7 * * 1-5", time_zone="Europe/Vienna", min=6),
    Schedule(cron="0 19 * * *", time_zone="Europe/Vienna", min=1),
)


@pytest.mark.parametrize(
    ("now", "want"),
    [
        ("2026-11-27T06:59", 1),
        ("2026-11-27T07:00", 6),
        ("2026-11-27T18:59", 6),
        ("2026-11-27T19:00", 1),
        ("2026-11-28T12:00", 1),
    ],
)
def test_the_schedule_that_began_last_sets_the_floor(now: str, want: int) -> None:
    """An office day: six from seven to seven on working days, one otherwise."""
    assert schedules.floor_at(OFFICE, at(now, VIENNA), {"Europe/Vienna": VIENNA}).min == want


def test_of_two_that_begin_together_the_higher_floor_counts() -> None:
    """The order in which schedules are written does not matter."""
    both = (Schedule(cron="0 7 * * *", min=2), Schedule(cron="0 7 27 11 *", min=9))
    for order in (both, both[::-1]):
        assert schedules.floor_at(order, at("2026-11-27T08:00"), {}) == Floor(9, "0 7 27 11 *")


def test_a_schedule_in_an_unknown_zone_sets_no_floor_and_is_named() -> None:
    """A wrong name does not silently mean UTC, and the other schedules still count."""
    strange = Schedule(cron="0 0 * * *", time_zone="Mars/Olympus", min=9)
    known = Schedule(cron="0 0 * * *", min=2)
    want = Floor(2, "0 0 * * *", ("Mars/Olympus",))
    assert schedules.floor_at((strange, known), at("2026-11-27T08:00"), {}) == want


def test_the_zones_to_load_are_named() -> None:
    """Whoever observes loads these; UTC is always there."""
    assert schedules.zones_of((*OFFICE, Schedule(cron="0 0 * * *", min=2))) == {"Europe/Vienna"}


@pytest.mark.parametrize("cron", ["* * * *", "60 * * * *", "* * 0 * *", "9-3 * * * *", "*/0 * * * *", "x * * * *"])
def test_what_is_no_cron_expression_is_refused(cron: str) -> None:
    """The parser does not guess."""
    with pytest.raises(ValueError, match=r"cron|invalid literal"):
        schedules.parse(cron)
