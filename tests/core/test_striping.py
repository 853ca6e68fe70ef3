"""Stripes: every shard in exactly one queue, queues within one shard of each other, bounds refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import striping


@st.composite
def striped(draw: st.DrawFn) -> tuple[int, int]:
    """Draw (queues, count) with count >= queues."""
    queues = draw(st.integers(1, 300))
    return queues, draw(st.integers(queues, 2_000))


@given(striped())
def test_stripes_partition_the_shards(sizes: tuple[int, int]) -> None:
    """Each shard lies in exactly one queue, and it is the queue that `queue_of` names."""
    queues, count = sizes
    owners = {shard: queue for queue in range(queues) for shard in striping.shards_of(queue, queues, count)}
    assert owners == {shard: striping.queue_of(shard, queues) for shard in range(count)}
    assert sum(len(striping.shards_of(queue, queues, count)) for queue in range(queues)) == count


@given(striped())
def test_queues_hold_shards_within_one_of_each_other(sizes: tuple[int, int]) -> None:
    """No queue holds more than one shard above another, and none is empty."""
    queues, count = sizes
    held = [len(striping.shards_of(queue, queues, count)) for queue in range(queues)]
    assert min(held) >= 1
    assert max(held) - min(held) <= 1


@pytest.mark.parametrize(
    ("shard", "queues", "want"),
    [
        (-1, 4, "shard: -1 is negative: shards count from 0"),
        (1, 0, "queues: 0 is out of bounds: use 1 to 10000"),
        (1, 10_001, "queues: 10001 is out of bounds: use 1 to 10000"),
    ],
)
def test_queue_of_refuses_what_is_out_of_bounds(shard: int, queues: int, want: str) -> None:
    """The message names the argument and the bounds."""
    with pytest.raises(ValueError, match=f"^{want}$"):
        striping.queue_of(shard, queues)


@pytest.mark.parametrize(
    ("queue", "queues", "count", "want"),
    [
        (-1, 4, 8, "queue: -1 is out of bounds: use 0 to 3"),
        (4, 4, 8, "queue: 4 is out of bounds: use 0 to 3"),
        (0, 4, 3, "count: 3 is less than queues 4: use at least 4"),
        (0, 0, 3, "queues: 0 is out of bounds: use 1 to 10000"),
    ],
)
def test_shards_of_refuses_what_is_out_of_bounds(queue: int, queues: int, count: int, want: str) -> None:
    """The message names the argument and the bounds; a queue without shards cannot be asked for."""
    with pytest.raises(ValueError, match=f"^{want}$"):
        striping.shards_of(queue, queues, count)
