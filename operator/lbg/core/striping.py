"""Shard -> queue: which queue holds which shards. Who serves a queue is `assignment`'s business.

Queue i holds the stripe {s : s % QC == i}. A stripe, unlike a contiguous range, keeps queues within one shard of each
other for every HC >= QC, and a consumer can tell from the shard alone whether an event lies in the right queue.
"""

from __future__ import annotations

from typing import Final

MAX_QUEUES: Final = 10_000
"""Largest QC; the assignment of that many queues to 1,000 consumers takes milliseconds, brokers tire earlier."""


def queue_of(shard: int, queues: int) -> int:
    """Return the queue that holds a shard.

    Raises:
        ValueError: an argument is out of bounds.
    """
    _check_queues(queues)
    if shard < 0:
        raise ValueError(f"shard: {shard} is negative: shards count from 0")
    return shard % queues


def shards_of(queue: int, queues: int, count: int) -> range:
    """Return the shards of a queue, ascending.

    Raises:
        ValueError: an argument is out of bounds; count < queues is, since some queue would then have no shard.
    """
    _check_queues(queues)
    if not 0 <= queue < queues:
        raise ValueError(f"queue: {queue} is out of bounds: use 0 to {queues - 1}")
    if count < queues:
        raise ValueError(f"count: {count} is less than queues {queues}: use at least {queues}")
    return range(queue, count, queues)


def _check_queues(queues: int) -> None:
    if not 1 <= queues <= MAX_QUEUES:
        raise ValueError(f"queues: {queues} is out of bounds: use 1 to {MAX_QUEUES}")
