"""What the load asks of a candidate number of consumers, given who would serve which queue.

A consumer with arrival rate A, backlog B and capacity C meets the targets when

* the arrival rate fits at 80 %: A / 0.8 <= C, which leaves room for variation and for what was lost to a move;
* the backlog drains in time: B <= (C - A) * drainSeconds, that is A + B / drainSeconds <= C.

The *score* of a candidate CC is the larger left side of its most loaded consumer over C: at most 1 meets the targets.
Queues are indivisible, so the score is a staircase: with four queues, three consumers score as two do. Taking the
smallest CC with a good score therefore never takes a step that only reshuffles.

Hot queues. A queue that no consumer could serve alone, or that waits while nothing else waits at its consumer (so it
waits for one key, not for the consumer), is no reason to add consumers: it is left out of the demand for a larger CC.
It stays in the demand for a smaller one, since it does load its consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from lbg.core import assignment, loads
from lbg.core.loads import QueueLoad, Track

FIT: Final = 0.8
"""Share of its capacity that a consumer should need for the arrival rate alone."""
TOLERANCE: Final = 0.1
"""As in HorizontalPodAutoscaler: a size that misses its target by a tenth is left alone."""
_EQUAL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Demand:
    """Arrival and backlog by queue, what one consumer can do, and the tables that would spread them."""

    group: str
    policy: assignment.Policy
    arrival: tuple[float, ...]  # events per second
    draining: tuple[float, ...]  # events per second that the backlog adds, to be gone in time
    capacity: float  # events per second of one consumer; infinite where nothing is asked of it

    @property
    def needs(self) -> tuple[float, ...]:
        """Return the capacity that each queue would need if a consumer served it alone."""
        return tuple(max(a / FIT, a + d) for a, d in zip(self.arrival, self.draining, strict=True))

    def stands_out(self, queue: int) -> bool:
        """Return whether a queue needs more than twice what the others need on average."""
        needs = self.needs
        return needs[queue] > 2 * (sum(needs) - needs[queue]) / max(len(needs) - 1, 1)

    def score(self, consumers: int) -> float:
        """Return the most loaded consumer's need over its capacity; at most 1 meets the targets."""
        table = loads.owners(len(self.arrival), consumers, self.group, self.policy)
        arrived, draining = [0.0] * consumers, [0.0] * consumers
        for owner, arrival, extra in zip(table, self.arrival, self.draining, strict=True):
            arrived[owner] += arrival
            draining[owner] += extra
        needs = (max(a / FIT, a + d) for a, d in zip(arrived, draining, strict=True))
        return max(needs) / self.capacity

    def without(self, queues: Iterable[int]) -> Demand:
        """Return the demand as if some queues were idle."""
        left_out = frozenset(queues)
        arrival = tuple(0.0 if queue in left_out else rate for queue, rate in enumerate(self.arrival))
        draining = tuple(0.0 if queue in left_out else rate for queue, rate in enumerate(self.draining))
        return replace(self, arrival=arrival, draining=draining)

    def smallest(self, low: int, high: int, level: float = 1.0) -> int:
        """Return the smallest CC in low..high whose score is at most `level`, or that comes as near as `high` does."""
        total = sum(self.arrival) / FIT / self.capacity / level
        first = min(max(low, ceil(total - _EQUAL), 1), high)
        for consumers in range(first, high + 1):
            if self.score(consumers) <= level + _EQUAL:
                return consumers
        # Nothing is enough. Down the staircase from the top, as long as fewer do no worse.
        consumers, best = high, self.score(high) * (1 + _EQUAL)
        while consumers > max(low, 1) and self.score(consumers - 1) <= best:
            consumers -= 1
        return consumers


@dataclass(frozen=True, slots=True)
class Hot:
    """A queue that no number of consumers can split, and its part of the arrival rate."""

    queue: int
    share: float
    shard: int | None = None


def demand_of(
    tracks: Mapping[int, Track],
    queues: Sequence[QueueLoad],
    *,
    group: str,
    policy: assignment.Policy,
    capacity: float,
    drain_seconds: float,
) -> Demand:
    """Return the demand of all queues that can be served; each of them is in `tracks`."""
    arrival, draining = [], []
    for queue in queues:
        track = None if queue.is_blocked else tracks[queue.queue]
        arrival.append((track.arrival or 0.0) if track is not None else 0.0)
        draining.append(track.backlog / drain_seconds if track is not None else 0.0)
    return Demand(group, policy, tuple(arrival), tuple(draining), capacity)


def hot_queues(full: Demand, tracks: Mapping[int, Track], table: Sequence[int]) -> frozenset[int]:
    """Return the queues that more consumers would not help: too much for one alone, or waiting alone at their consumer.

    Args:
        full: the demand with every queue in it.
        tracks: rates and backlogs by queue.
        table: queue -> ordinal in force.
    """
    needs = full.needs
    too_much = {
        queue for queue, need in enumerate(needs) if need > full.capacity * (1 + TOLERANCE) and full.stands_out(queue)
    }
    held: dict[int, list[int]] = {}
    for queue, owner in enumerate(table):
        # A queue without demand is blocked or empty: neither can wait for its consumer.
        if needs[queue] > 0:
            held.setdefault(owner, []).append(queue)
    return frozenset(too_much | {queue for own in held.values() for queue in _waiting_alone(own, tracks)})


def _waiting_alone(held: Sequence[int], tracks: Mapping[int, Track]) -> tuple[int, ...]:
    deepest = max(held, key=lambda queue: tracks[queue].backlog)
    served = tracks[deepest].served or 0.0
    if served <= 0 or tracks[deepest].backlog < loads.BACKLOGGED_SECONDS * served:
        return ()
    others = [tracks[queue] for queue in held if queue != deepest]
    is_alone = sum(t.backlog for t in others) <= loads.BACKLOGGED_SECONDS * sum(t.served or 0.0 for t in others)
    return (deepest,) if is_alone else ()


def hottest(
    full: Demand,
    hot: Iterable[int],
    tracks: Mapping[int, Track],
    queues: Sequence[QueueLoad],
    *,
    drain_seconds: float,
    last: int | None,
) -> Hot | None:
    """Return the hot queue that people should know of, or None: its backlog is half a drain target behind, or growing.

    The one that was named last stays named until it is down to a quarter, so that the condition does not flicker.
    """

    def is_late(queue: int) -> bool:
        served = tracks[queue].served or 0.0
        late = drain_seconds * (0.25 if queue == last else 0.5)
        return full.arrival[queue] > full.capacity or tracks[queue].backlog > max(late * served, 1.0)

    # A queue may wait alone because its consumer has only that one: then it is no hotter than the others.
    late = [queue for queue in hot if is_late(queue) and full.stands_out(queue)]
    if not late:
        return None
    worst = max(late, key=lambda queue: (queue == last, tracks[queue].backlog, -queue))
    rates = full.arrival if sum(full.arrival) > 0 else full.draining
    share = rates[worst] / (sum(rates) or 1.0)
    shard = next((queue.hot_shard for queue in queues if queue.queue == worst), None)
    return Hot(worst, share, shard)
