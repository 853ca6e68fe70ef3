"""Frames and packed messages, without a socket."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]  # ships neither stubs nor py.typed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.brokers import base
from lbg.brokers.embedded import protocol
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.wire import Message

header_values = st.one_of(
    st.text(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(),
)
messages = st.builds(
    Message,
    st.binary(),
    st.dictionaries(st.text(), header_values),
    st.none() | st.text(),
    st.none() | st.text(),
)


@given(messages)
def test_a_message_comes_out_as_it_went_in(message: Message) -> None:
    """Keeps body, ids and headers, and the types of headers, through packing."""
    back = protocol.unpack_message(protocol.pack_message(message))
    assert back == message
    assert [type(value) for value in back.headers.values()] == [type(value) for value in message.headers.values()]


@given(st.lists(st.lists(st.binary(max_size=40), max_size=4)), st.data())
def test_frames_survive_any_cutting_of_the_stream(values: list[list[bytes]], data: st.DataObject) -> None:
    """Yields the same frames however the network slices them."""
    frames = [[protocol.Op.ACK, number, value] for number, value in enumerate(values)]
    stream = b"".join(protocol.encode(frame) for frame in frames)
    reader = protocol.FrameReader()
    got: list[protocol.Frame] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        got += reader.feed(stream[at : at + size])
        at += size
    assert got == frames


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"\xff\xff\xff\xff", id="a length above the limit"),
        pytest.param(b"\x00\x00\x00\x02\xc1\xc1", id="no msgpack"),
        pytest.param(b"\x00\x00\x00\x01\x01", id="no array"),
        pytest.param(b"\x00\x00\x00\x01\x90", id="an empty array"),
        pytest.param(b"\x00\x00\x00\x03\x91\x01\x01", id="more than one value"),
        pytest.param(b"\x00\x00\x00\x01\x92", id="less than it says"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    ],
)
def test_what_is_no_frame_is_refused(stream: bytes) -> None:
    """Raises ProtocolError instead of waiting for gigabytes or passing on nonsense."""
    with pytest.raises(protocol.ProtocolError):
        list(protocol.FrameReader().feed(stream))


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Message(b"", {"n": 2**64}), id="an integer beyond 64 bits"),
        pytest.param(Message(b"", {"s": "\ud800"}), id="a lone surrogate"),
        pytest.param(Message(bytes(protocol.MAX_MESSAGE)), id="too large"),
    ],
)
def test_a_message_that_cannot_be_carried_leaves_no_trace(message: Message) -> None:
    """Refuses it with a reason, and packs the next one as if nothing had happened."""
    with pytest.raises(ValueError, match="message"):
        protocol.pack_message(message)
    assert protocol.unpack_message(protocol.pack_message(Message(b"next"))) == Message(b"next")


def test_a_topology_survives_the_way_to_the_broker_and_back() -> None:
    """Keeps every field of a topology through its plain form, which must be JSON and msgpack."""
    topology = base.Topology(Contract("p", 16, Algorithm.CRC32, 4), "o", "classic", 7, ("a", "b"), join=True)
    values = msgpack.unpackb(msgpack.packb(protocol.topology_to_mapping(topology)))
    assert protocol.topology_from_mapping(values) == topology


@pytest.mark.parametrize("name", ["contract", "owner", "queue_type", "size_limit", "outputs", "join"])
def test_a_topology_with_a_missing_field_is_refused(name: str) -> None:
    """Names what is missing."""
    values = protocol.topology_to_mapping(base.Topology(Contract("p", 16, Algorithm.CRC32, 4), "o"))
    del values[name]
    with pytest.raises(ValueError, match=name):
        protocol.topology_from_mapping(values)
