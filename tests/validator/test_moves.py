"""Who held a queue when, which moves were planned, what they cost, and which duplicates they excuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lbg import validator
from lbg.core import run_log
from lbg.core.outputs import OutputRecord
from lbg.core.run_log import RunEvent
from lbg.validator import Options, Verdict

Record = Callable[..., OutputRecord]


def killed(at_ms: float, consumer: str = "a") -> RunEvent:
    """Return what the log says of a kill."""
    return RunEvent(at_ms, run_log.CONSUMER_KILLED, consumer)


def moved(record: Record, **second: object) -> list[OutputRecord]:
    """Return two events: consumer a ends the first at 1000, consumer b starts the second, published at 900, at 1030."""
    later = {"consumer": "b", "epoch": 2, "started": 1030.0, "ended": 1035.0, "published": 900.0} | second
    return [record(0, started=990.0, ended=1000.0, published=900.0), record(1, **later)]


def moves(verdict: Verdict) -> tuple[int, int]:
    """Return how many moves there were, and how many of them were planned."""
    return verdict.moves, verdict.planned_moves


def test_change_of_consumer_is_a_move(record: Record) -> None:
    """Ownership is read from the records: who, under which epoch, from first start to last end."""
    verdict = validator.verify(moved(record), log=[])
    assert moves(verdict) == (1, 1)
    held = [(h.queue, h.tenure.consumer, h.tenure.epoch, h.tenure.events) for h in verdict.held]
    assert held == [(0, "a", 1, 1), (0, "b", 2, 1)]
    assert (verdict.held[1].tenure.first_started, verdict.held[1].tenure.last_ended) == (1030.0, 1035.0)


def test_queues_move_independently(record: Record) -> None:
    """Consumers that work side by side on different queues move nothing."""
    rows = [record(n, shard=q, queue=q, key=f"k{q}", consumer=f"c{q}", epoch=q + 1) for n in range(3) for q in range(2)]
    assert moves(validator.verify(rows)) == (0, 0)


def test_new_epoch_of_the_same_consumer_is_no_move(record: Record) -> None:
    """Binding again after a lost connection changes the epoch and not the owner."""
    verdict = validator.verify([record(0), record(1, epoch=2)])
    assert (moves(verdict), verdict.tenures) == ((0, 0), 2)


def test_late_record_of_an_older_epoch_moves_nothing(record: Record) -> None:
    """A record that its writer finished late belongs to the older tenure; the queue has not moved back and forth."""
    rows = [record(0), record(2, consumer="b", epoch=2), record(1), record(3, consumer="b", epoch=2)]
    verdict = validator.verify(rows)
    assert (moves(verdict), verdict.stale, verdict.stale_first) == ((1, 1), 0, 1)


def test_handover_is_from_last_end_to_first_start(record: Record) -> None:
    """A planned move's gap: 1000 to 1030, in ms, as the only sample of each percentile."""
    verdict = validator.verify(moved(record), log=[])
    assert verdict.to_json()["handover_ms"] == {"p50": 30.0, "p99": 30.0, "max": 30.0, "count": 1}
    assert verdict.to_json()["failover_ms"] == {"p50": None, "p99": None, "max": None, "count": 0}


def test_no_backlog_no_handover_gap(record: Record) -> None:
    """If the new owner's first event was published after the old one had ended, the pause is the publisher's."""
    verdict = validator.verify(moved(record, published=1000.5), log=[])
    assert (moves(verdict), verdict.handover_ms.count) == ((1, 1), 0)


def test_unknown_publishing_time_is_not_a_backlog(record: Record) -> None:
    """Without the publisher's clock nothing is known about a backlog, and nothing is measured."""
    assert validator.verify(moved(record, published=-1), log=[]).handover_ms.p50 is None


def test_first_start_counts_not_first_record(record: Record) -> None:
    """Lanes work side by side: the event that was started first may be written second."""
    rows = [*moved(record), record(2, consumer="b", epoch=2, started=1010.0, ended=1040.0, published=900.0)]
    assert validator.verify(rows, log=[]).handover_ms.max == 10.0


def test_overlap_is_reported_as_such(record: Record) -> None:
    """A new owner that started before the old one had ended is counted; its gap is 0 and not negative."""
    verdict = validator.verify(moved(record, started=995.0), log=[])
    assert (verdict.overlapping_planned_moves, verdict.handover_ms.max) == (1, 0.0)
    assert validator.verify(moved(record, started=1000.0), log=[]).overlapping_planned_moves == 0


