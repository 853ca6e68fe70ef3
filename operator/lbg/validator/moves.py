"""Whether a queue changed hands on purpose, what it cost in time, and which duplicates that excuses.

A *change* is the step from one tenure of a queue to the next; a *move* is a change to another consumer. A consumer
that loses its connection and binds again is a change and no move.

A change is unplanned if the run's log says that between the old owner's last event on the queue and the new owner's
first, the old owner was killed, died or lost its connection, or the broker died. Without a log, it is unplanned if the
new owner did not find the queue released (`clean` of the record).

The clocks of log and output are read by different processes, so "between" has edges. A kill may be noted a moment
before the signal arrives, and the victim's last event ends in that moment: EARLY_MS. A death is noted when somebody
noticed, which can be after the next owner has started: LATE_MS, granted only when that owner found the queue unclean,
so that the death of a consumer soon after it had handed over excuses nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from lbg.core import run_log
from lbg.core.run_log import RunEvent
from lbg.validator.tenures import QueueHistory, Repeats, Tenure

EARLY_MS: Final = 250.0
LATE_MS: Final = 30_000.0


@dataclass(frozen=True, slots=True)
class Change:
    """A queue goes from one tenure to the next."""

    queue: int
    old: Tenure
    new: Tenure
    planned: bool
    cause: RunEvent | None  # the log's word for an unplanned one

    @property
    def is_move(self) -> bool:
        """Tell whether the queue went to another consumer."""
        return self.old.consumer != self.new.consumer

    @property
    def overlaps(self) -> bool:
        """Tell whether the new owner started a handler before the old one's last had ended."""
        return self.new.first_started < self.old.last_ended


@dataclass(frozen=True, slots=True)
class Delays:
    """Times without service in ms, by nearest rank; None when nothing was measured, which is not 0."""

    count: int
    p50: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, samples: Iterable[float]) -> Delays:
        """Summarise samples."""
        ranked = sorted(samples)
        if not ranked:
            return cls(0, None, None, None)

        def rank(share: float) -> float:
            return ranked[math.ceil(share * len(ranked)) - 1]

        return cls(len(ranked), rank(0.5), rank(0.99), ranked[-1])


class Causes:
    """The events of a run's log that take queues from their owners, found by consumer and time."""

    def __init__(self, log: Iterable[RunEvent]) -> None:
        self._by_name: dict[str, list[RunEvent]] = {}
        for event in log:
            if event.kind in run_log.UNPLANNED:
                # Of the broker's death every owner is a victim; an event that names nobody else accuses nobody.
                name = _BROKER if event.kind == run_log.BROKER_DIED else event.consumer
                if name is not None:
                    self._by_name.setdefault(name, []).append(event)
        for events in self._by_name.values():
            events.sort(key=_at)

    def of(self, old: Tenure, new: Tenure) -> RunEvent | None:
        """Return the earliest event that took the queue from the old owner, or None: the change was planned."""
        until = new.first_started if new.clean else new.first_started + LATE_MS
        found: list[RunEvent] = []
        for name in (_BROKER, *_names(old.consumer)):
            events = self._by_name.get(name, [])
            for event in events[bisect_left(events, old.last_ended - EARLY_MS, key=_at) :]:
                if event.at_ms > until:
                    break
                # A connection that was lost before this tenure began has cost the owner an earlier one.
                if event.kind in run_log.LAST_OF_A_CONSUMER or event.at_ms >= old.first_started:
                    found.append(event)
                    break
        return min(found, key=_at, default=None)


_BROKER: Final = ""


def _at(event: RunEvent) -> float:
    return event.at_ms


def _names(consumer: str) -> Iterator[str]:
    # A holder identity is `name_uid_nonce`. Who kills a pod may know no more than its name.
    yield consumer
    at = consumer.rfind("_")
    while at > 0:
        yield consumer[:at]
        at = consumer.rfind("_", 0, at)


def changes(history: QueueHistory, causes: Causes | None) -> list[Change]:
    """Return the changes of a queue in order; without causes (no log) the new owners' word is taken."""
    found = []
    for old, new in pairwise(history.tenures):
        cause = None if causes is None else causes.of(old, new)
        planned = new.clean if causes is None else cause is None
        found.append(Change(history.queue, old, new, planned, cause))
    return found


def handover_delays(found: Iterable[Change]) -> Delays:
    """Return the gaps of planned moves: last handler end at the old owner to first handler start at the new one.

    Only where the new owner's first event was waiting by then; otherwise the gap is the publisher's. An overlap
    counts as 0 here, and is reported as what it is.
    """
    return Delays.of(
        max(0.0, change.new.first_started - change.old.last_ended)
        for change in found
        if change.is_move and change.planned and 0 <= change.new.first_published <= change.old.last_ended
    )


def failover_delays(found: Iterable[Change]) -> Delays:
    """Return the gaps of unplanned moves: from the logged death, or else the old owner's last handler end.

    Only where the new owner's first event was waiting by then, as for planned moves.
    """
    samples = []
    for change in found:
        if not change.is_move or change.planned:
            continue
        since, until = change.old.last_ended, change.new.first_started
        if change.cause is not None and change.cause.at_ms <= until:
            since = change.cause.at_ms  # noticed later than the new owner started, it says nothing about the gap
        if 0 <= change.new.first_published <= since:
            samples.append(max(0.0, until - since))
    return Delays.of(samples)


@dataclass(frozen=True, slots=True)
class Excuses:
    """The duplicates of one queue, sorted by what lay between their occurrences."""

    unexcused: tuple[Repeats, ...]  # no change at all, or planned ones only
    by_death: Counter[tuple[float, str]]  # (time, victim): how many duplicates it left


def excuse(history: QueueHistory, found: Sequence[Change]) -> Excuses:
    """Sort the duplicates of a queue; `found` are its changes.

    A duplicate is charged to the last unplanned change before it: what a dead owner had in hand is what its successor
    repeats. Two occurrences in one tenure have no change between them, and nothing excuses the second.
    """
    unplanned = [0, *accumulate(not change.planned for change in found)]  # up to and with tenure n
    last = [-1, *accumulate((n if not c.planned else -1 for n, c in enumerate(found)), max)]
    unexcused, by_death = [], Counter[tuple[float, str]]()
    for (before, now), repeats in history.repeats.items():
        if unplanned[now] == unplanned[before]:
            unexcused.append(repeats)
            continue
        change = found[last[now]]
        at = change.cause.at_ms if change.cause is not None else -1.0
        by_death[at, change.old.consumer] += repeats.count
    return Excuses(tuple(unexcused), by_death)
