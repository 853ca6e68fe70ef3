"""What may be published: keys, bodies and headers, each refused in one line that names it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import hashing
from lbg.core.hashing import Algorithm
from lbg.publishing import InvalidEvent
from lbg.publishing.events import Event, EventFactory


def factory(algorithm: Algorithm = Algorithm.XXH64, max_body: int = 100) -> EventFactory:
    return EventFactory(hashing.sharder(16, algorithm), max_body=max_body, clock_ns=lambda: 5_999_999)


def event(key: Any = "k", body: Any = b"", headers: Any = None, content_type: Any = None) -> Event:
    return factory().event(key, body, headers, content_type)


@given(st.text(), st.binary(max_size=100))
def test_every_text_is_a_key(key: str, body: bytes) -> None:
    """Keys are any valid text, the empty one too; the shard is the contract's."""
    made = event(key, body)
    assert (made.key, made.body, made.shard, made.at_ms) == (key, body, hashing.shard_of(key, 16), 5)


@pytest.mark.parametrize("body", [bytearray(b"ab"), memoryview(b"ab"), b"ab"])
def test_bodies_are_kept_as_they_were(body: bytes | bytearray | memoryview) -> None:
    """A buffer that the application goes on using is copied."""
    made = event(body=body)
    if isinstance(body, bytearray):
        body[0] = 0
    assert made.body == b"ab"


def test_headers_are_kept_as_they_were() -> None:
    """A later change of the application's dictionary is not published."""
    headers: dict[str, str] = {"a": "1"}
    made = event(headers=headers)
    headers["a"] = "2"
    assert made.headers == {"a": "1"}


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ({"key": 7}, "key: expected a string, got int: convert it, str(key) for a number"),
        ({"key": None}, "key: expected a string, got NoneType: convert it, str(key) for a number"),
        ({"key": "\ud800"}, "key: holds half of a surrogate pair"),
        ({"body": "text"}, "body: expected bytes, got str: encode it first, body.encode()"),
        ({"body": {"a": 1}}, "body: expected bytes, got dict: serialise it first"),
        ({"body": b"x" * 101}, "body: 101 bytes are more than max_body 100: publish a reference"),
        ({"headers": {"lbg-key": "x"}}, "header lbg-key: names that start with lbg- are the producer's own: rename it"),
        ({"headers": {"LBG-Mine": 1}}, "header LBG-Mine: names that start with lbg- are the producer's own: rename it"),
        ({"headers": {"": "x"}}, "headers: '' is no header name: use a string that is not empty"),
        ({"headers": {1: "x"}}, "headers: 1 is no header name: use a string that is not empty"),
        ({"headers": {"a": None}}, "header a: expected a string, number, boolean or bytes, got NoneType: convert it"),
        ({"headers": {"a": [1]}}, "header a: expected a string, number, boolean or bytes, got list: convert it"),
        ({"headers": {"a": 2**63}}, "header a: the integer does not fit 64 bits: publish it as a string"),
        ({"headers": {"a": "\udfff"}}, "header a: holds half of a surrogate pair: publish valid Unicode text"),
        ({"headers": {"\udfff": "a"}}, r"header name '\udfff': holds half of a surrogate pair"),
        ({"content_type": 5}, "content_type: expected a string, got int"),
        ({"content_type": "\udfff"}, "content_type: holds half of a surrogate pair"),
    ],
)
def test_what_cannot_be_published_is_named(arguments: dict[str, Any], want: str) -> None:
    """One line: the field, what is wrong, what to do."""
    with pytest.raises(InvalidEvent) as caught:
        event(**arguments)
    assert str(caught.value).startswith(want)
    assert "\n" not in str(caught.value)


def test_modulo_names_what_it_needs() -> None:
    """A key that is no number is refused under modulo, and not quoted: keys may be private."""
    with pytest.raises(InvalidEvent, match=r"^key: is not a decimal integer, which algorithm modulo needs") as caught:
        factory(Algorithm.MODULO).event("N14228", b"", None, None)
    assert "N14228" not in str(caught.value)


@pytest.mark.parametrize("value", [True, -(2**63), 2**63 - 1, 1.5, "ü", b"\xff"])
def test_headers_of_every_wire_type_pass(value: Any) -> None:
    """String, number, boolean and bytes are what brokers carry."""
    assert event(headers={"a": value}).headers == {"a": value}


def test_the_size_counts_what_the_application_gave() -> None:
    """Body, key and headers count against the bound on bytes."""
    assert event("key", b"body", {"ab": "cd", "e": b"f", "n": 1}).size == 4 + 3 + 4 + 2 + 9
