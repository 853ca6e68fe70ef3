"""A message as AMQP properties and body, and back. Nothing else travels in the properties but a number of ours.

`correlation_id` numbers a publisher's messages: a message that comes back as unroutable says by it which one it was.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import pika
from pika import data

from lbg.core.wire import HeaderValue, Message

_PERSISTENT: Final = 2
_BROKERS_OWN: Final = frozenset({"x-delivery-count", "x-acquired-count", "x-stream-offset", "x-first-death-queue"})
"""Headers that the broker adds on redelivery or when it reads a stream; the publisher never wrote them."""


_encode_value = data.encode_value


def _encode_value_or_float(pieces: list[bytes], value: Any) -> int:
    """Write a field of a table. pika reads floats and refuses to write them, and has no hook for one more type."""
    if isinstance(value, float):
        pieces.append(struct.pack(">cd", b"d", value))
        return 9
    return int(_encode_value(pieces, value))


_decode_value = data.decode_value


def _decode_value_or_float(encoded: bytes, offset: int) -> tuple[Any, int]:
    """Read a field of a table. pika cuts a float down to its whole part."""
    if encoded[offset : offset + 1] == b"d":
        return struct.unpack_from(">d", encoded, offset + 1)[0], offset + 9
    value, end = _decode_value(encoded, offset)
    return value, end


data.encode_value = _encode_value_or_float
data.decode_value = _decode_value_or_float


def to_properties(message: Message, number: int) -> pika.BasicProperties:
    """Return the properties of a persistent message."""
    return pika.BasicProperties(
        headers=dict(message.headers) or None,
        message_id=message.message_id,
        content_type=message.content_type,
        delivery_mode=_PERSISTENT,
        correlation_id=str(number),
    )


def from_properties(properties: pika.BasicProperties, body: bytes) -> Message:
    """Return the message. Headers of types that the contract does not have (tables, lists, null) are left out."""
    return Message(body, readable(properties.headers or {}), properties.message_id, properties.content_type)


def readable(headers: Mapping[str, object]) -> dict[str, HeaderValue]:
    """Return the headers that a message can carry, without the broker's own."""
    kept: dict[str, HeaderValue] = {}
    for name, value in headers.items():
        if name in _BROKERS_OWN:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            kept[name] = int(value)  # pika has a type of its own for 64 bits
        elif isinstance(value, (str, bool, float, bytes)):
            kept[name] = value
        elif isinstance(value, Decimal):
            kept[name] = float(value)
    return kept
