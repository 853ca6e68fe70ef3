"""The publish window against a model broker: any interleaving of verdicts, losses, refusals and restarts."""

import itertools
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lbg.core.publish_line import Entry, Verdict
from lbg.core.publish_window import Confirm, Fail, Fate, PublishWindow, Resume, Submit

SHARDS = st.integers(0, 2)
MAX_IN_FLIGHT, WINDOW, BATCH = 6, 4, 3


@dataclass(eq=False)
class Event:
    """What the application published; the broker never takes a poisonous one."""

    number: int
    is_poison: bool


@dataclass
class ModelBroker:
    """What a broker may do, written from the contract and knowing nothing of the machine."""

    blocks: bool  # a refused message blocks its shard until resumed
    log: dict[int, list[Entry[Event]]] = field(default_factory=dict)
    full: set[int] = field(default_factory=set)
    blocked: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)  # shards whose next acceptance is not answered

    def take(self, entry: Entry[Event]) -> Verdict:
        shard = entry.shard
        if shard in self.blocked:
            return Verdict.LATER
        if entry.event.is_poison or shard in self.full:
            if self.blocks:
                self.blocked.add(shard)
            return Verdict.NEVER if entry.event.is_poison else Verdict.LATER
        self.log.setdefault(shard, []).append(entry)
        if shard in self.silent:
            self.silent.discard(shard)
            return Verdict.UNKNOWN
        return Verdict.ACCEPTED


@dataclass
class Batch:
    """A batch on its way: what the broker has not seen yet, and what it said so far."""

    number: int
    unseen: deque[Entry[Event]]
    size: int
    verdicts: list[Verdict] = field(default_factory=list)


