"""Output records: what a consumer writes is what the validator reads, and damage names its field."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import outputs
from lbg.core.outputs import OutputRecord
from lbg.core.wire import Message

NUMBERS = st.integers(-1, 2**63 - 1)
TIMES = st.floats(-1, 1e13)
RECORDS = st.builds(
    OutputRecord,
    message_id=st.text(),
    key=st.text(),
    shard=NUMBERS,
    queue=NUMBERS,
    epoch=NUMBERS,
    producer=st.text(),
    incarnation=NUMBERS,
    sequence=NUMBERS,
    consumer=st.text(),
    ordinal=NUMBERS,
    attempt=NUMBERS,
    redelivered=st.booleans(),
    first_after_handover=st.booleans(),
    clean=st.booleans(),
    started=TIMES,
    ended=TIMES,
    published=TIMES,
    outcome=st.sampled_from(["handled", "skipped", "dead-lettered"]),
)
A_RECORD = OutputRecord(
    message_id="p:1:2:3",
    key="k",
    shard=2,
    queue=0,
    epoch=1,
    producer="p",
    incarnation=1,
    sequence=3,
    consumer="pod_uid_1",
    ordinal=0,
    attempt=1,
    redelivered=False,
    first_after_handover=True,
    clean=True,
    started=1.0,
    ended=2.0,
    published=-1.0,
)


@given(RECORDS)
def test_record_survives_its_message_and_its_line(record: OutputRecord) -> None:
    """As headers and as one line of JSON."""
    assert outputs.from_message(Message(b"", record.to_headers())) == record
    line = record.to_json()
    assert "\n" not in line
    assert outputs.from_mapping(json.loads(line)) == record


def test_headers_of_others_and_fields_of_newer_writers_are_ignored() -> None:
    """Whatever else the message carries."""
    headers = {**A_RECORD.to_headers(), "traceparent": "00-x", outputs.PREFIX + "mood": "good"}
    assert outputs.from_message(Message(b"body", headers)) == A_RECORD


def test_a_record_without_outcome_was_handled() -> None:
    """The field came later than the others."""
    values = asdict(replace(A_RECORD, outcome="skipped"))
    del values["outcome"]
    assert outputs.from_mapping(values).outcome == "handled"


@pytest.mark.parametrize("name", [name for name in asdict(A_RECORD) if name != "outcome"])
def test_a_missing_field_is_named(name: str) -> None:
    """Each one."""
    values = asdict(A_RECORD)
    del values[name]
    with pytest.raises(ValueError, match=rf"^{name}: expected .*, got nothing$"):
        outputs.from_mapping(values)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("key", 5, "key: expected a string, got int"),
        ("shard", "5", "shard: expected an integer, got str"),
        ("shard", 5.0, "shard: expected an integer, got float"),
        ("shard", True, "shard: expected an integer, got bool"),
        ("clean", 1, "clean: expected a boolean, got int"),
        ("started", "now", "started: expected a number, got str"),
        ("started", False, "started: expected a number, got bool"),
        ("outcome", 0, "outcome: expected a string, got int"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(name: str, value: object, says: str) -> None:
    """With what was expected and what came; a boolean is no number here."""
    with pytest.raises(ValueError, match=f"^{says}$"):
        outputs.from_mapping({**asdict(A_RECORD), name: value})


def test_a_message_without_a_record_is_refused() -> None:
    """Somebody else wrote to the output stream."""
    with pytest.raises(ValueError, match="message_id: expected a string, got nothing"):
        outputs.from_message(Message(b"hello"))
