"""What a publisher can be told: whose fault it is, which field, and what to do, in one line.

Broker errors (`brokers.base.Unreachable`, `Refused`) pass through unchanged. Keys and bodies may be private and stand
in no message; events are named by their message id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lbg.core.wire import Identity


class PublishError(Exception):
    """Base of what this package raises."""


class InvalidEvent(PublishError, ValueError):
    """The caller's event cannot be published: key, body or a header is wrong. Nothing was numbered or sent."""


class InvalidOption(PublishError, ValueError):
    """A setting of the producer is out of bounds."""


class BufferFull(PublishError):
    """The buffer is at its bound and the producer was told to refuse rather than to wait."""


class ContractUnknown(PublishError):
    """The contract of the stream can be had neither from the broker nor from a file."""


class ContractMismatch(PublishError):
    """The contract held here differs from the broker's: publishing under it would break order."""


class ProducerClosed(PublishError):
    """The producer is closed, or failed for good and says why."""


class ProducerForked(PublishError):
    """The producer belongs to the process that opened it, and this is a child of that process."""


class WrongLoop(PublishError):
    """The producer is used from another event loop, or thread, than the one that opened it."""


class ShardStopped(PublishError):
    """An event of the shard was refused for good; `restart(shard)` acknowledges the hole and goes on behind it."""

    def __init__(self, shard: int, reason: str) -> None:
        super().__init__(f"shard {shard} is stopped: {reason}; mend the cause, then call restart({shard})")
        self.shard = shard


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """An event that was given to the producer and is not known to be at the broker."""

    key: str
    shard: int
    identity: Identity | None  # None: it was given up before it was numbered
    reason: str
    is_uncertain: bool  # it was sent and never answered: the broker may hold it all the same

    @property
    def label(self) -> str:
        """Return how a message names the event."""
        return f"one of shard {self.shard}" if self.identity is None else self.identity.message_id


class NotPublished(PublishError):
    """One event was given up. Everything behind it in its shard was given up too, unless it is confirmed."""

    def __init__(self, event: Unconfirmed) -> None:
        uncertain = " (it may be at the broker)" if event.is_uncertain else ""
        super().__init__(f"event {event.label} was not published: {event.reason}{uncertain}")
        self.event = event


class NotConfirmed(PublishError):
    """Events that were accepted from the caller and are not confirmed.

    `count` is exact. `events` holds the first of them, at most `NAMED`.
    """

    NAMED: Final = 10_000

    def __init__(self, count: int, events: Sequence[Unconfirmed], why: str) -> None:
        named = ", ".join(event.label for event in events[:3])
        more = ", ..." if count > min(len(events), 3) else ""
        noun = "event is" if count == 1 else "events are"
        super().__init__(f"{count} {noun} not confirmed: {why} ({named}{more})")
        self.count = count
        self.events = tuple(events)
