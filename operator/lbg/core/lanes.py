"""Lanes: which event may start now. Same shard strictly serial, different shards concurrent.

Theory of operation
-------------------
The serial unit is the *slot*, one (queue, shard) pair. A consumer has L lanes, shared by all its queues; a slot with
work occupies one free lane for the time of one event and then queues up again behind the other slots, so no busy shard
starves the rest.

A slot is in one of these states:

| state    | meaning                                             | left by                         |
| -------- | --------------------------------------------------- | ------------------------------- |
| idle     | no work                                             | `offer`                         |
| ready    | work, waits for a lane                              | `take` -> occupied              |
| occupied | its event is being handled                          | `settle`, `finish`, `hold`      |
| settling | handled; output and acknowledgement are on the way  | `finish`                        |
| held     | its head event waits (backoff, block)               | `resume` -> ready, `drop`       |

A settling slot has given its lane back and still starts nothing: waiting for a confirm costs no handler its place, and
the shard's output stays in order. Nothing starts while 2 L events are handled or settling, so that never more are in
hand: that many, and no more, may be repeated when the process is killed.

A queue may be *paused*: its slots keep what they have and start nothing (draining). `drop` forgets what a queue has
buffered; an occupied slot stays occupied, because the call behind it goes on: a Python thread or an HTTP request
cannot be cancelled. Until `finish` no other event of that shard starts, also when the queue was bound again meanwhile.

An event that must run *alone* starts only when no lane is occupied, and nothing starts beside it. While it waits at the
front of the line nothing behind it starts either, or it would wait for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Slot(NamedTuple):
    """The serial unit: a shard within its queue."""

    queue: int
    shard: int


@dataclass(slots=True)
class _Work(Generic[Item]):
    waiting: deque[tuple[Item, bool]] = field(default_factory=deque)
    occupied: bool = False
    settling: bool = False  # occupied, but its lane is free again
    held: bool = False
    in_line: bool = False


class Lanes(Generic[Item]):
    """Decides what starts. Holds no clock and calls nothing: the runtime asks `take` whenever something changed."""

    def __init__(self, lanes: int) -> None:
        if lanes < 1:
            raise ValueError(f"lanes {lanes}: need at least 1")
        self.lanes = lanes
        self._slots: dict[Slot, _Work[Item]] = {}
        self._line: deque[Slot] = deque()
        self._paused: set[int] = set()
        self._running = 0
        self._settling = 0
        self._in_hand: dict[int, int] = {}
        self._buffered: dict[int, int] = {}
        self._alone: Slot | None = None

    @property
    def running(self) -> int:
        """Return the number of occupied lanes, calls whose queue was lost included."""
        return self._running

    def in_hand(self, queue: int | None = None) -> int:
        """Return how many events of a queue, or of all, are handled or settling; calls of dropped ones count."""
        return self._running + self._settling if queue is None else self._in_hand.get(queue, 0)

    def buffered(self, queue: int | None = None) -> int:
        """Return how many events wait, of one queue or of all."""
        return sum(self._buffered.values()) if queue is None else self._buffered.get(queue, 0)

    def is_occupied(self, slot: Slot) -> bool:
        """Return whether a call of this slot is running."""
        work = self._slots.get(slot)
        return work is not None and work.occupied

    def offer(self, slot: Slot, item: Item, *, alone: bool = False) -> None:
        """Queue an event behind what its slot has."""
        work = self._slots.get(slot)
        if work is None:
            work = self._slots[slot] = _Work()
        work.waiting.append((item, alone))
        self._buffered[slot.queue] = self._buffered.get(slot.queue, 0) + 1
        self._line_up(slot, work)

    def take(self) -> tuple[Slot, Item, bool] | None:
        """Return the next event to start with its slot and whether it runs alone, or None if nothing may start now."""
        # Twice the lanes: a bound on what a kill can repeat, and room for as many confirms as there are handlers.
        is_full = self._running >= self.lanes or self._running + self._settling >= 2 * self.lanes
        if is_full or self._alone is not None:
            return None
        while self._line:
            slot = self._line[0]
            work = self._slots.get(slot)
            if work is None or not work.waiting or work.occupied or work.held or slot.queue in self._paused:
                self._line.popleft()
                if work is not None:
                    work.in_line = False
                continue
            item, alone = work.waiting[0]
            if alone and self._running:
                return None
            self._line.popleft()
            work.in_line = False
            work.waiting.popleft()
            work.occupied = True
            self._running += 1
            self._in_hand[slot.queue] = self._in_hand.get(slot.queue, 0) + 1
            self._buffered[slot.queue] -= 1
            if alone:
                self._alone = slot
            return slot, item, alone
        return None

    def settle(self, slot: Slot) -> None:
        """Give the lane back while the slot stays occupied: the handler returned, its output is being confirmed."""
        work = self._occupied(slot)
        self._free_lane(slot, work)
        self._settling += not work.settling
        work.settling = True

    def finish(self, slot: Slot) -> None:
        """Free the slot's lane: its event is done, or the call behind a lost queue has returned."""
        self._leave(slot, self._occupied(slot))

    def hold(self, slot: Slot, item: Item, *, alone: bool = False) -> None:
        """Free the lane and put the event back at the head; the slot starts nothing until `resume`."""
        work = self._occupied(slot)
        work.waiting.appendleft((item, alone))
        work.held = True
        self._buffered[slot.queue] = self._buffered.get(slot.queue, 0) + 1
        self._leave(slot, work)

    def resume(self, slot: Slot) -> None:
        """Let a held slot start again. A slot that was dropped meanwhile is left alone."""
        work = self._slots.get(slot)
        if work is not None and work.held:
            work.held = False
            self._line_up(slot, work)

    def pause(self, queue: int) -> None:
        """Start nothing of a queue any more."""
        self._paused.add(queue)

    def unpause(self, queue: int) -> None:
        """Start events of a queue again."""
        self._paused.discard(queue)
        for slot, work in self._slots.items():
            if slot.queue == queue:
                self._line_up(slot, work)

    def drop(self, queue: int) -> int:
        """Forget what a queue has buffered and its pause; return how many events that were. Running calls go on."""
        dropped = self._buffered.pop(queue, 0)
        for slot in [s for s in self._slots if s.queue == queue]:
            work = self._slots[slot]
            work.waiting.clear()
            work.held = False
            work.in_line = False
            if not work.occupied:
                del self._slots[slot]
        # A place left behind would give the slot two turns a round once the queue is bound again.
        self._line = deque(slot for slot in self._line if slot.queue != queue)
        self._paused.discard(queue)
        return dropped

    def _occupied(self, slot: Slot) -> _Work[Item]:
        work = self._slots.get(slot)
        if work is None or not work.occupied:
            # Counting it would free a lane that somebody else occupies.
            raise AssertionError(f"lanes: queue {slot.queue} shard {slot.shard} has no running call")
        return work

    def _line_up(self, slot: Slot, work: _Work[Item]) -> None:
        if work.waiting and not (work.occupied or work.held or work.in_line) and slot.queue not in self._paused:
            work.in_line = True
            self._line.append(slot)

    def _leave(self, slot: Slot, work: _Work[Item]) -> None:
        self._free_lane(slot, work)
        self._settling -= work.settling
        work.occupied = work.settling = False
        self._in_hand[slot.queue] -= 1
        if work.waiting:
            self._line_up(slot, work)
        elif not work.held:
            # Idle slots are forgotten: an unsharded or huge key space must not grow this table for ever.
            del self._slots[slot]

    def _free_lane(self, slot: Slot, work: _Work[Item]) -> None:
        if not work.settling:
            self._running -= 1
            if self._alone == slot:
                self._alone = None