def test_percentiles_are_by_nearest_rank(record: Record) -> None:
    """Of the gaps 1 to 10 the median is 5, and p99 is the longest."""
    rows, ended = [record(0, at=0.0)], 0.0
    for gap in range(1, 11):
        started = ended + gap
        rows.append(record(gap, consumer=f"c{gap}", epoch=gap + 1, started=started, ended=started, published=0.0))
        ended = started
    assert validator.verify(rows, log=[]).to_json()["handover_ms"] == {
        "p50": 5.0,
        "p99": 10.0,
        "max": 10.0,
        "count": 10,
    }


@pytest.mark.parametrize("kind", sorted(run_log.UNPLANNED))
def test_loss_of_the_owner_in_between_is_unplanned(record: Record, kind: str) -> None:
    """A kill, a death, a lost connection of the old owner or the broker's death make the move a failover."""
    log = [RunEvent(1010.0, kind, None if kind == run_log.BROKER_DIED else "a")]
    verdict = validator.verify(moved(record), log=log)
    assert moves(verdict) == (1, 0)
    assert verdict.failover_ms.max == 20.0
    assert verdict.handover_ms.count == 0


@pytest.mark.parametrize(
    "event",
    [
        killed(1010.0, "b"),
        killed(1010.0, "c"),
        killed(1031.0),
        RunEvent(985.0, run_log.CONNECTION_LOST, "a"),
        RunEvent(1010.0, run_log.CONSUMER_STOPPED, "a"),
        RunEvent(1010.0, run_log.SCALED, None, {"from": 1, "to": 2}),
        RunEvent(1010.0, "moon-rose", "a"),
    ],
    ids=[
        "the new owner was killed",
        "a third one was killed",
        "the old owner was killed after the new one had started",
        "it lost an earlier connection",
        "it was stopped in order",
        "the group was scaled",
        "an unknown kind",
    ],
)
def test_what_did_not_take_the_queue_leaves_the_move_planned(record: Record, event: RunEvent) -> None:
    """Only what befell the old owner between its last event and the new owner's first makes a move unplanned."""
    assert moves(validator.verify(moved(record), log=[event])) == (1, 1)


def test_death_noticed_late_counts_only_if_the_queue_was_found_unclean(record: Record) -> None:
    """A parent may see an exit after the broker did; the new owner's word that nobody had released decides."""
    late = [RunEvent(1500.0, run_log.CONSUMER_DIED, "a", {"signal": 9})]
    assert moves(validator.verify(moved(record, clean=False), log=late)) == (1, 0)
    assert moves(validator.verify(moved(record, clean=True), log=late)) == (1, 1)


def test_death_noticed_late_does_not_shorten_the_failover(record: Record) -> None:
    """The gap then begins at the old owner's last end."""
    late = [RunEvent(1500.0, run_log.CONSUMER_DIED, "a")]
    assert validator.verify(moved(record, clean=False), log=late).failover_ms.max == 30.0


def test_kill_noted_a_moment_before_the_last_event_ended(record: Record) -> None:
    """Who kills writes it down first; the victim may end one more event before the signal arrives."""
    assert moves(validator.verify(moved(record), log=[killed(995.0)])) == (1, 0)


def test_log_may_know_a_consumer_by_the_head_of_its_identity(record: Record) -> None:
    """A pod's name stands for its identity `name_uid_nonce`, and for no other pod's."""
    rows = [record(0, consumer="orders-1_u_n"), *moved(record)[1:]]
    assert moves(validator.verify(rows, log=[killed(1010.0, "orders-1")])) == (1, 0)
    assert moves(validator.verify(rows, log=[killed(1010.0, "orders-1_u")])) == (1, 0)
    assert moves(validator.verify(rows, log=[killed(1010.0, "orders")])) == (1, 1)
    assert moves(validator.verify(rows, log=[killed(1010.0, "orders-11")])) == (1, 1)


def test_without_a_log_the_new_owner_says_what_it_found(record: Record) -> None:
    """`clean` of the new owner's records decides when nobody kept a log."""
    assert moves(validator.verify(moved(record, clean=True))) == (1, 1)
    unplanned = validator.verify(moved(record, clean=False))
    assert (moves(unplanned), unplanned.failover_ms.max, unplanned.with_log) == ((1, 0), 30.0, False)


