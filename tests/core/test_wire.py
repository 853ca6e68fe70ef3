"""Wire: what is stamped is read back, and a damaged header makes an event unsequenced, never somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import wire
from lbg.core.wire import UNSHARDED, HeaderValue, Identity, Message

COUNTS = st.integers(0, 2**63 - 1)
IDENTITIES = st.builds(Identity, st.text(), COUNTS, COUNTS, COUNTS)
VALUES: st.SearchStrategy[HeaderValue] = (
    st.text() | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.binary()
)
NAMES = st.text() | st.sampled_from([*wire.IDENTITY_HEADERS, wire.PARTITION_KEY, wire.PUBLISHED_AT, "traceparent"])
MESSAGES = st.builds(Message, st.binary(), st.dictionaries(NAMES, VALUES), st.none() | st.text(), st.none() | st.text())
AN_IDENTITY = Identity("tills", 7, 4, 0)


@given(MESSAGES, st.text(), IDENTITIES, COUNTS)
def test_what_is_stamped_is_read_back(message: Message, key: str, identity: Identity, at: int) -> None:
    """Over whatever the message carried; all else passes through untouched."""
    sent = wire.stamped(message, key, identity, at)
    assert (sent.key, sent.identity, sent.shard, sent.published_at_ms) == (key, identity, identity.shard, at)
    assert (sent.body, sent.content_type, sent.message_id) == (message.body, message.content_type, identity.message_id)
    untouched = set(message.headers) - {*wire.IDENTITY_HEADERS, wire.PUBLISHED_AT}
    assert {name: sent.headers[name] for name in untouched} == {name: message.headers[name] for name in untouched}


@given(MESSAGES)
def test_any_message_can_be_read(message: Message) -> None:
    """Foreign headers of any kind give None or UNSHARDED, no error."""
    assert message.identity is None or message.identity.sequence >= 0
    assert message.shard >= UNSHARDED
    assert message.key is None or isinstance(message.key, str)


@pytest.mark.parametrize("name", [wire.PRODUCER, wire.INCARNATION, wire.SHARD, wire.SEQUENCE])
@pytest.mark.parametrize("value", [None, True, -1, 1.0, b"1"])
def test_an_event_with_a_damaged_identity_is_unsequenced(name: str, value: HeaderValue | None) -> None:
    """One header missing or of a wrong type is enough: a guess could drop somebody else's event."""
    headers = dict(wire.stamped(Message(b""), "k", AN_IDENTITY, 1).headers)
    del headers[name]
    if value is not None:
        headers[name] = value
    assert Message(b"", headers).identity is None


def test_an_event_without_a_shard_is_unsharded() -> None:
    """Handled serially per queue, which keeps the broker's order."""
    assert Message(b"").shard == UNSHARDED


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({wire.KEY: "a", wire.PARTITION_KEY: "b"}, "a"),
        ({wire.PARTITION_KEY: "b"}, "b"),
        ({wire.KEY: 5}, None),
        ({}, None),
    ],
)
def test_the_key_is_ours_or_else_that_of_cloudevents(headers: dict[str, HeaderValue], key: str | None) -> None:
    """`partitionkey` is accepted where `lbg-key` is missing."""
    assert Message(b"", headers).key == key


def test_message_id_names_every_part_of_the_identity() -> None:
    """Stable across re-sends, and in the order in which identities compare."""
    assert AN_IDENTITY.message_id == "tills:7:4:0"


@given(MESSAGES, st.text(), IDENTITIES)
def test_a_copy_that_was_set_aside_is_unsequenced_and_keeps_who_it_was(
    message: Message, key: str, identity: Identity
) -> None:
    """Put back by hand it is handled anew; under its old identity it would be dropped as a duplicate."""
    sent = wire.stamped(message, key, identity, 1)
    copy = wire.set_aside(sent, {"lbg-dead-reason": "poison"})
    assert (copy.identity, copy.shard, copy.message_id, copy.body) == (None, UNSHARDED, None, sent.body)
    original = {name.removeprefix("lbg-"): sent.headers[name] for name in wire.IDENTITY_HEADERS}
    assert original.items() <= {name.removeprefix(wire.ORIGINAL_PREFIX): v for name, v in copy.headers.items()}.items()
    assert copy.headers[wire.ORIGINAL_PREFIX + "id"] == identity.message_id
    assert copy.headers["lbg-dead-reason"] == "poison"
