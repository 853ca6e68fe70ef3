"""The contract on the wire: what a published event carries, and what a consumer reads back.

Here live the header names, the identity of an event and the message itself. How a broker carries a header
(AMQP 0-9-1 table, AMQP 1.0 application property, a column) is the adapter's business and must not leak in here.

Identity is (producer, incarnation, shard, sequence). Sequences are dense per (producer, incarnation, shard) and
start at 0, so that one integer per shard is enough to tell a duplicate from a gap. The message id is derived from
the identity and is therefore stable across re-sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeGuard

HeaderValue: TypeAlias = str | int | float | bool | bytes

KEY: Final = "lbg-key"
PARTITION_KEY: Final = "partitionkey"  # CloudEvents partitioning extension, accepted as the source of the key
SHARD: Final = "lbg-shard"
PRODUCER: Final = "lbg-producer"
INCARNATION: Final = "lbg-incarnation"
SEQUENCE: Final = "lbg-seq"
PUBLISHED_AT: Final = "lbg-time"  # ms since the Unix epoch; AMQP's own timestamp has whole seconds only
ORIGINAL_PREFIX: Final = "lbg-original-"
IDENTITY_HEADERS: Final = (KEY, SHARD, PRODUCER, INCARNATION, SEQUENCE)

UNSHARDED: Final = -1
"""The shard of an event that names none: such events are handled serially per queue, which keeps the broker's order."""


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """Who published an event and as which one; compared in this field order."""

    producer: str
    incarnation: int
    shard: int
    sequence: int

    @property
    def message_id(self) -> str:
        """Return `producer:incarnation:shard:sequence`, the stable id of every copy of this event."""
        return f"{self.producer}:{self.incarnation}:{self.shard}:{self.sequence}"


@dataclass(frozen=True, slots=True)
class Message:
    """One event as published or delivered. Body, content type and unknown headers pass through untouched."""

    body: bytes
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    message_id: str | None = None
    content_type: str | None = None

    @property
    def key(self) -> str | None:
        """Return the key, from `lbg-key` or else CloudEvents' `partitionkey`; None if neither is a string."""
        key = self.headers.get(KEY, self.headers.get(PARTITION_KEY))
        return key if isinstance(key, str) else None

    @property
    def shard(self) -> int:
        """Return the shard the publisher stamped, or UNSHARDED."""
        shard = self.headers.get(SHARD)
        return shard if _is_count(shard) else UNSHARDED

    @property
    def identity(self) -> Identity | None:
        """Return the identity, or None for an unsequenced event (any of its headers missing or of a wrong type)."""
        get = self.headers.get
        producer, incarnation, shard, sequence = get(PRODUCER), get(INCARNATION), get(SHARD), get(SEQUENCE)
        if isinstance(producer, str) and _is_count(incarnation) and _is_count(shard) and _is_count(sequence):
            return Identity(producer, incarnation, shard, sequence)
        return None

    @property
    def published_at_ms(self) -> int | None:
        """Return the publisher's wall clock in ms since the Unix epoch, or None."""
        at = self.headers.get(PUBLISHED_AT)
        return at if _is_count(at) else None


def stamped(message: Message, key: str, identity: Identity, published_at_ms: int) -> Message:
    """Return the message with key, identity and stable id stamped over whatever it carried under those names."""
    headers = {
        **message.headers,
        KEY: key,
        SHARD: identity.shard,
        PRODUCER: identity.producer,
        INCARNATION: identity.incarnation,
        SEQUENCE: identity.sequence,
        PUBLISHED_AT: published_at_ms,
    }
    return replace(message, headers=headers, message_id=identity.message_id)


def set_aside(message: Message, reasons: Mapping[str, HeaderValue]) -> Message:
    """Return a dead-letter or park copy: identity moves to `lbg-original-*`.

    A copy that somebody puts back by hand is then unsequenced. Under its old identity the ledger would take it for
    a duplicate and drop it.
    """
    headers: dict[str, HeaderValue] = {}
    for name, value in message.headers.items():
        if name in IDENTITY_HEADERS:
            headers[ORIGINAL_PREFIX + name.removeprefix("lbg-")] = value
        else:
            headers[name] = value
    if message.message_id is not None:
        headers[ORIGINAL_PREFIX + "id"] = message.message_id
    return replace(message, headers={**headers, **reasons}, message_id=None)


def _is_count(value: HeaderValue | None) -> TypeGuard[int]:
    # bool is an int in Python; a header `true` is no sequence.
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
