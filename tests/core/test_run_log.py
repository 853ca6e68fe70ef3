"""The run log's lines: what is written is read back, and a damaged line is refused with the field's name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import run_log

TIMES = st.floats(min_value=0, max_value=1e13)
DETAILS = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()))


@given(TIMES, st.text(min_size=1), st.none() | st.text(), DETAILS)
def test_event_survives_its_line(at_ms: float, kind: str, consumer: str | None, detail: dict[str, object]) -> None:
    """Any event, of a known kind or not, reads back as it was written, from text and from bytes, on one line."""
    event = run_log.RunEvent(at_ms, kind, consumer, detail)
    line = event.to_json()
    assert "\n" not in line
    assert run_log.from_json(line) == event


def test_unknown_kinds_and_fields_are_kept_or_ignored() -> None:
    """A newer writer's line stays readable: its kind is kept, its extra field is ignored."""
    event = run_log.from_json(b'{"at_ms":5,"kind":"moon-rose","phase":"full"}')
    assert event == run_log.RunEvent(5.0, "moon-rose")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("", "event"),
        ("[1]", "event"),
        ('{"at_ms":1,"kind":"scaled"', "event"),
        ('{"kind":"scaled"}', "at_ms"),
        ('{"at_ms":true,"kind":"scaled"}', "at_ms"),
        ('{"at_ms":NaN,"kind":"scaled"}', "at_ms"),
        ('{"at_ms":1e999,"kind":"scaled"}', "at_ms"),
        ('{"at_ms":1' + "0" * 400 + ',"kind":"scaled"}', "at_ms"),
        ('{"at_ms":1,"kind":7}', "kind"),
        ('{"at_ms":1,"kind":""}', "kind"),
        ('{"at_ms":1,"kind":"scaled","consumer":3}', "consumer"),
        ('{"at_ms":1,"kind":"scaled","detail":[]}', "detail"),
    ],
)
def test_damaged_line_is_refused_by_field(line: str, names: str) -> None:
    """The error is one line that starts with what is wrong."""
    with pytest.raises(ValueError, match=f"^{names}: ") as refused:
        run_log.from_json(line)
    assert "\n" not in str(refused.value)


def test_every_unplanned_kind_is_a_kind_of_this_log() -> None:
    """Planned endings (stopped, scaled, rolled out) are not among those that take a queue by force."""
    planned = {run_log.CONSUMER_STOPPED, run_log.SCALED, run_log.ROLLED_OUT, run_log.CONSUMER_STARTED}
    assert not planned & run_log.UNPLANNED
    assert run_log.LAST_OF_A_CONSUMER < run_log.UNPLANNED
