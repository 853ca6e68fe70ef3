"""What the load is: arrival and service rates per queue, and how much one consumer can do, measured over time.

Here live the measurements that `scaling` decides from. They come from two counters per queue that a broker has anyway,
`published` (monotonic) and the backlog, so that they are as fresh as a look at the broker and do not wait for the
consumers' reports: what was served is what was published less what the backlog grew by. Where a broker does not count,
the rates that consumers report stand in.

Rates are exponentially weighted means. The time constant is the caller's, and twice that for arrivals: what a consumer
can do should be known soon, and what comes in should not be taken from one gust. Until so much time has passed they are
plain means, so that the first look does not weigh more than its share.

Capacity is what one consumer handles when work is never missing, the mean over consumers of a group (they are equal
pods). Two sources, the first preferred for ten minutes after it was seen:

1. *Saturated*: a consumer whose queues, even without the deepest one, have held a second of work or more for as long as
   its rate looks back. What it serves is its capacity. The deepest is left out because it may wait for one key, which
   says nothing about the consumer.
2. *Extrapolated*: reported rate / reported busy share. It ignores what a handler does not spend (acknowledging,
   publishing), so it is a little high.

Neither is taken while queues move: a consumer that has just taken over serves less, for reasons that are not its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import exp
from typing import Final

from lbg.core import assignment

BACKLOGGED_SECONDS: Final = 1.0
"""A queue waits for its consumer when its backlog is this many seconds of what it is served."""

_PREFER_SATURATED_SECONDS: Final = 600.0
_CAPACITY_SECONDS: Final = 10.0  # time constant of a saturated capacity: follows a new version of a handler
_EXTRAPOLATED_SECONDS: Final = 30.0
_MEANINGFUL_BUSY: Final = 0.2  # below, a report covers too few events to move a known capacity
_ANY_BUSY: Final = 0.005
_SATURATED_BUSY: Final = 0.9


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """One queue as scaling sees it. None is unknown."""

    queue: int
    backlog: int | None
    published: int | None = None
    is_blocked: bool = False  # held by a poisoned event: no number of consumers can serve it
    hot_shard: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerLoad:
    """The connected holder of a seat below the effective CC, as it reports itself."""

    ordinal: int
    holder: str
    rate: float = 0.0  # events per second since its last report
    busy: float = 0.0  # share of lane time in handlers, 0..1; 0 with a rate is taken as unknown
    cpu: float | None = None  # percent of its CPU request


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What scaling knows at one moment."""

    desired: int  # CC granted so far
    effective: int  # CC that the table in force is built from
    queues: tuple[QueueLoad, ...] | None  # by index, all of them; None when the broker does not answer
    consumers: tuple[ConsumerLoad, ...] = ()
    requested: int | None = None  # what `/scale` asks for, unchecked; counts where another than the operator decides


@dataclass(frozen=True, slots=True)
class Track:
    """One queue over time. Rates are events per second, None until two looks have been taken."""

    since: float
    at: float
    published: int | None
    backlog: int
    arrival: float | None = None
    served: float | None = None


@dataclass(frozen=True, slots=True)
class Loads:
    """All measurements of a group, carried from look to look."""

    tracks: Mapping[int, Track] = field(default_factory=dict)
    sampled_at: float | None = None
    layout: tuple[object, ...] = ()  # who serves: a change starts the settling time again
    settled_since: float = 0.0
    capacity: float | None = None  # events per second of one consumer
    saturated_at: float | None = None  # when capacity was last seen and not extrapolated
    saturated_since: Mapping[int, float] = field(default_factory=dict)  # by ordinal, those that are now

    def settled_for(self, now: float) -> float:
        """Return for how long the same holders have served under the same effective CC."""
        return now - self.settled_since


@lru_cache(maxsize=4096)
def owners(queues: int, consumers: int, group: str, policy: assignment.Policy) -> tuple[int, ...]:
    """Return queue -> ordinal for a candidate CC; remembered, since scaling asks again for every look."""
    return assignment.assign(queues, consumers, group, policy).owners


def is_due(loads: Loads, smoothing: float, now: float) -> bool:
    """Return whether enough time has passed for another sample: a quarter of the smoothing, at most a second."""
    return loads.sampled_at is None or now - loads.sampled_at >= min(1.0, smoothing / 4)


def sample(loads: Loads, seen: Snapshot, table: Sequence[int], smoothing: float, now: float) -> Loads:
    """Return the measurements after another look.

    Args:
        loads: the measurements so far.
        seen: the look.
        table: queue -> ordinal at the effective CC, empty at 0.
        smoothing: time constant in seconds.
        now: monotonic seconds.
    """
    layout = (seen.effective, tuple((c.ordinal, c.holder) for c in seen.consumers))
    settled_since = loads.settled_since if layout == loads.layout else now
    elapsed = 0.0 if loads.sampled_at is None else now - loads.sampled_at
    tracks = dict(loads.tracks)
    reported = _reported_rates(seen, table)
    for queue in seen.queues or ():
        if queue.backlog is not None:
            tracks[queue.queue] = _track(tracks.get(queue.queue), queue, reported.get(queue.queue), smoothing, now)
    loads = replace(loads, tracks=tracks, sampled_at=now, layout=layout, settled_since=settled_since)
    is_whole = len(seen.consumers) == seen.effective > 0 and seen.queues is not None
    if is_whole and loads.settled_for(now) >= 2 * smoothing:
        return _with_capacity(loads, seen, table, elapsed, smoothing, now)
    return replace(loads, saturated_since={})


