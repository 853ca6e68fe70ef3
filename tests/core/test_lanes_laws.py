"""Lanes against a model: plain lists of what waits and what runs, in any interleaving of calls and losses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lbg.core.lanes import Lanes, Slot

QUEUES, SHARDS = range(2), range(3)
SLOTS = [Slot(queue, shard) for queue in QUEUES for shard in SHARDS]


@dataclass(frozen=True)
class Item:
    """An event: its number grows with the order of offers."""

    number: int
    alone: bool


@dataclass(eq=False)
class Call:
    """A handler that was started."""

    slot: Slot
    item: Item
    is_settling: bool = False  # its lane is free, the slot is not
    is_lost: bool = False  # its queue was dropped since


@dataclass
class Place:
    """One slot of the model."""

    waiting: list[Item] = field(default_factory=list)
    is_held: bool = False
    passed_by: Counter[Slot] = field(default_factory=Counter)  # starts of others since this slot became ready


class LanesLaws(RuleBasedStateMachine):
    """Rules are what the runtime may do; invariants are the laws."""

    @initialize(lanes=st.integers(1, 2))
    def begin(self, lanes: int) -> None:
        self.lanes: Lanes[Item] = Lanes(lanes)
        self.places = {slot: Place() for slot in SLOTS}
        self.calls: list[Call] = []
        self.paused: set[int] = set()
        self.offered = 0

    # What the model knows.

    def occupies(self, slot: Slot) -> bool:
        return any(call.slot == slot for call in self.calls)

    def ready(self) -> list[Slot]:
        return [
            slot
            for slot, place in self.places.items()
            if place.waiting and not place.is_held and not self.occupies(slot) and slot.queue not in self.paused
        ]

    def running(self) -> list[Call]:
        return [call for call in self.calls if not call.is_settling]

    # What the runtime may do.

    @rule(slot=st.sampled_from(SLOTS), count=st.integers(1, 5), alone=st.integers(0, 19))
    def offer(self, slot: Slot, count: int, alone: int) -> None:
        for index in range(count):
            item = Item(self.offered, alone=index == alone)
            self.offered += 1
            self.lanes.offer(slot, item, alone=item.alone)
            self.places[slot].waiting.append(item)

    def start(self) -> bool:
        """Ask for one start; whether there was one."""
        ready, running = self.ready(), self.running()
        taken = self.lanes.take()
        if taken is None:
            full = len(running) == self.lanes.lanes
            someone_is_alone = any(call.item.alone for call in running)
            someone_wants_to_be = running and any(self.places[slot].waiting[0].alone for slot in ready)
            assert not ready or full or someone_is_alone or someone_wants_to_be
            return False
        slot, item, alone = taken
        assert slot in ready
        assert len(running) < self.lanes.lanes
        assert item == self.places[slot].waiting.pop(0), "within a slot, first come, first served"
        assert alone == item.alone
        assert not (alone and running)
        assert not any(call.item.alone for call in running)
        self.calls.append(Call(slot, item))
        for other in ready:
            if other != slot:
                self.places[other].passed_by[slot] += 1
        self.check_fairness()
        return True

    @rule(count=st.integers(1, 3))
    def start_some(self, count: int) -> None:
        while count and self.start():
            count -= 1

    @rule(at=st.integers(0, 5))
    def finish(self, at: int) -> None:
        if self.calls:
            self.lanes.finish(self.calls.pop(at % len(self.calls)).slot)

    @rule(at=st.integers(0, 5), rounds=st.integers(1, 4))
    def work(self, at: int, rounds: int) -> None:
        for _ in range(rounds):
            self.finish(at)
            while self.start():
                pass

    @rule(at=st.integers(0, 5))
    def settle(self, at: int) -> None:
        running = self.running()
        if running:
            call = running[at % len(running)]
            call.is_settling = True
            self.lanes.settle(call.slot)

    @rule(at=st.integers(0, 5))
    def hold(self, at: int) -> None:
        calls = [call for call in self.calls if not call.is_lost]
        if not calls:
            return
        call = calls[at % len(calls)]
        self.calls.remove(call)
        place = self.places[call.slot]
        place.waiting.insert(0, call.item)
        place.is_held = True
        self.lanes.hold(call.slot, call.item, alone=call.item.alone)

    @rule(slot=st.sampled_from(SLOTS))
    def resume(self, slot: Slot) -> None:
        self.places[slot].is_held = False
        self.lanes.resume(slot)

    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: int) -> None:
        self.paused.add(queue)
        self.lanes.pause(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def unpause(self, queue: int) -> None:
        self.paused.discard(queue)
        self.lanes.unpause(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def drop(self, queue: int) -> None:
        places = [place for slot, place in self.places.items() if slot.queue == queue]
        assert self.lanes.drop(queue) == sum(len(place.waiting) for place in places)
        self.paused.discard(queue)
        for place in places:
            place.waiting.clear()
            place.is_held = False
        for call in self.calls:
            call.is_lost = call.is_lost or call.slot.queue == queue

    # The laws.

    @invariant()
    def check_fairness(self) -> None:
        """No ready slot waits for more than one round of the others."""
        ready = set(self.ready())
        for slot, place in self.places.items():
            if slot not in ready:
                place.passed_by.clear()
            assert max(place.passed_by.values(), default=0) <= 1

    @invariant()
    def counters_agree(self) -> None:
        assert self.lanes.running == len(self.running())
        for queue in QUEUES:
            waiting = sum(len(place.waiting) for slot, place in self.places.items() if slot.queue == queue)
            assert self.lanes.in_hand(queue) == sum(call.slot.queue == queue for call in self.calls)
            assert self.lanes.buffered(queue) == waiting
        assert self.lanes.buffered() == sum(len(place.waiting) for place in self.places.values())
        assert [self.lanes.is_occupied(slot) for slot in SLOTS] == [self.occupies(slot) for slot in SLOTS]

    def teardown(self) -> None:
        """Everything that waits is handled in the end, whatever was paused or held before."""
        for queue in QUEUES:
            self.unpause(queue)
        for slot in SLOTS:
            self.resume(slot)
        for _ in range(2 * self.offered):
            for call in list(self.calls):
                self.calls.remove(call)
                self.lanes.finish(call.slot)
            self.start()
        assert not any(place.waiting for place in self.places.values())


TestLanesLaws = LanesLaws.TestCase
TestLanesLaws.settings = settings(max_examples=120, stateful_step_count=40)
