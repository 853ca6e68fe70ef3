"""The producer: keyed publishing with confirms, identity and dense sequences, order kept under every failure.

`Producer` is for asyncio, `SyncProducer` for threads and plain scripts; `rows` publishes files. Here is what an
application imports; the other modules are the inside. Nothing here knows consumers, Kubernetes or one broker in
particular: whatever implements `lbg.brokers.base` will do.
"""

from lbg.core.wire import Identity
from lbg.publishing.errors import (
    BufferFull,
    ContractMismatch,
    ContractUnknown,
    InvalidEvent,
    InvalidOption,
    NotConfirmed,
    NotPublished,
    ProducerClosed,
    ProducerForked,
    PublishError,
    ShardStopped,
    Unconfirmed,
    WrongLoop,
)
from lbg.publishing.opening import Outside
from lbg.publishing.options import Backoff, Options
from lbg.publishing.producer import Producer
from lbg.publishing.pump import Stats
from lbg.publishing.threads import SyncProducer

__all__ = [
    "Backoff",
    "BufferFull",
    "ContractMismatch",
    "ContractUnknown",
    "Identity",
    "InvalidEvent",
    "InvalidOption",
    "NotConfirmed",
    "NotPublished",
    "Options",
    "Outside",
    "Producer",
    "ProducerClosed",
    "ProducerForked",
    "PublishError",
    "ShardStopped",
    "Stats",
    "SyncProducer",
    "Unconfirmed",
    "WrongLoop",
]