def _reported_rates(seen: Snapshot, table: Sequence[int]) -> dict[int, float]:
    """Return served rates per queue from the consumers' reports, each spread evenly over the consumer's queues."""
    rates = {consumer.ordinal: consumer.rate for consumer in seen.consumers}
    held: dict[int, int] = {}
    for owner in table:
        held[owner] = held.get(owner, 0) + 1
    return {queue: rates[owner] / held[owner] for queue, owner in enumerate(table) if owner in rates}


def _track(last: Track | None, queue: QueueLoad, reported: float | None, smoothing: float, now: float) -> Track:
    assert queue.backlog is not None
    if last is None:
        return Track(now, now, queue.published, queue.backlog)
    elapsed = now - last.at
    if elapsed <= 0:
        return last
    growth = queue.backlog - last.backlog
    if queue.published is not None and last.published is not None:
        arrived = queue.published - last.published
        if arrived < 0:  # the counter started again: the broker or the queue is a new one
            return replace(last, at=now, published=queue.published, backlog=queue.backlog)
        arrival, served = arrived / elapsed, (arrived - growth) / elapsed
    elif reported is not None:
        arrival, served = max(0.0, reported + growth / elapsed), reported
    else:
        return replace(last, at=now, published=queue.published, backlog=queue.backlog)
    age = now - last.since
    return Track(
        last.since,
        now,
        queue.published,
        queue.backlog,
        _blend(last.arrival, arrival, _weight(elapsed, 2 * smoothing, age)),
        # Messages that go back (a death) make it negative for a moment.
        max(0.0, _blend(last.served, served, _weight(elapsed, smoothing, age))),
    )


def _weight(elapsed: float, constant: float, age: float) -> float:
    """Return the weight of a sample: exponential, but the plain mean while the series is younger than its constant."""
    return max(1 - exp(-elapsed / constant), min(1.0, elapsed / age))


def _blend(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)


def _with_capacity(
    loads: Loads, seen: Snapshot, table: Sequence[int], elapsed: float, smoothing: float, now: float
) -> Loads:
    by_ordinal = _served_by_ordinal(loads, seen, table)
    busy = {consumer.ordinal: consumer.busy for consumer in seen.consumers}
    since = {
        ordinal: loads.saturated_since.get(ordinal, now)
        for ordinal, load in by_ordinal.items()
        if load.is_saturated(busy.get(ordinal, 0.0))
    }
    # A rate still remembers the time before: a gust that has only begun would make the consumer look small.
    saturated = [by_ordinal[ordinal].served for ordinal, begun in since.items() if now - begun >= 2 * smoothing]
    capacity, saturated_at = loads.capacity, loads.saturated_at
    if saturated:
        mean = sum(saturated) / len(saturated)
        weight = 1 - exp(-elapsed / _CAPACITY_SECONDS)
        capacity = mean if saturated_at is None else _blend(capacity, mean, weight)
        saturated_at = now
    elif saturated_at is None or now - saturated_at > _PREFER_SATURATED_SECONDS:
        least = _ANY_BUSY if capacity is None else _MEANINGFUL_BUSY
        reports = [c.rate / min(c.busy, 1.0) for c in seen.consumers if c.busy >= least and c.rate > 0]
        if reports:
            weight = 1 - exp(-elapsed / _EXTRAPOLATED_SECONDS)
            capacity = _blend(capacity, sum(reports) / len(reports), weight)
    if capacity is not None:
        # What was served could be served: no estimate may lie below it.
        capacity = max([capacity, *(load.served for load in by_ordinal.values())])
    return replace(loads, capacity=capacity, saturated_at=saturated_at, saturated_since=since)


@dataclass(frozen=True, slots=True)
class _Held:
    served: float
    backlog: int
    deepest: int

    def is_saturated(self, busy: float) -> bool:
        least = BACKLOGGED_SECONDS * self.served
        if self.served <= 0:
            return False
        return self.backlog - self.deepest >= least or (busy >= _SATURATED_BUSY and self.backlog >= least)


def _served_by_ordinal(loads: Loads, seen: Snapshot, table: Sequence[int]) -> dict[int, _Held]:
    """Return what each consumer serves and what waits for it, without blocked queues."""
    held: dict[int, list[Track]] = {}
    for queue in seen.queues or ():
        track = loads.tracks.get(queue.queue)
        if track is not None and not queue.is_blocked:
            held.setdefault(table[queue.queue], []).append(track)
    return {
        ordinal: _Held(
            sum(track.served or 0.0 for track in tracks),
            sum(track.backlog for track in tracks),
            max(track.backlog for track in tracks),
        )
        for ordinal, tracks in held.items()
    }
