"""The arithmetic between measurements and figures. What a figure comes out at is the business of `make bench`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import figures
from bench.figures import Call

CALLS = st.lists(
    st.builds(
        lambda key, began, seconds: Call(key, began, began + seconds),
        st.sampled_from("abcd"),
        st.floats(0, 100),
        st.floats(0, 10),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (49.9, ("<", 50.0), True),
        (50.0, ("<", 50.0), False),
        (1.1, ("<=", 1.1), True),
        (1.11, ("<=", 1.1), False),
        (5000.0, (">=", 5000.0), True),
        (4999.0, (">=", 5000.0), False),
    ],
)
def test_a_target_is_met_on_its_own_side(value: float, target: figures.Wanted, met: bool) -> None:
    """The limit itself belongs to <= and >=, not to <."""
    assert figures.figure("it", value, "ms", target)["met"] is met


def test_a_target_is_judged_before_the_value_is_rounded() -> None:
    """A value that rounds to the limit and lies beyond it misses."""
    found = figures.figure("it", 50.001, "ms", ("<=", 50.0))
    assert found == {"name": "it", "value": 50.0, "unit": "ms", "target": "<= 50 ms", "met": False}


def test_what_was_not_measured_meets_no_target_and_is_not_zero() -> None:
    """Unknown stays None; without a target there is nothing to meet."""
    missed = figures.figure("it", None, "ms", ("<", 50.0))
    assert (missed["value"], missed["met"]) == (None, False)
    assert figures.figure("it", None, "ms")["met"] is None


def test_sides_are_measured_in_turn_and_every_second_round_goes_backwards() -> None:
    """Round n of one side stands beside round n of the other, and neither always goes first."""
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = figures.interleaved({"a": lambda: side("a"), "b": lambda: side("b")}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_a_ratio_is_of_neighbours_and_not_of_medians() -> None:
    """A machine that slows down tenfold over the rounds leaves the ratio as it is."""
    assert figures.ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0]) == 2.0


def test_ideal_is_the_sum_over_the_lanes_when_keys_are_even() -> None:
    """Four keys of 3 s over two lanes take 6 s."""
    calls = [Call(key, 0.0, 3.0) for key in "abcd"]
    assert figures.ideal_seconds(calls, lanes=2) == 6.0


def test_ideal_is_the_longest_key_when_one_key_has_most() -> None:
    """A key is serial: more lanes do not shorten it."""
    calls = [Call("busy", 0.0, 1.0)] * 9 + [Call("idle", 0.0, 1.0)]
    assert figures.ideal_seconds(calls, lanes=8) == 9.0


def test_ideal_counts_no_lane_that_no_key_can_fill() -> None:
    """Two keys use two of eight lanes."""
    calls = [Call("a", 0.0, 4.0), Call("b", 0.0, 4.0)]
    assert figures.ideal_seconds(calls, lanes=8) == 4.0


@given(CALLS, st.integers(1, 8))
def test_one_lane_needs_the_sum_and_more_lanes_never_need_longer(calls: list[Call], lanes: int) -> None:
    """The ideal lies between the longest key and the sum of all."""
    total = sum(call.seconds for call in calls)
    ideal = figures.ideal_seconds(calls, lanes)
    assert figures.ideal_seconds(calls, 1) == pytest.approx(total)
    assert max(call.seconds for call in calls) - 1e-9 <= ideal <= total + 1e-9
    assert ideal <= figures.ideal_seconds(calls, max(1, lanes - 1)) + 1e-9


def test_the_span_is_from_the_first_begin_to_the_last_end() -> None:
    """The call that ends last need not be the one that began last."""
    assert figures.span_seconds([Call("a", 1.0, 9.0), Call("b", 2.0, 3.0)]) == 8.0
