"""Durations: what people write, what code gets, and that one leads back to the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import durations


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("200ms", 0.2),
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("1h30m", 5400.0),
        ("1m500ms", 60.5),
        ("1h2m3s4ms", 3723.004),
        ("0s", 0.0),
        ("0ms", 0.0),
        ("90s", 90.0),
        ("007s", 7.0),
    ],
)
def test_a_duration_is_read_as_seconds(written: str, seconds: float) -> None:
    """Each unit counts, alone and together."""
    assert durations.parse(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "30", "s", "1.5s", "-1s", "+1s", "30 s", "30S", "1s1m", "1s1s", "1d", "1_0s", "٣s", "30s\n", "ms"]
)
def test_anything_else_is_refused_with_an_example(written: str) -> None:
    """No unit, fraction, sign, blank, other order or other digits."""
    with pytest.raises(ValueError, match=r"^is not a duration: write a whole number with a unit, such as 200ms"):
        durations.parse(written)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.0, "0s"), (0.2, "200ms"), (30.0, "30s"), (90.0, "1m30s"), (5400.0, "1h30m"), (86_400.0, "24h"), (0.0004, "0s")],
)
def test_the_shortest_text_is_written(seconds: float, written: str) -> None:
    """Units that count nothing are left out; less than half a millisecond is nothing."""
    assert durations.text(seconds) == written


def test_negative_seconds_are_refused() -> None:
    """There is no way to write them."""
    with pytest.raises(ValueError, match="seconds: -1 is negative"):
        durations.text(-1)


@given(st.integers(0, 10**12))
def test_text_and_parse_are_inverse_to_the_millisecond(milliseconds: int) -> None:
    """What is written is read back exactly."""
    seconds = milliseconds / 1000
    assert durations.parse(durations.text(seconds)) == seconds
