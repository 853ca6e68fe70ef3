"""Order, loss and repetition of events, by the definitions of docs/validator.md, with one planted fault each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from lbg import validator
from lbg.core.outputs import OutputRecord
from lbg.validator import Verdict

Record = Callable[..., OutputRecord]

ORDERED = {
    "events": 4,
    "keys": 1,
    "order_errors": 0,
    "shard_order_errors": 0,
    "gaps": 0,
    "duplicates": 0,
    "duplicates_on_planned_moves": 0,
    "stale": 0,
    "contradictions": 0,
    "damaged": 0,
    "ok": True,
}


def found(verdict: Verdict, want: Mapping[str, object]) -> dict[str, object]:
    """Return of a verdict what `want` is about."""
    return {name: getattr(verdict, name) for name in want}


def test_ordered_events_are_ok(record: Record) -> None:
    """Four events of one key in order: everything is counted, nothing is wrong."""
    verdict = validator.verify(record(n) for n in range(4))
    assert found(verdict, ORDERED) == ORDERED
    assert verdict.exit_code == 0
    assert verdict.examples == ()


def test_swap_within_a_key_is_one_order_error(record: Record) -> None:
    """Of two swapped events the earlier one, which comes late, is the error; it is named with its line."""
    verdict = validator.verify([record(0), record(2), record(1), record(3)])
    want = ORDERED | {"order_errors": 1, "shard_order_errors": 1, "ok": False}
    assert found(verdict, want) == want
    (example,) = verdict.examples
    assert (example.kind, example.line) == ("order-error", 3)
    assert "p:1:0:1" in example.text
    assert "p:1:0:2" in example.text


def test_every_event_behind_a_later_one_is_an_error(record: Record) -> None:
    """The last event first makes each of the others an order error, not only one of them."""
    verdict = validator.verify([record(3), record(0), record(1), record(2)])
    assert verdict.order_errors == 3


def test_swap_across_keys_is_legal(record: Record) -> None:
    """Two keys of one shard may pass each other: it is counted per shard and is no fault."""
    verdict = validator.verify([record(1, key="x"), record(0, key="y"), record(2, key="x"), record(3, key="y")])
    want = ORDERED | {"keys": 2, "shard_order_errors": 1}
    assert found(verdict, want) == want


def test_late_event_of_a_key_seen_only_before_it_is_no_order_error(record: Record) -> None:
    """Below the highest of its shard, above the highest of its own key: legal, and later ones are compared with it."""
    rows = [record(0, key="x"), record(3, key="y"), record(2, key="x"), record(1, key="x")]
    verdict = validator.verify(rows)
    assert (verdict.order_errors, verdict.shard_order_errors) == (1, 2)


def test_sorting_the_output_would_hide_its_faults(record: Record) -> None:
    """The same records in published order are ok, in arrival order they are not: nothing sorts them on the way."""
    arrived = [record(1), record(0), record(3), record(2)]
    unsorted = validator.verify(arrived)
    presorted = validator.verify(sorted(arrived, key=lambda r: r.sequence))
    assert (unsorted.order_errors, unsorted.ok) == (2, False)
    assert (presorted.order_errors, presorted.ok) == (0, True)


def test_dropped_event_is_a_gap(record: Record) -> None:
    """A hole below the highest sequence is a gap; the example names the event and the line that showed it."""
    verdict = validator.verify([record(0), record(2), record(3)])
    want = ORDERED | {"events": 3, "gaps": 1, "ok": False}
    assert found(verdict, want) == want
    (example,) = verdict.examples
    assert (example.kind, example.line) == ("gap", 2)
    assert "p:1:0:1" in example.text


def test_sequences_begin_at_zero(record: Record) -> None:
    """An output that begins with sequence 2 lacks the two before it."""
    assert validator.verify([record(2)]).gaps == 2


def test_lost_tail_is_invisible_without_a_source(record: Record) -> None:
    """Nothing in the output tells of events after the last one."""
    assert validator.verify([record(0), record(1)]).ok


@pytest.mark.parametrize(
    ("outcome", "counted"), [("skipped", "skipped"), ("dead-lettered", "dead_lettered"), ("parked", "parked")]
)
def test_event_set_aside_is_no_gap(record: Record, outcome: str, counted: str) -> None:
    """An event that was parked, dead-lettered or skipped is accounted for under that name."""
    verdict = validator.verify([record(0), record(1, outcome=outcome), record(2), record(3)])
    want = ORDERED | {counted: 1}
    assert found(verdict, want) == want


def test_repeated_event_is_a_duplicate_and_no_order_error(record: Record) -> None:
    """Only first occurrences are ordered: a repeated suffix is so many duplicates and nothing else."""
    verdict = validator.verify([record(0), record(1), record(2), record(1), record(2), record(3)])
    want = ORDERED | {"duplicates": 2, "duplicates_on_planned_moves": 2, "ok": False}
    assert found(verdict, want) == want


def test_duplicates_of_an_event_set_aside_do_not_count_twice(record: Record) -> None:
    """The first occurrence says what became of an event."""
    verdict = validator.verify([record(0, outcome="skipped"), record(0, outcome="skipped")])
    assert (verdict.skipped, verdict.duplicates, verdict.events) == (1, 1, 1)


def test_keys_of_two_producers_are_independent(record: Record) -> None:
    """Order is per producer and key; a key counts once whoever publishes it."""
    rows = [record(1, producer="p"), record(0, producer="q"), record(0, producer="p"), record(1, producer="q")]
    verdict = validator.verify(rows)
    assert (verdict.order_errors, verdict.keys, verdict.producers, verdict.gaps) == (1, 1, 2, 0)


def test_later_incarnation_follows_the_earlier_one(record: Record) -> None:
    """A restarted producer begins at 0 again: its events come after all of its earlier life."""
    rows = [record(0), record(1), record(0, incarnation=2), record(1, incarnation=2)]
    verdict = validator.verify(rows)
    assert (verdict.ok, verdict.incarnations, verdict.events) == (True, 2, 4)


def test_earlier_life_after_the_later_one_is_an_order_error(record: Record) -> None:
    """Two replicas that share a name are two incarnations, and their mixture shows as order errors."""
    rows = [record(0), record(0, incarnation=2), record(1), record(1, incarnation=2)]
    verdict = validator.verify(rows)
    assert (verdict.order_errors, verdict.incarnations, verdict.gaps) == (1, 2, 0)


def test_unsequenced_events_are_unknown_and_never_ok(record: Record, unsequenced: OutputRecord) -> None:
    """Events without identity are counted, and the verdict says that it does not know about them."""
    verdict = validator.verify([record(0), unsequenced, unsequenced])
    assert (verdict.unsequenced, verdict.events, verdict.ok, verdict.exit_code) == (2, 3, False, 1)
    assert verdict.faults == ()
    assert "2 events carry no sequence" in verdict.unknown[0]


def test_unsequenced_events_can_be_left_out(record: Record, unsequenced: OutputRecord) -> None:
    """On request only the sequenced events are judged; with none of them there is still nothing that is ok."""
    options = validator.Options(allow_unsequenced=True)
    assert validator.verify([record(0), unsequenced], options=options).ok
    assert not validator.verify([unsequenced], options=options).ok


def test_empty_output_is_not_ok() -> None:
    """Nothing was judged, so nothing is known."""
    verdict = validator.verify([])
    assert (verdict.ok, verdict.faults, len(verdict.unknown)) == (False, (), 1)


def test_half_an_identity_is_damage(record: Record) -> None:
    """A record names its producer, incarnation, shard and sequence, or none of them."""
    halves = [record(0, producer=""), record(-1), record(0, incarnation=-1), record(0, shard=-1)]
    verdict = validator.verify(halves)
    assert (verdict.damaged, verdict.events, verdict.unsequenced) == (4, 0, 0)


def test_record_out_of_bounds_is_damage(record: Record) -> None:
    """Identities are 64-bit and times are finite; anything else would break comparisons silently."""
    wrong = [record(2**63), record(0, epoch=-1), record(0, ended=float("nan")), record(0, started=float("inf"))]
    verdict = validator.verify([*wrong, record(2**63 - 1)])
    assert (verdict.damaged, verdict.events, verdict.gaps) == (4, 1, 2**63 - 1)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"queue": 1}, "shard 0 is in queue 1 and was in queue 0"),
        ({"shard": 1}, "more than one shard"),
        ({"consumer": "b"}, "queue 0, epoch 1"),
    ],
    ids=["a shard in two queues", "a key in two shards", "an epoch of two consumers"],
)
def test_records_that_contradict_each_other_are_not_ok(record: Record, second: dict[str, object], says: str) -> None:
    """What cannot be true of one run is counted and named, whatever the order looks like."""
    changed = record(0, **second) if "shard" in second else record(1, **second)
    verdict = validator.verify([record(0), changed])
    assert (verdict.contradictions, verdict.ok) == (1, False)
    assert any(says in example.text for example in verdict.examples)


def test_examples_are_bounded(record: Record) -> None:
    """The first few faults of each kind are shown and all are counted."""
    rows = [record(n) for n in reversed(range(50))]
    verdict = validator.verify(rows, options=validator.Options(examples=3))
    assert verdict.order_errors == 49
    assert [example.line for example in verdict.examples] == [2, 3, 4]


def test_faults_are_told_as_they_are_met(record: Record) -> None:
    """A listener hears of a fault, or of a gap that may still close, with the record that shows it."""
    heard: list[tuple[str, int | None]] = []
    rows = [record(0), record(2), record(1)]
    validator.verify(rows, on_example=lambda example: heard.append((example.kind, example.line)))
    assert heard == [("gap", 2), ("order-error", 3)]


def test_gap_that_closes_is_none(record: Record) -> None:
    """A late event fills its hole: an order error remains, a gap does not."""
    verdict = validator.verify([record(0), record(2), record(1)])
    assert (verdict.gaps, verdict.order_errors) == (0, 1)


def test_verdict_can_be_asked_for_at_any_time(record: Record) -> None:
    """Asking changes nothing: verdicts along the way lead to the same end as one at the end."""
    rows = [record(0), record(2), record(1), record(1), record(5)]
    checker = validator.Checker()
    for row in rows:
        checker.feed(row)
        checker.verdict()
    assert checker.verdict() == validator.verify(rows)
    checker.close()


def test_keys_beyond_memory_give_the_same_verdict(record: Record) -> None:
    """With room for two keys in memory, order errors and keys are found as with room for all."""
    rows = [record(n, key=f"k{n % 7}") for n in range(40)]
    rows[3], rows[38] = rows[38], rows[3]
    few = validator.verify(rows, options=validator.Options(keys_in_memory=2))
    assert few == validator.verify(rows)
    assert few.order_errors > 0
    assert few.keys == 7


def test_every_permutation_of_one_key_has_its_count_of_order_errors(record: Record) -> None:
    """For all orders of four events: an event is an error iff a later one stands before it."""
    for order in itertools.permutations(range(4)):
        want = sum(any(before > n for before in order[:at]) for at, n in enumerate(order))
        assert validator.verify(record(n) for n in order).order_errors == want


def test_message_id_is_not_what_identifies_an_event(record: Record) -> None:
    """Identity is in its fields; an id that differs between copies hides no duplicate."""
    verdict = validator.verify([record(0), replace(record(0), message_id="another")])
    assert verdict.duplicates == 1
