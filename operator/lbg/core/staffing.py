"""How many consumers run, and which of them may go: the last step of every scale-down, and the rollout of processes.

Rules
-----
* A consumer goes only when the table has left it: effective CC is at most the target already, and it is without a seat
  or its seat lies at or beyond the target.
* And only when it holds nothing any more: its report names no queue, and no queue names it as active. After the drain
  budget it goes anyway: SIGTERM still hands over queue by queue. Where the broker cannot be asked, a consumer without a
  report counts as holding.
* Those without a seat go first, of them those that are not ready, then the latest started; then the highest seat. So
  whoever serves longest is disturbed last, and what remains are the seats 0..n-1.
* Never more than the surplus. While a low seat waits for its next holder, the one that will claim it is among the
  candidates, and which one that is, is decided by the claim.

A *rollout* (of processes; a Deployment does its own) replaces outdated consumers one at a time: one fresh consumer
beyond the target starts and waits, ready and without a seat; then one outdated is told to go, offers its seat, and the
fresh one claims it. So no queue is ever without somebody who may bind it, and each queue moves once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lbg.core.actions import Resize
from lbg.core.membership import Seat
from lbg.core.observed import Consumer, QueueLook


@dataclass(frozen=True, slots=True)
class Memory:
    """Since when (monotonic seconds) each candidate has been in surplus, by name."""

    surplus_since: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Staff:
    """The consumers as one look saw them."""

    consumers: tuple[Consumer, ...]
    seats: tuple[Seat, ...]
    queues: tuple[QueueLook, ...] | None

    @property
    def staying(self) -> tuple[Consumer, ...]:
        """Return those that nobody has told to go."""
        return tuple(consumer for consumer in self.consumers if not consumer.leaving)

    def seat_of(self, consumer: Consumer) -> Seat | None:
        """Return the lowest seat that a consumer holds, or None."""
        return min(self._seats_of(consumer), key=lambda seat: seat.ordinal, default=None)

    def holds_nothing(self, consumer: Consumer) -> bool:
        """Return whether it is known that a consumer is bound to no queue and active on none."""
        held = self._seats_of(consumer)
        if any(seat.summary.bound or seat.summary.epochs for seat in held):
            return False
        if self.queues is None:
            return bool(held)
        names = (consumer.name,)
        return not any(queue.active in names or consumer.is_holder(queue.active) for queue in self.queues)

    def _seats_of(self, consumer: Consumer) -> list[Seat]:
        return [seat for seat in self.seats if consumer.is_holder(seat.holder)]


def staff(
    seen: Staff, target: int, *, effective: int, replicas: int | None, drain_budget: float, memory: Memory, now: float
) -> tuple[Resize | None, Memory]:
    """Return how many consumers to run, with who comes and who goes, or None when that is so already.

    Args:
        seen: one look at consumers, seats and queues.
        target: CC that should run, within bounds.
        effective: the effective CC that consumers can see now, not one that is only planned.
        replicas: what a Deployment is told to run; None where processes are started one by one.
        drain_budget: seconds after which a surplus consumer is told to go although it still holds queues.
        memory: since when each candidate has been in surplus.
        now: monotonic seconds.
    """
    staying = seen.staying
    outdated = [consumer for consumer in staying if consumer.outdated]
    wanted = target + 1 if outdated and target else target
    told = len(staying) if replicas is None else replicas
    if len(staying) < wanted:
        return (None if told == wanted else Resize(wanted, add=wanted - len(staying)), Memory())
    if effective > target:
        return (None, Memory())
    candidates = _candidates(seen, target)
    surplus = len(staying) - wanted
    since = {c.name: memory.surplus_since.get(c.name, now) for c in candidates} if surplus else {}
    free = [c for c in candidates if seen.holds_nothing(c) or now - since.get(c.name, now) >= drain_budget]
    going = free[:surplus] or _replaced(seen, outdated, candidates)
    remaining = min(len(staying) - len(going), max(told, wanted))
    resize = Resize(remaining, remove=tuple(c.name for c in going)) if going or remaining != told else None
    return (resize, Memory(since))


def _candidates(seen: Staff, target: int) -> list[Consumer]:
    """Return those that a smaller group does not need, the first to go first."""
    ranked = []
    for consumer in seen.staying:
        seat = seen.seat_of(consumer)
        if seat is None:
            ranked.append(((0, consumer.ready, -consumer.started_at, consumer.name), consumer))
        elif seat.ordinal >= target:
            ranked.append(((1, False, float(-seat.ordinal), consumer.name), consumer))
    return [consumer for _, consumer in sorted(ranked, key=lambda pair: pair[0])]


def _replaced(seen: Staff, outdated: Sequence[Consumer], candidates: Sequence[Consumer]) -> list[Consumer]:
    """Return the outdated consumer that can go now, if any: for a waiting fresh one, or since nobody needs it."""
    if not outdated or any(consumer.leaving for consumer in seen.consumers):
        return []
    seats = {consumer.name: seen.seat_of(consumer) for consumer in seen.staying}
    # A group that shrank during its rollout may have lost the fresh one: an outdated one beyond the target makes room,
    # or the two would wait for each other for good.
    spare = [c for c in candidates if c.outdated and (seats[c.name] is None or seen.holds_nothing(c))]
    if spare:
        return spare[:1]
    # A fresh one waits without a seat, or on one that the shrinking group has left behind: it moves to the free one.
    if not any(c.ready and not c.outdated for c in candidates):
        return []
    by_seat = {seat.ordinal: c for c in outdated if (seat := seats[c.name]) is not None}
    return [by_seat[max(by_seat)]]
