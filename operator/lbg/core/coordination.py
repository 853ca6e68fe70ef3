"""Effective CC, the assignment generation and the upkeep of seats: what the consumers' table is built from, and when.

Theory of operation
-------------------
*Desired* is what scaling asks for. *Effective* is what the table is built from, and so what moves queues. It follows
desired with two different kinds of care:

* *Rising* waits for consumers: to n only once seats 0..n-1 are held by holders that report `connected`. A table that
  names a consumer which is not there would move queues to nobody.
* *Falling* comes first: effective falls with desired at once, and only afterwards may consumers be removed (see
  `staffing`). So queues leave a consumer before the consumer leaves.
* *Vacancy does not lower it.* Behind a vacant, expired or offered seat the standbys serve, and its next holder finds
  the same queues. Only after five minutes does effective fall, by one, and not again before another five: the holder of
  the highest seat then lies beyond the table and moves into the hole by itself (see `seating`). The last one is kept:
  effective 0 is an empty table, which says that nobody should serve, and a crashed group does not mean that.

The *generation* tells older assignments from newer ones. It grows only when (QC, effective CC, policy, table version)
change. It is stored with the group and on every seat, and the highest of all counts: a group record restored from a
backup must not make consumers wait for a past that they have left.

Expiry and vacancy are measured on a clock that stands still while the store cannot be read, as in `seating`: when the
store comes back, nobody has been vacant for as long as it was away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lbg.core import seating
from lbg.core.actions import ClearSeat, CreateSeat, DeleteSeat
from lbg.core.membership import Seat
from lbg.core.observed import Basis, Consumer, GroupRecord

VACANCY_PATIENCE: Final = 300.0
"""Seconds of vacancy after which effective CC falls by one: longer than a node failure takes to replace a pod."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What was last seen of one seat. Times are on the readable clock."""

    holder: str | None
    term: int
    renewals: int
    changed_at: float
    vacant_since: float | None


@dataclass(frozen=True, slots=True)
class Memory:
    """What coordination remembers between looks. Losing it costs patience only: every clock starts again."""

    watches: Mapping[int, Watch] = field(default_factory=dict)  # by ordinal
    readable: float = 0.0  # a clock that stands still while the store cannot be read
    read_at: float | None = None
    effective: int | None = None
    effective_since: float = 0.0  # on the readable clock

    def is_expired(self, seat: Seat) -> bool:
        """Return whether a holder has not renewed for so long that anybody may claim its seat."""
        watch = self.watches.get(seat.ordinal)
        return watch is not None and self.readable - watch.changed_at > seating.DURATION

    def vacant_for(self, ordinal: int) -> float:
        """Return for how long, since effective CC last changed, a seat has had no holder that renews."""
        watch = self.watches.get(ordinal)
        if watch is None or watch.vacant_since is None:
            return 0.0
        return self.readable - max(watch.vacant_since, self.effective_since)


def look(memory: Memory, record: GroupRecord, seats: Sequence[Seat] | None, now: float) -> Memory:
    """Return the memory after a look at the seats; None, an unreadable store, stops the clock."""
    if seats is None:
        return Memory(memory.watches, memory.readable, None, memory.effective, memory.effective_since)
    readable = memory.readable + (max(0.0, now - memory.read_at) if memory.read_at is not None else 0.0)
    watches = {seat.ordinal: _watch(memory.watches.get(seat.ordinal), seat, readable) for seat in seats}
    is_same = memory.effective == record.effective
    return Memory(watches, readable, now, record.effective, memory.effective_since if is_same else readable)


def _watch(last: Watch | None, seat: Seat, readable: float) -> Watch:
    is_same = last is not None and (last.holder, last.term, last.renewals) == (seat.holder, seat.term, seat.renewals)
    changed_at = last.changed_at if last is not None and is_same else readable
    is_vacant = seat.holder is None or readable - changed_at > seating.DURATION
    since = (last.vacant_since if last is not None else None) if is_vacant else None
    vacant_since = readable if is_vacant and since is None else since
    return Watch(seat.holder, seat.term, seat.renewals, changed_at, vacant_since)


def serving_prefix(seats: Sequence[Seat], consumers: Sequence[Consumer] | None, memory: Memory) -> int:
    """Return the largest n such that seats 0..n-1 are held by distinct, living holders that report `connected`.

    An offered seat does not count: its holder is leaving. A holder on the move has two seats for a moment and counts
    as the lower one.
    """
    holders: set[str] = set()
    for expected, seat in enumerate(sorted(seats, key=lambda seat: seat.ordinal)):
        if seat.ordinal != expected or seat.holder is None or seat.holder in holders:
            return expected
        if seat.offered or not seat.summary.connected or memory.is_expired(seat) or is_gone(seat, consumers):
            return expected
        holders.add(seat.holder)
    return len(holders)


def is_gone(seat: Seat, consumers: Sequence[Consumer] | None) -> bool:
    """Return whether a seat's holder is known to live no more; unknown consumers are not gone."""
    if seat.holder is None or consumers is None:
        return False
    return not any(consumer.is_holder(seat.holder) for consumer in consumers)


def next_effective(effective: int, target: int, prefix: int, memory: Memory) -> int:
    """Return the effective CC that should hold now.

    Args:
        effective: the one that holds.
        target: desired CC within its bounds; 0 while suspended or being deleted.
        prefix: see `serving_prefix`.
        memory: clocks, after `look`.
    """
    if target < effective:
        return max(target, 0)
    if min(prefix, target) > effective:
        return min(prefix, target)
    if effective > 1 and any(memory.vacant_for(ordinal) >= VACANCY_PATIENCE for ordinal in range(effective)):
        return effective - 1
    return effective


def next_generation(record: GroupRecord, seats: Sequence[Seat], effective: int, basis: Basis) -> int:
    """Return the assignment generation that goes with an effective CC and a basis."""
    highest = max((seat.generation for seat in seats), default=0)
    if highest > record.generation:
        # The record is older than what holders have seen. Their number may stand for another table: take a fresh one.
        return highest + 1
    is_same = record.basis == basis and record.effective == effective
    return record.generation if is_same else record.generation + 1


def keep_seats(
    seats: Sequence[Seat], consumers: Sequence[Consumer] | None, wanted: int
) -> tuple[ClearSeat | CreateSeat | DeleteSeat, ...]:
    """Return what makes the seats 0..wanted-1 exist, with no holder that is gone, and none vacant beyond.

    A seat beyond that is held stays until its holder has left it.
    """
    cleared = [ClearSeat(s.ordinal, s.holder) for s in seats if s.holder is not None and is_gone(s, consumers)]
    present = {seat.ordinal for seat in seats}
    created = [CreateSeat(ordinal) for ordinal in range(wanted) if ordinal not in present]
    deleted = [DeleteSeat(seat.ordinal) for seat in seats if seat.is_vacant and seat.ordinal >= wanted]
    return (*cleared, *created, *deleted)
