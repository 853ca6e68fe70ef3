"""Frames between the embedded broker and its clients, and the packed form of a message.

A frame is four bytes of length, big-endian, and a msgpack array whose first element is an `Op`. Every frame carries a
batch where there can be one: many messages, many deliveries, many tags. Both ends send PING as long as they live, so
that silence means something.

A message is packed once, by its publisher, and unpacked once, by its consumer. In between it is bytes.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgpack  # type: ignore[import-untyped]  # ships neither stubs nor py.typed

from lbg.brokers import base
from lbg.core import contract, wire

VERSION: Final = 1
"""Raised when a frame changes its meaning; both ends must speak the same one."""

MAX_MESSAGE: Final = 16 * 1024 * 1024
MAX_FRAME: Final = 64 * 1024 * 1024
FRAME_TARGET: Final = 1024 * 1024
"""Senders start a new frame beyond this many bytes of messages, so that no frame comes near MAX_FRAME."""

PINGS_PER_HEARTBEAT: Final = 5
PAUSE_LIMIT: Final = 0.8
"""Share of a heartbeat after which a client that did not run takes itself for lost.

The broker gives a client up one whole heartbeat after its last sign of life. A client must stop earlier than that, or
it would pass on deliveries that already belong to another.
"""

Frame: TypeAlias = list[Any]


class Op(enum.IntEnum):
    """The first element of a frame, and in the comment the rest of it."""

    # From client to broker. `req` is answered by REPLY or ERROR with the same number.
    HELLO = 1  # req, version, name, owner
    PUBLISH = 2  # batch, publisher, [[address id, kind, prefix, rest]], [address id], [message or None]
    RESUME = 3  # publisher, address id
    BIND = 4  # req, link, prefix, queue, name, window, priority
    ACK = 5  # link, [tag]
    ACK_PUBLISH = 6  # req, link, tag, kind, prefix, rest, message
    RELEASE = 7  # req, link
    READ_LEDGER = 8  # req, link
    WRITE_LEDGER = 9  # req, link, epoch, version, data
    FOLLOW = 10  # req, follower, prefix, output, start, pages
    CREDIT = 11  # follower, pages
    UNFOLLOW = 12  # follower
    DECLARE = 13  # req, topology
    DELETE = 14  # req, prefix, owner, only if empty
    FIND = 15  # req, prefix
    LIST = 16  # req
    OBSERVE = 17  # req, prefix
    DEAD_LETTERS = 18  # req, prefix, limit

    # From broker to client.
    REPLY = 32  # req, value
    ERROR = 33  # req, name of the error class, message, extra
    OUTCOMES = 34  # batch, None when all were accepted, or [outcome index]
    DELIVER = 35  # link, first tag, how many leading ones are redelivered, [message]
    LOST = 36  # link, reason
    RECORDS = 37  # follower, first offset, [message]
    ENDED = 38  # follower, reason

    PING = 48  # either way; no answer


OUTCOMES: Final = tuple(base.Outcome)
OUTCOME_CODES: Final = {outcome: code for code, outcome in enumerate(OUTCOMES)}

TO_SHARD: Final = 0
TO_OUTPUT: Final = 1
TO_DEAD_LETTERS: Final = 2

AddressKey: TypeAlias = tuple[int, str, Any]
"""Kind, prefix, and shard number or output name: an address as it travels."""


class ProtocolError(Exception):
    """The peer sent what is no frame; the connection cannot go on."""


_LENGTH: Final = struct.Struct(">I")
_packer: Final = msgpack.Packer()


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    body: bytes = _packer.pack(frame)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cut a byte stream into frames; keeps what is incomplete for the next call."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that became complete.

        Raises:
            ProtocolError: the stream holds no frame, or one above MAX_FRAME.
        """
        # The usual case is whole frames in one read: no copy into the buffer then.
        buffer: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            buffer = self._buffer
        at, end = 0, len(buffer)
        with memoryview(buffer) as view:
            while end - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(view, at)
                if length > MAX_FRAME:
                    raise ProtocolError(f"frame of {length} bytes is above the limit of {MAX_FRAME}")
                if end - at - _LENGTH.size < length:
                    break
                start = at + _LENGTH.size
                at = start + length
                yield _decode(view[start:at])
        if buffer is data:
            self._buffer += data[at:]
        else:
            del self._buffer[:at]


def _decode(body: memoryview) -> Frame:
    try:
        frame = msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"not a frame: {error}") from None
    if not isinstance(frame, list) or not frame:
        raise ProtocolError("not a frame: expected an array that starts with an operation")
    return frame


def pack_message(message: wire.Message) -> bytes:
    """Return the packed form of a message.

    Raises:
        ValueError: a header cannot be carried (an integer beyond 64 bits, a lone surrogate), or the result is above
            MAX_MESSAGE.
    """
    headers = message.headers
    if type(headers) is not dict:
        headers = dict(headers)
    try:
        packed: bytes = _packer.pack((message.body, headers, message.message_id, message.content_type))
    except (OverflowError, UnicodeEncodeError, TypeError) as error:
        # A failed pack leaves its beginning in the packer; the next frame would carry it.
        _packer.reset()
        raise ValueError(f"message cannot be packed: {error}") from None
    if len(packed) > MAX_MESSAGE:
        raise ValueError(f"message of {len(packed)} bytes is above the limit of {MAX_MESSAGE}")
    return packed


def unpack_message(packed: bytes) -> wire.Message:
    """Return the message that `pack_message` packed."""
    return wire.Message(*msgpack.unpackb(packed, strict_map_key=False))


def address_key(address: base.Address) -> AddressKey:
    """Return the form in which an address travels."""
    if isinstance(address, base.ToShard):
        return (TO_SHARD, address.prefix, address.shard)
    if isinstance(address, base.ToOutput):
        return (TO_OUTPUT, address.prefix, address.name)
    return (TO_DEAD_LETTERS, address.prefix, None)


def topology_to_mapping(topology: base.Topology) -> dict[str, object]:
    """Return a topology as plain values, as it travels and as it is stored."""
    return {
        "contract": topology.contract.to_mapping(),
        "owner": topology.owner,
        "queue_type": topology.queue_type,
        "size_limit": topology.size_limit,
        "outputs": list(topology.outputs),
        "join": topology.join,
    }


def topology_from_mapping(values: dict[str, Any]) -> base.Topology:
    """Read what `topology_to_mapping` wrote.

    Raises:
        ValueError: a field is missing or wrong; the message names it.
    """
    try:
        return base.Topology(
            contract=contract.from_mapping(values["contract"]),
            owner=values["owner"],
            queue_type=values["queue_type"],
            size_limit=values["size_limit"],
            outputs=tuple(values["outputs"]),
            join=values["join"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"topology: field missing or wrong: {error}") from None
