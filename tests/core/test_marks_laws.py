"""Marks against a naive oracle: the set of everything handled, which forgets nothing and merges nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lbg.core import marks
from lbg.core.marks import Violation
from lbg.core.wire import Identity


@dataclass
class Life:
    """What the oracle knows of one incarnation in one shard."""

    handled: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)  # holes that nobody can judge
    in_doubt: bool = False


@dataclass
class Oracle:
    """The table of the module, over plain sets. Keeps every incarnation, so it is the judge only while few are used."""

    lives: dict[tuple[str, int], dict[int, Life]] = field(default_factory=lambda: defaultdict(dict))

    def is_handled(self, event: Identity) -> bool:
        life = self.lives[event.producer, event.shard].get(event.incarnation)
        return life is not None and event.sequence in life.handled

    def violation(self, event: Identity) -> Violation | None:
        lives, sequence = self.lives[event.producer, event.shard], event.sequence
        newest = max(lives, default=-1)
        life = lives.get(event.incarnation)
        if life is None:
            if event.incarnation < newest:
                return Violation.INCARNATION
            return Violation.UNKNOWN if sequence else None
        high = max(life.handled)
        if sequence < high:
            return Violation.UNKNOWN if sequence in life.unknown else Violation.LATE
        if sequence == high + 1:
            return None if event.incarnation == newest else Violation.INCARNATION
        return Violation.UNKNOWN if life.in_doubt else Violation.GAP

    def record(self, event: Identity) -> None:
        lives = self.lives[event.producer, event.shard]
        life = lives.get(event.incarnation)
        if life is None:
            life = lives[event.incarnation] = Life(in_doubt=True)
        high = max(life.handled, default=-1)
        if event.sequence > high:
            if life.in_doubt:
                life.unknown |= set(range(high + 1, event.sequence))
            life.in_doubt = False
        life.handled.add(event.sequence)

    def doubt(self) -> None:
        for lives in self.lives.values():
            for life in lives.values():
                life.in_doubt = True


def stored(kept: marks.Marks) -> marks.Marks:
    """Send marks through their stored form."""
    return marks.from_rows(json.loads(json.dumps(kept.to_rows())))


PRODUCERS = st.sampled_from(["p", "q"])
SHARDS = st.integers(0, 1)


class MarksLaws(RuleBasedStateMachine):
    """Few incarnations and few ranges: verdicts, and the findings that go with them, are exactly the oracle's."""

    incarnations = 4
    sequences = 12

    @initialize()
    def begin(self) -> None:
        self.marks = marks.Marks()
        self.oracle = Oracle()

    @rule(producer=PRODUCERS, shard=SHARDS, data=st.data())
    def deliver(self, producer: str, shard: int, data: st.DataObject) -> None:
        incarnation = data.draw(st.integers(0, self.incarnations - 1))
        sequence = data.draw(st.integers(0, self.sequences - 1))
        event = Identity(producer, incarnation, shard, sequence)
        judgement = self.marks.judge(event)
        assert judgement.is_duplicate == self.oracle.is_handled(event)
        if judgement.is_duplicate:
            assert judgement.violation is None
            return
        assert judgement.violation == self.oracle.violation(event)
        self.marks.record(event, 0)
        self.oracle.record(event)
        assert self.marks.judge(event) == marks.DUPLICATE

    @rule()
    def take_over_uncleanly(self) -> None:
        self.marks.doubt()
        self.oracle.doubt()

    @rule()
    def change_hands(self) -> None:
        self.marks = stored(self.marks)

    @invariant()
    def highs_agree(self) -> None:
        for producer, incarnation, shard, mark in self.marks:
            assert mark.high == max(self.oracle.lives[producer, shard][incarnation].handled)
            assert self.marks.high(producer, incarnation, shard) == mark.high


TestMarksLaws = MarksLaws.TestCase
TestMarksLaws.settings = settings(max_examples=60, stateful_step_count=60)


SCATTERED = st.lists(st.integers(0, 1000), min_size=100, max_size=400)


@given(SCATTERED, st.sets(st.integers(0, 399)), st.sets(st.integers(0, 399)))
@settings(max_examples=40)
def test_merging_ranges_never_drops_an_event_that_was_not_handled(
    sequences: list[int], doubts: set[int], changes: set[int]
) -> None:
    """Far more holes than the limit: what is called a duplicate was handled, and the bound on ranges holds."""
    kept, handled = marks.Marks(), set[int]()
    for index, sequence in enumerate(sequences):
        if index in doubts:
            kept.doubt()
        if index in changes:
            kept = stored(kept)
        event = Identity("p", 1, 0, sequence)
        if not kept.judge(event).is_duplicate:
            kept.record(event, 0)
            handled.add(sequence)
        for _, _, _, mark in kept:
            assert len(mark.ranges) <= marks.MAX_RANGES
            bounds = [bound for first, last, _ in mark.ranges for bound in (first, last)]
            assert bounds == sorted(bounds)
            assert all(bound < mark.high for bound in bounds)
    dropped = {s for s in range(1001) if kept.judge(Identity("p", 1, 0, s)).is_duplicate}
    assert dropped <= handled


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=300), st.sets(st.integers(0, 299)))
@settings(max_examples=60)
def test_forgetting_incarnations_never_drops_an_event_that_was_not_handled(
    deliveries: list[tuple[int, int]], changes: set[int]
) -> None:
    """Thirty lives of one producer: what is called a duplicate was handled, and no more than eight are kept."""
    kept, handled = marks.Marks(), set[tuple[int, int]]()
    for index, (incarnation, sequence) in enumerate(deliveries):
        if index in changes:
            kept = stored(kept)
        event = Identity("p", incarnation, 0, sequence)
        if kept.judge(event).is_duplicate:
            assert (incarnation, sequence) in handled
        else:
            kept.record(event, 0)
            handled.add((incarnation, sequence))
        assert len(list(kept)) <= marks.MAX_INCARNATIONS
    newest = sorted({incarnation for incarnation, _ in handled})[-marks.MAX_INCARNATIONS :]
    assert sorted(incarnation for _, incarnation, _, _ in kept) == newest


@given(SCATTERED)
@settings(max_examples=20)
def test_stored_form_gives_the_same_marks_back(sequences: list[int]) -> None:
    """Rows survive JSON and read back as the rows they were."""
    kept = marks.Marks()
    for sequence in sequences:
        kept.record(Identity("p", sequence % 3, sequence % 5, sequence), sequence)
    kept.doubt()
    assert stored(kept).to_rows() == kept.to_rows()