def test_log_that_says_nothing_overrules_the_records(record: Record) -> None:
    """With a log in which nobody died, an unclean takeover is a planned move gone wrong, and is counted as that."""
    verdict = validator.verify(moved(record, clean=False), log=[])
    assert (moves(verdict), verdict.unclean_planned_moves) == ((1, 1), 1)


def test_duplicate_across_a_planned_move_is_a_fault(record: Record) -> None:
    """Planned moves repeat nothing."""
    again = record(0, consumer="b", epoch=2, at=1040.0)
    verdict = validator.verify([*moved(record), again], log=[])
    assert (verdict.duplicates, verdict.duplicates_on_planned_moves, verdict.ok) == (1, 1, False)
    assert [(e.kind, e.line) for e in verdict.examples] == [("duplicate-on-planned-move", 3)]


def test_duplicate_across_an_unplanned_move_is_excused(record: Record) -> None:
    """What a killed consumer had in hand is repeated by the next one."""
    again = record(0, consumer="b", epoch=2, at=1030.0)
    verdict = validator.verify([record(0), again, record(1, consumer="b", epoch=2, at=1040.0)], log=[killed(1010.0)])
    assert (verdict.duplicates, verdict.duplicates_on_planned_moves, verdict.ok) == (1, 0, True)


def test_one_unplanned_change_among_planned_ones_excuses(record: Record) -> None:
    """All changes in between must have been planned for a duplicate to be a fault."""
    rows = [
        record(0, at=1000.0),
        record(1, consumer="b", epoch=2, at=1100.0),
        record(2, consumer="c", epoch=3, at=1200.0),
        record(0, consumer="d", epoch=4, at=1300.0),
    ]
    assert validator.verify(rows, log=[killed(1150.0, "b")]).ok
    assert validator.verify(rows, log=[killed(1350.0, "d")]).duplicates_on_planned_moves == 1


def test_duplicate_after_a_duplicate_needs_its_own_excuse(record: Record) -> None:
    """The changes that count lie between an occurrence and the one before it."""
    rows = [
        record(0, at=1000.0),
        record(0, consumer="b", epoch=2, at=1100.0),
        record(0, consumer="c", epoch=3, at=1200.0),
    ]
    verdict = validator.verify(rows, log=[killed(1050.0)])
    assert (verdict.duplicates, verdict.duplicates_on_planned_moves) == (2, 1)


def test_duplicate_within_one_tenure_has_no_excuse(record: Record) -> None:
    """Nothing changed between the two, so no death explains the second."""
    verdict = validator.verify([record(0), record(0)], log=[killed(2000.0)])
    assert verdict.duplicates_on_planned_moves == 1


def test_lost_connection_of_one_consumer_excuses_its_own_repetition(record: Record) -> None:
    """The same consumer, a new epoch, and an unplanned change in between: not a move, and not a fault."""
    rows = [record(0, at=1000.0), record(0, epoch=2, at=1100.0)]
    lost = RunEvent(1050.0, run_log.CONNECTION_LOST, "a")
    verdict = validator.verify(rows, log=[lost])
    assert (verdict.moves, verdict.duplicates, verdict.ok) == (0, 1, True)


def test_stale_write_is_a_duplicate_from_an_older_epoch(record: Record) -> None:
    """The new owner has repeated an event, then the old one's own record of it arrives."""
    rows = [
        record(0, at=1000.0),
        record(1, consumer="b", epoch=2, at=1100.0),
        record(1, consumer="a", epoch=1, started=1000.0, ended=1150.0),
    ]
    verdict = validator.verify(rows, log=[killed(1050.0)])
    assert (verdict.duplicates, verdict.stale, verdict.stale_first) == (1, 1, 0)
    assert ("stale", 3) in [(e.kind, e.line) for e in verdict.examples]


def test_stale_write_after_a_planned_move_is_a_fault(record: Record) -> None:
    """An owner that handed over must not write any more, whichever of the two was first."""
    rows = [record(0), record(1, consumer="b", epoch=2), record(1, consumer="a", epoch=1)]
    assert validator.verify(rows, log=[]).duplicates_on_planned_moves == 1


def test_unknown_epoch_is_neither_old_nor_new(record: Record) -> None:
    """An owner that could not read its epoch moves the queue, and nothing it writes is called stale."""
    rows = [record(0, epoch=5), record(1, consumer="b", epoch=0), record(1, consumer="b", epoch=0)]
    verdict = validator.verify(rows)
    assert (verdict.moves, verdict.stale, verdict.stale_first, verdict.epoch_unknown) == (1, 0, 0, 2)


