"""Membership: what a seat says about its holder survives the store, and damage of it harms nobody."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbg.core.membership import NOWHERE, Blocked, Seat, Standing, Summary, summary_from_json

COUNTS = st.integers(0, 2**53)
TEXTS = st.text(max_size=8)
FRACTIONS = st.floats(0, 1e9)
STANDINGS = st.dictionaries(COUNTS, st.builds(Standing, COUNTS, COUNTS, COUNTS), max_size=3)

SUMMARIES = st.builds(
    Summary,
    connected=st.booleans(),
    bound=STANDINGS,
    asks=STANDINGS,
    epochs=st.dictionaries(COUNTS, COUNTS, max_size=3),
    rate=FRACTIONS,
    busy=st.floats(0, 1),
    in_hand=COUNTS,
    handled=COUNTS,
    p50_ms=st.none() | FRACTIONS,
    p99_ms=st.none() | FRACTIONS,
    violations=st.dictionaries(TEXTS, COUNTS, max_size=3),
    handovers_ms=st.lists(FRACTIONS, max_size=3).map(tuple),
    stalled=st.lists(COUNTS, max_size=3).map(tuple),
    blocked=st.lists(st.builds(Blocked, COUNTS, COUNTS, TEXTS, TEXTS, TEXTS, COUNTS), max_size=2).map(tuple),
    answered=st.dictionaries(TEXTS, TEXTS, max_size=3),
    conditions=st.lists(TEXTS, max_size=2).map(tuple),
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


@given(SUMMARIES)
def test_summary_survives_the_store(said: Summary) -> None:
    """Any summary, in every field."""
    assert summary_from_json(said.to_json()) == said


def test_an_empty_summary_takes_no_room() -> None:
    """Defaults are left out: a report travels in an annotation."""
    assert Summary().to_json() == "{}"
    assert summary_from_json("") == Summary()


@given(st.sampled_from(Summary.__slots__), JSON)
@settings(max_examples=200)
def test_a_damaged_summary_reads_as_one_that_can_be_used(name: str, value: object) -> None:
    """Whatever a field holds: the result is a summary whose every field survives the store again."""
    read = summary_from_json(json.dumps({"handled": 7, name: value}))
    assert summary_from_json(read.to_json()).to_json() == read.to_json()


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", '"connected"', '{"epochs":{"0":1e999}}', "[" * 100_000, '{"bound":{"0":[1,2]}}']
)
def test_junk_reads_as_an_empty_summary(text: str) -> None:
    """It is only a report: nobody stops over it."""
    assert summary_from_json(text) == Summary()


def test_unknown_fields_are_ignored() -> None:
    """A newer consumer may say more."""
    assert summary_from_json('{"handled":7,"mood":"good"}') == Summary(handled=7)


def test_standings_compare_by_generation_then_term_then_bind() -> None:
    """Larger is newer, and everything is newer than nowhere."""
    standings = [NOWHERE, Standing(1, 9, 9), Standing(2, 1, 9), Standing(2, 2, 1), Standing(2, 2, 2)]
    assert sorted(standings, reverse=True) == standings[::-1]


def test_a_cleared_seat_keeps_its_term_and_generation() -> None:
    """What orders claims never goes back; holder, offer and report go."""
    seat = Seat(3, "v", "pod_uid_1", term=4, renewals=9, generation=2, offered=True, summary=Summary(handled=1))
    assert seat.cleared() == Seat(3, "v", None, term=4, renewals=9, generation=2)
    assert (seat.is_vacant, seat.cleared().is_vacant) == (False, True)