class PublishWindowLaws(RuleBasedStateMachine):
    """Rules are what the world may do; invariants are the laws."""

    @initialize(blocks=st.booleans(), limited=st.booleans())
    def begin(self, blocks: bool, limited: bool) -> None:
        self.now = 0.0
        self.limited = limited
        self.broker = ModelBroker(blocks)
        self.window: PublishWindow[Event] = PublishWindow(
            1, max_in_flight=MAX_IN_FLIGHT, window=WINDOW, batch=BATCH, retry_delay=lambda attempt: 1.0 + attempt
        )
        self.wire: list[Batch] = []
        self.sent: dict[int, tuple[Entry[Event], ...]] = {}
        self.published: list[Entry[Event]] = []
        self.confirmed: list[Entry[Event]] = []
        self.failed: list[Fail[Event]] = []
        self.settled: Counter[int] = Counter()
        self.told_accepted: set[int] = set()  # events that an answer called accepted

    # The application.

    @rule(shard=SHARDS, count=st.integers(1, 6), poison=st.integers(0, 30))
    def publish(self, shard: int, count: int, poison: int) -> None:
        if shard in self.window.stopped():
            return
        for index in range(count):
            event = Event(len(self.published), is_poison=index == poison)
            self.published.append(self.window.publish(shard, event))

    @precondition(lambda self: self.window.stopped())
    @rule()
    def restart(self) -> None:
        shard, cause = next(iter(self.window.stopped().items()))
        self.window.restart(shard, cause.incarnation + 1)

    # Time and the connection.

    @rule()
    def connect(self) -> None:
        if not self.window.is_connected:
            self.window.connected(ordered_rejects=self.broker.blocks, limited=self.limited)

    @rule(seconds=st.integers(0, 3))
    def poll(self, seconds: int) -> None:
        self.now += seconds
        for action in self.window.poll(self.now):
            if isinstance(action, Resume):
                self.broker.blocked.discard(action.shard)
                continue
            assert isinstance(action, Submit)
            assert 1 <= len(action.entries) <= BATCH
            for entry in action.entries:
                assert not self.settled[entry.event.number], "what was confirmed or failed is never sent again"
            self.sent[action.number] = action.entries
            self.wire.append(Batch(action.number, deque(action.entries), len(action.entries)))

    @rule(count=st.integers(1, 6))
    def broker_takes(self, count: int) -> None:
        for batch in self.wire:
            while batch.unseen and count:
                batch.verdicts.append(self.broker.take(batch.unseen.popleft()))
                count -= 1

    @precondition(lambda self: any(not batch.unseen for batch in self.wire))
    @rule(choice=st.integers(0, 5))
    def broker_answers(self, choice: int) -> None:
        done = [batch for batch in self.wire if not batch.unseen]
        batch = done[choice % len(done)]
        self.wire.remove(batch)
        self.settle(batch.number, batch.verdicts)

    @rule(seconds=st.integers(0, 3), count=st.integers(1, 6))
    def round_trip(self, seconds: int, count: int) -> None:
        """Let everything go well for a while: most of an ordinary life, and the way to the rarer states."""
        self.connect()
        self.poll(seconds)
        self.broker_takes(count)
        while any(not batch.unseen for batch in self.wire):
            self.broker_answers(0)

    @precondition(lambda self: self.wire)
    @rule(arrived=st.integers(0, 6), told=st.booleans())
    def connection_lost(self, arrived: int, told: bool) -> None:
        self.broker_takes(arrived)
        batches, self.wire = self.wire, []
        if told:  # the adapter resolves what is open before the machine hears of the loss
            for batch in batches:
                self.settle(batch.number, batch.verdicts + [Verdict.UNKNOWN] * len(batch.unseen))
        self.window.lost()
        for batch in batches:  # and in any case a late answer has no effect
            assert self.window.answered(batch.number, [Verdict.ACCEPTED] * batch.size, self.now) == []
        self.broker.blocked.clear()

    # The broker's moods.

    @rule(shard=SHARDS)
    def queue_fills_or_drains(self, shard: int) -> None:
        if self.limited:
            self.broker.full ^= {shard}

    @rule(shard=SHARDS)
    def next_answer_is_missing(self, shard: int) -> None:
        self.broker.silent.add(shard)

    def settle(self, number: int, verdicts: list[Verdict]) -> None:
        in_batch = self.sent[number]
        self.told_accepted |= {e.event.number for e, v in zip(in_batch, verdicts, strict=True) if v is Verdict.ACCEPTED}
        for action in self.window.answered(number, verdicts, self.now):
            if isinstance(action, Confirm):
                self.confirmed += action.entries
                self.settled.update(entry.event.number for entry in action.entries)
            else:
                self.failed.append(action)
                self.settled[action.entry.event.number] += 1

    # The laws.

    @invariant()
    def flight_is_bounded(self) -> None:
        assert self.window.in_flight == sum(batch.size for batch in self.wire) <= MAX_IN_FLIGHT

    @invariant()
    def each_shard_keeps_to_its_window(self) -> None:
        flying = Counter(e.shard for b in self.wire for e in b.unseen)
        most = WINDOW if self.broker.blocks or not self.limited else 1
        assert all(count <= most for count in flying.values())

    @invariant()
    def nothing_is_lost_and_each_event_is_settled_once(self) -> None:
        held = {entry.event.number for entry in self.window.held()}
        assert len(self.settled) == sum(self.settled.values())
        assert held.isdisjoint(self.settled)
        assert held | set(self.settled) == set(range(len(self.published)))

    @invariant()
    def accepted_order_is_published_order_with_repeated_suffixes(self) -> None:
        for shard, log in self.broker.log.items():
            mine = [e for e in self.published if e.shard == shard and not e.event.is_poison]
            for incarnation in {e.incarnation for e in log}:
                order = [e.sequence for e in mine if e.incarnation == incarnation]
                places = [order.index(e.sequence) for e in log if e.incarnation == incarnation]
                # One place on, or back: never over an event that was not accepted yet.
                assert places[0] == 0
                assert all(b <= a + 1 for a, b in itertools.pairwise(places))
            assert [e.incarnation for e in log] == sorted(e.incarnation for e in log)

    @invariant()
    def confirmed_events_are_at_the_broker_in_order(self) -> None:
        logged = {id(entry) for log in self.broker.log.values() for entry in log}
        assert all(id(entry) in logged for entry in self.confirmed)
        for shard in range(3):
            numbers = [entry.event.number for entry in self.confirmed if entry.shard == shard]
            assert numbers == sorted(numbers)

    @invariant()
    def sequences_are_dense(self) -> None:
        lives = {(e.shard, e.incarnation) for e in self.published}
        for life in lives:
            numbers = [e.sequence for e in self.published if (e.shard, e.incarnation) == life]
            assert numbers == list(range(len(numbers)))

    @invariant()
    def only_refused_events_and_what_stood_behind_them_fail(self) -> None:
        logged = {id(entry) for log in self.broker.log.values() for entry in log}
        for fail in self.failed:
            assert fail.cause.event.is_poison
            assert (fail.fate is Fate.REFUSED) == (fail.entry is fail.cause)
            assert fail.entry.sequence >= fail.cause.sequence
            assert fail.entry.event.number not in self.told_accepted, "what the broker called durable is not denied"
            if id(fail.entry) in logged:
                assert fail.entry.is_uncertain, "what may stand at the broker is reported as such"

    def teardown(self) -> None:
        """Whatever happened, a healthy broker ends with everything settled."""
        if not hasattr(self, "window"):
            return
        self.broker.full.clear()
        self.broker.silent.clear()
        for _ in range(len(self.published) * 4 + 20):
            self.connect()
            self.poll(100)
            self.broker_takes(1000)
            while self.wire:
                self.broker_answers(0)
        assert self.window.held() == []
        self.nothing_is_lost_and_each_event_is_settled_once()
        self.accepted_order_is_published_order_with_repeated_suffixes()


# A run takes some milliseconds, and the rare states need several things to happen in one of them.
PublishWindowLaws.TestCase.settings = settings(max_examples=max(600, settings().max_examples))
# The soak profile takes some minutes, a usual run some seconds.
TestPublishWindowLaws = pytest.mark.timeout(900)(PublishWindowLaws.TestCase)
