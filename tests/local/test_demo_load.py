"""The demo's data and load: real rows in time order, and a curve whose area is the number of events."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.local.demo import curve, flights


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    return flights.departures()


def test_every_departure_is_read_in_order_of_the_schedule(rows: list[dict[str, str]]) -> None:
    """The whole set is there, sorted by scheduled time."""
    times = [tuple(int(row[name]) for name in ("year", "month", "day", "sched_dep_time")) for row in rows]
    assert len(rows) == flights.ROWS
    assert times == sorted(times)


def test_departures_without_tail_number_get_a_key_of_their_carrier(rows: list[dict[str, str]]) -> None:
    """The 2,512 rows that name no aircraft are spread over their carriers, every other row over its aircraft."""
    keys = Counter(map(flights.key, rows))
    unknown = {key: count for key, count in keys.items() if key.startswith("UNKNOWN-")}
    assert sum(unknown.values()) == 2_512
    assert unknown["UNKNOWN-9E"] == 1_044
    assert len(keys) == 4_043 + len(unknown)


def test_a_body_identifies_its_row(rows: list[dict[str, str]]) -> None:
    """No two rows give the same event, so the output can be compared with the source row by row."""
    assert len({body for _, body in flights.events(rows)}) == flights.ROWS


def test_a_body_is_json_with_the_delay_or_null(rows: list[dict[str, str]]) -> None:
    """A cancelled departure has no delay, which is not the same as a delay of 0."""
    assert json.loads(flights.body({**rows[0], "dep_delay": "NA"}))["dep_delay"] is None


@given(count=st.integers(1, 10**6), seconds=st.floats(1, 1e4))
def test_a_fitted_curve_is_due_in_full_at_its_end(count: int, seconds: float) -> None:
    """The area under the curve is the number of events, whatever the length."""
    load = curve.fitted(curve.BLACK_FRIDAY, count, seconds)
    assert load.due(load.seconds) == pytest.approx(count)
    assert load.due(2 * load.seconds) == pytest.approx(count)
    assert load.due(0.0) == 0


@given(at=st.floats(0, 200), later=st.floats(0, 200))
def test_what_is_due_never_falls(at: float, later: float) -> None:
    """A publisher that follows the curve never has to take an event back, and never exceeds the peak rate."""
    load = curve.fitted(curve.BLACK_FRIDAY, 10_000, 100)
    first, second = load.due(min(at, later)), load.due(max(at, later))
    assert first <= second <= first + load.peak * abs(at - later) + 1e-6
