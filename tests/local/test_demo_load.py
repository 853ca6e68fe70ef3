"""The demo's data and load: real rows in time order, and a curve whose area is the number of events."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.local.demo import curve, flights
from lbg.local.demo.flights import Departure


@pytest.fixture(scope="module")
def rows() -> list[Departure]:
    return flights.departures()


def test_every_departure_is_read_in_order_of_the_schedule(rows: list[Departure]) -> None:
    """The whole set is there, sorted by scheduled time."""
    times = [tuple(map(int, (row.year, row.month, row.day, row.sched_dep_time))) for row in rows]
    assert len(rows) == flights.ROWS
    assert times == sorted(times)


def test_departures_without_tail_number_get_a_key_of_their_carrier(rows: list[Departure]) -> None:
    """The 2,512 rows that name no aircraft are spread over their carriers, every other row over its aircraft."""
    keys = Counter(row.key for row in rows)
    unknown = {key: count for key, count in keys.items() if key.startswith("UNKNOWN-")}
    assert sum(unknown.values()) == 2_512
    assert unknown["UNKNOWN-9E"] == 1_044
    assert len(keys) == 4_043 + len(unknown)


def test_every_row_has_an_identity_of_its_own(rows: list[Departure]) -> None:
    """No two rows are the same event, so the output can be compared with the source row by row."""
    assert len({(row.scheduled, row.carrier, row.flight, row.origin) for row in rows}) == flights.ROWS


def test_a_body_is_json_with_the_delay_or_null(rows: list[Departure]) -> None:
    """A cancelled departure has no delay, which is not the same as a delay of 0."""
    assert json.loads(rows[0]._replace(dep_delay="NA").body)["dep_delay"] is None


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