def test_duplicates_beyond_what_was_in_hand_are_a_fault(record: Record) -> None:
    """Three repetitions after one kill are within a bound of 3 and one beyond a bound of 2."""
    rows = [record(n, at=1000.0) for n in range(4)]
    rows += [record(n, consumer="b", epoch=2, at=1100.0) for n in (1, 2, 3)]
    log = [killed(1050.0)]
    within = validator.verify(rows, log=log, options=Options(in_hand_bound=3))
    beyond = validator.verify(rows, log=log, options=Options(in_hand_bound=2))
    assert (within.duplicates_per_death, within.duplicates_beyond_in_hand, within.ok) == (3, 0, True)
    assert (beyond.duplicates_beyond_in_hand, beyond.faults) == (1, ("duplicates_beyond_in_hand",))
    assert validator.verify(rows, log=log).duplicates_beyond_in_hand is None


def test_in_hand_is_per_consumer_over_all_its_queues(record: Record) -> None:
    """One kill takes several queues, and what was in hand was in hand of one process."""
    rows = [record(0, shard=q, queue=q, key=f"k{q}", at=1000.0) for q in (0, 1)]
    rows += [record(0, shard=q, queue=q, key=f"k{q}", consumer=f"b{q}", epoch=2, at=1100.0) for q in (0, 1)]
    assert validator.verify(rows, log=[killed(1050.0)]).duplicates_per_death == 2
    assert validator.verify([r for r in rows if r.queue == 0], log=[killed(1050.0)]).duplicates_per_death == 1


def test_each_kill_has_its_own_count(record: Record) -> None:
    """Repetitions after two kills are not added up."""
    rows = [
        record(0, at=1000.0),
        record(0, consumer="b", epoch=2, at=1100.0),
        record(1, consumer="b", epoch=2, at=1110.0),
        record(1, consumer="c", epoch=3, at=1200.0),
    ]
    verdict = validator.verify(rows, log=[killed(1050.0, "a"), killed(1150.0, "b")])
    assert (verdict.duplicates, verdict.duplicates_per_death, verdict.ok) == (2, 1, True)


def test_repetition_is_charged_to_the_last_death_before_it(record: Record) -> None:
    """Two owners died one after the other without the event having been repeated in between: it counts once."""
    rows = [
        record(0, at=1000.0),
        record(1, at=1000.0),
        record(2, consumer="b", epoch=2, at=1100.0),
        *(record(n, consumer="c", epoch=3, at=1200.0) for n in (0, 1, 2)),
        *(record(n, consumer="d", epoch=4, at=1300.0) for n in (3, 4)),
    ]
    verdict = validator.verify(rows, log=[killed(1050.0, "a"), killed(1150.0, "b"), killed(1400.0, "d")])
    assert (verdict.duplicates, verdict.duplicates_per_death, verdict.ok) == (3, 3, True)


def test_first_of_two_causes_begins_the_failover(record: Record) -> None:
    """The kill is what took the queue; the exit that somebody noticed later is the same death."""
    log = [RunEvent(1020.0, run_log.CONSUMER_DIED, "a"), killed(1005.0), RunEvent(1025.0, run_log.BROKER_DIED)]
    assert validator.verify(moved(record), log=log).failover_ms.max == 25.0


def test_duplicate_in_another_queue_is_a_contradiction_and_breaks_nothing(record: Record) -> None:
    """Owners of different queues cannot be compared; the event that is in both says that something is wrong."""
    rows = [record(0, epoch=epoch, consumer=f"c{epoch}") for epoch in range(1, 6)]
    verdict = validator.verify([*rows, record(0, queue=1)])
    assert (verdict.contradictions, verdict.duplicates, verdict.ok) == (1, 5, False)


def test_log_may_come_after_the_records_that_it_explains(record: Record) -> None:
    """A live log lags behind: what was planned is decided when a verdict is asked for."""
    checker = validator.Checker()
    checker.expect_log()
    for row in [record(0), record(0, consumer="b", epoch=2, at=1030.0)]:
        checker.feed(row)
    assert checker.verdict().duplicates_on_planned_moves == 1
    checker.feed_event(killed(1010.0))
    assert checker.verdict().duplicates_on_planned_moves == 0
    checker.close()
