"""Marks: each row of the module's table, told as a story, and what damage of stored rows does."""

from __future__ import annotations

import pytest

from lbg.core import marks
from lbg.core.marks import DUPLICATE, HANDLE, Judgement, Violation
from lbg.core.wire import Identity


def event(sequence: int, incarnation: int = 5) -> Identity:
    return Identity("p", incarnation, 3, sequence)


def handled(*sequences: int, incarnation: int = 5, into: marks.Marks | None = None) -> marks.Marks:
    """Marks after these events were handled in this order."""
    kept = marks.Marks() if into is None else into
    for sequence in sequences:
        kept.record(event(sequence, incarnation), 0)
    return kept


def finding(violation: Violation) -> Judgement:
    return Judgement(False, violation)


def test_the_next_event_is_handled_and_nothing_is_wrong() -> None:
    """s = high + 1."""
    assert handled(0, 1).judge(event(2)) == HANDLE


def test_a_jump_is_handled_and_counted_as_a_gap() -> None:
    """s > high + 1: the events between are not seen yet."""
    kept = handled(0, 1)
    assert kept.judge(event(4)) == finding(Violation.GAP)
    assert handled(4, into=kept).judge(event(5)) == HANDLE


def test_an_event_that_was_handled_is_a_duplicate_whatever_came_after() -> None:
    """s <= high and in no open range."""
    assert {handled(0, 1, 4).judge(event(sequence)) for sequence in (0, 1, 4)} == {DUPLICATE}


def test_an_event_from_an_open_range_is_handled_as_late_once() -> None:
    """The range is split around it, and its neighbours stay open."""
    kept = handled(0, 5)
    assert kept.judge(event(3)) == finding(Violation.LATE)
    assert handled(3, into=kept).judge(event(3)) == DUPLICATE
    assert [kept.judge(event(sequence)) for sequence in (1, 2, 4)] == [finding(Violation.LATE)] * 3


def test_recording_an_event_twice_changes_nothing() -> None:
    """A retry after a lost acknowledgement does not move the mark."""
    assert handled(0, 2, 1, 1, 2).to_rows() == handled(0, 2, 1).to_rows()


def test_the_first_jump_after_an_unclean_takeover_is_unknown() -> None:
    """The mark may be one renewal old, so the hole is no proof of anything; the next jump is."""
    kept = handled(0, 1)
    kept.doubt()
    assert kept.judge(event(4)) == finding(Violation.UNKNOWN)
    handled(4, into=kept)
    assert kept.judge(event(3)) == finding(Violation.UNKNOWN)
    assert kept.judge(event(6)) == finding(Violation.GAP)


def test_a_late_event_does_not_end_the_doubt() -> None:
    """Only an event beyond the mark tells where the previous owner had come to."""
    kept = handled(0, 5)
    kept.doubt()
    handled(3, into=kept)
    assert kept.judge(event(9)) == finding(Violation.UNKNOWN)


def test_doubt_survives_a_clean_change_of_hands() -> None:
    """A shard without an event in between is still judged by the mark of the owner that died."""
    kept = handled(0, 1)
    kept.doubt()
    assert marks.from_rows(kept.to_rows()).judge(event(4)) == finding(Violation.UNKNOWN)


def test_a_new_life_begins_at_nought() -> None:
    """The newest incarnation starts in order; one that starts in the middle leaves an unknown range."""
    kept = handled(0, 1, incarnation=5)
    assert kept.judge(event(0, incarnation=6)) == HANDLE
    assert kept.judge(event(2, incarnation=7)) == finding(Violation.UNKNOWN)
    handled(2, incarnation=7, into=kept)
    assert kept.judge(event(1, incarnation=7)) == finding(Violation.UNKNOWN)


def test_an_older_life_that_speaks_after_a_newer_one_is_handled_and_counted() -> None:
    """Known or not, it is out of place, and it is never dropped."""
    kept = handled(0, incarnation=6, into=handled(0, incarnation=5))
    assert kept.judge(event(1, incarnation=5)) == finding(Violation.INCARNATION)
    assert kept.judge(event(0, incarnation=4)) == finding(Violation.INCARNATION)


def test_a_life_older_than_the_eight_newest_is_handled_each_time() -> None:
    """Nothing is kept about it, so nothing of it can be called a duplicate."""
    kept = marks.Marks()
    for incarnation in range(10, 18):
        handled(0, incarnation=incarnation, into=kept)
    for _ in range(2):
        assert kept.judge(event(0, incarnation=9)) == finding(Violation.INCARNATION)
        handled(0, incarnation=9, into=kept)


def test_a_producer_that_was_idle_for_a_week_is_forgotten() -> None:
    """Others stay; its next event begins anew."""
    kept = handled(0, 1)
    kept.record(Identity("q", 1, 3, 0), marks.IDLE_LIMIT_MS)
    kept.prune(marks.IDLE_LIMIT_MS + 1)
    assert (kept.high("p", 5, 3), kept.high("q", 1, 3)) == (None, 0)


@pytest.mark.parametrize(
    "rows",
    [
        None,
        [["p", 3]],
        [["p", 3, 0, [[5, -1, False, []]]]],
        [["p", 3, 0, [[5, 1.5, False, []]]]],
        [["p", 3, 0, [[5, 9, False, [[1]]]]]],
        [["p", 3, 0, [[5, 9, False, [[4, 2, False]]]]]],
        [["p", 3, 0, [[5, 9, False, [[4, 5, False], [1, 2, False]]]]]],
        [["p", 3, 0, [[5, 9, False, [[1, 3, False], [3, 4, False]]]]]],
        [["p", 3, 0, [[5, 9, False, [[8, 9, False]]]]]],
    ],
)
def test_rows_that_are_no_marks_are_refused(rows: object) -> None:
    """A range out of place would hide another, and events in it would be dropped."""
    with pytest.raises((ValueError, TypeError)):
        marks.from_rows(rows)
