"""An event as the application gives it: checked once, numbered later, built into a message when it is first sent.

The checks stand here because a broker reports the same mistakes late, in its own words, or by closing the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from lbg.brokers import base
from lbg.core import hashing, wire
from lbg.core.publish_line import Entry
from lbg.core.wire import HeaderValue, Identity
from lbg.publishing.errors import InvalidEvent

Body: TypeAlias = bytes | bytearray | memoryview

RESERVED: Final = "lbg-"
_INT64: Final = range(-(2**63), 2**63)


class Waiter(Protocol):
    """Who waits for the confirm of one event: a future of asyncio, or a `replies.Reply`."""

    def done(self) -> bool:
        """Tell whether it waits no more."""
        ...

    def set_result(self, identity: Identity, /) -> None:
        """Tell that the event is at the broker."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Tell that it was given up."""
        ...


class Event:
    """One event between the application and the broker."""

    __slots__ = (
        "at_ms",
        "body",
        "content_type",
        "flush",
        "headers",
        "key",
        "outcome",
        "outgoing",
        "shard",
        "size",
        "waiter",
    )

    def __init__(
        self,
        key: str,
        shard: int,
        body: bytes,
        headers: Mapping[str, HeaderValue],
        content_type: str | None,
        at_ms: int,
    ) -> None:
        self.key = key
        self.shard = shard
        self.body = body
        self.headers = headers
        self.content_type = content_type
        self.at_ms = at_ms  # when it was published, not when it was sent: the age of an event counts from there
        self.size = len(body) + len(key)
        self.waiter: Waiter | None = None
        self.flush = 0  # number of the flush that waits for it
        self.outcome: base.Outcome | None = None  # what the broker last said, when it was not ACCEPTED
        self.outgoing: base.Outgoing | None = None  # built at the first submission, the same object ever after


class EventFactory:
    """Checks and builds the events of one stream.

    Args:
        sharder: key to shard, from `hashing.sharder`.
        max_body: bytes.
        clock_ns: wall clock.
    """

    def __init__(self, sharder: Callable[[str], int], *, max_body: int, clock_ns: Callable[[], int]) -> None:
        self._sharder = sharder
        self._max_body = max_body
        self._clock_ns = clock_ns

    def event(self, key: str, body: Body, headers: Mapping[str, HeaderValue] | None, content_type: str | None) -> Event:
        """Check and build. The body is copied unless it is bytes; headers are copied.

        Raises:
            InvalidEvent: the message names what is wrong and what to do.
        """
        if not isinstance(key, str):
            raise InvalidEvent(f"key: expected a string, got {type(key).__name__}: convert it, str(key) for a number")
        if type(body) is not bytes:
            body = _as_bytes(body)
        if len(body) > self._max_body:
            raise InvalidEvent(f"body: {len(body)} bytes are more than max_body {self._max_body}: publish a reference")
        try:
            shard = self._sharder(key)
        except hashing.KeyRefused as refused:
            raise InvalidEvent(str(refused)) from None
        if content_type is not None:
            _check_text("content_type", content_type)
        at_ms = self._clock_ns() // 1_000_000
        if not headers:
            return Event(key, shard, body, {}, content_type, at_ms)
        event = Event(key, shard, body, dict(headers), content_type, at_ms)
        event.size += sum(_checked(name, value) for name, value in event.headers.items())
        return event


def outgoing(producer: str, to: base.Address, entry: Entry[Event]) -> base.Outgoing:
    """Return the message of an entry; the same one at every submission, so that copies are equal to the byte."""
    event = entry.event
    if event.outgoing is None:
        identity = identity_of(producer, entry)
        plain = wire.Message(event.body, event.headers, None, event.content_type)
        event.outgoing = base.Outgoing(to, wire.stamped(plain, event.key, identity, event.at_ms))
    return event.outgoing


def identity_of(producer: str, entry: Entry[Event]) -> Identity:
    """Return who published the entry and as which one."""
    return Identity(producer, entry.incarnation, entry.shard, entry.sequence)


def _as_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    remedy = "encode it first, body.encode()" if isinstance(body, str) else "serialise it first"
    raise InvalidEvent(f"body: expected bytes, got {type(body).__name__}: {remedy}")


def _checked(name: object, value: object) -> int:
    """Return the size of a header."""
    if not isinstance(name, str) or not name:
        raise InvalidEvent(f"headers: {name!r} is no header name: use a string that is not empty")
    _check_text(f"header name {name!a}", name)
    if name.lower().startswith(RESERVED):
        raise InvalidEvent(f"header {name}: names that start with {RESERVED} are the producer's own: rename it")
    if isinstance(value, str):
        _check_text(f"header {name}", value)
        return len(name) + len(value)
    if isinstance(value, bytes):
        return len(name) + len(value)
    if not isinstance(value, bool | int | float):
        kind = type(value).__name__
        raise InvalidEvent(f"header {name}: expected a string, number, boolean or bytes, got {kind}: convert it")
    if isinstance(value, int) and value not in _INT64:
        raise InvalidEvent(f"header {name}: the integer does not fit 64 bits: publish it as a string")
    return len(name) + 8


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise InvalidEvent(f"{what}: expected a string, got {type(text).__name__}")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"{what}: holds half of a surrogate pair: publish valid Unicode text") from None
