"""The checker against an oracle that keeps everything in memory and follows the definitions word by word.

The oracle shares no code with the checker but the record: it compares every record with every other one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import event, given
from hypothesis import strategies as st

from lbg import validator
from lbg.core import run_log
from lbg.core.outputs import OutputRecord
from lbg.core.run_log import RunEvent
from lbg.validator import Options, Verdict

QUEUES = 2
EARLY, LATE = 250.0, 30_000.0


# The oracle.


@dataclass(frozen=True)
class Held:
    """A tenure: its first record and all of them."""

    first: OutputRecord
    records: list[OutputRecord]

    @property
    def started(self) -> float:
        """When its first handler started."""
        return min(record.started for record in self.records)

    @property
    def ended(self) -> float:
        """When its last handler ended."""
        return max(record.ended for record in self.records)


@dataclass(frozen=True)
class Oracle:
    """Answers about records in arrival order and a log (None: none was kept)."""

    records: list[OutputRecord]
    log: list[RunEvent] | None

    def firsts(self) -> list[OutputRecord]:
        """The first occurrence of each event."""
        found: dict[object, OutputRecord] = {}
        for record in self.records:
            found.setdefault(identity(record), record)
        return list(found.values())

    def order_errors(self, *, per_shard: bool) -> int:
        """First occurrences that have a later event of their key (or shard) before them."""
        count = 0
        firsts = self.firsts()
        for at, record in enumerate(firsts):
            before = [
                other for other in firsts[:at] if other.producer == record.producer and other.shard == record.shard
            ]
            if not per_shard:
                before = [other for other in before if other.key == record.key]
            mine = (record.incarnation, record.sequence)
            count += any((other.incarnation, other.sequence) > mine for other in before)
        return count

    def gaps(self) -> int:
        """Sequences below the highest of their life and shard that no record shows."""
        lives: dict[object, set[int]] = {}
        for record in self.records:
            lives.setdefault((record.producer, record.incarnation, record.shard), set()).add(record.sequence)
        return sum(len(set(range(max(seen))) - seen) for seen in lives.values())

    def epochs(self, queue: int) -> list[int]:
        """The epochs of a queue's tenures: each is above all that were seen before it."""
        epochs: list[int] = []
        for record in self.of_queue(queue):
            if not epochs or record.epoch > epochs[-1]:
                epochs.append(record.epoch)
        return epochs

    def tenures(self, queue: int) -> list[Held]:
        """Who held a queue; a record that came too late to begin a tenure belongs to the one before."""
        epochs = self.epochs(queue)
        records = self.of_queue(queue)
        return [
            Held(
                next(record for record in records if record.epoch == epoch),
                [record for record in records if self.tenure_of(record) == number],
            )
            for number, epoch in enumerate(epochs)
        ]

    def of_queue(self, queue: int) -> list[OutputRecord]:
        """The records of a queue."""
        return [record for record in self.records if record.queue == queue]

    def tenure_of(self, record: OutputRecord) -> int:
        """The number of the newest tenure that is not newer than the record."""
        return max((n for n, epoch in enumerate(self.epochs(record.queue)) if epoch <= record.epoch), default=0)

    def changes(self, queue: int) -> list[tuple[bool, bool, float | None]]:
        """For each change of owner: is it a move, was it planned, when did the log say that it began."""
        found = []
        for old, new in pairwise(self.tenures(queue)):
            cause = self.cause(old, new)
            planned = new.first.clean if self.log is None else cause is None
            found.append((old.first.consumer != new.first.consumer, planned, cause))
        return found

    def cause(self, old: Held, new: Held) -> float | None:
        """When the log says that the old owner lost the queue, or None."""
        until = new.started + (0 if new.first.clean else LATE)
        times = []
        for noted in self.log or []:
            names_owner = noted.kind == run_log.BROKER_DIED or noted.consumer == old.first.consumer
            is_last = noted.kind in (run_log.CONSUMER_KILLED, run_log.CONSUMER_DIED)
            of_this_tenure = is_last or noted.at_ms >= old.started
            if (
                noted.kind != run_log.SCALED
                and names_owner
                and of_this_tenure
                and old.ended - EARLY <= noted.at_ms <= until
            ):
                times.append(noted.at_ms)
        return min(times, default=None)

    def duplicates(self) -> tuple[int, int, int]:
        """All duplicates, those without an unplanned change since the occurrence before, and the stale ones."""
        total = unexcused = stale = 0
        for at, record in enumerate(self.records):
            earlier = [other for other in self.records[:at] if identity(other) == identity(record)]
            if not earlier:
                continue
            total += 1
            known = [other for other in self.records[: at + 1] if other.queue == record.queue]
            stale += record.epoch < max(other.epoch for other in known)
            numbers = sorted((self.tenure_of(earlier[-1]), self.tenure_of(record)))
            unexcused += all(planned for _, planned, _ in self.changes(record.queue)[numbers[0] : numbers[1]])
        return total, unexcused, stale

    def delays(self) -> tuple[list[float], list[float]]:
        """The samples of handover and failover."""
        handover: list[float] = []
        failover: list[float] = []
        for queue in range(QUEUES):
            for (old, new), (is_move, planned, cause) in zip(
                pairwise(self.tenures(queue)), self.changes(queue), strict=True
            ):
                first = min(new.records, key=lambda record: record.started)
                since = old.ended if planned or cause is None or cause > first.started else cause
                if is_move and 0 <= first.published <= since:
                    (handover if planned else failover).append(max(0.0, first.started - since))
        return sorted(handover), sorted(failover)


def identity(record: OutputRecord) -> object:
    """What makes two records the same event."""
    return record.producer, record.incarnation, record.shard, record.sequence


# What may happen: a run in order, then faults planted in it.

KEYS = ("ant", "bee", "cat", "dog")
SHARD = {"ant": 0, "bee": 1, "cat": 2, "dog": 0}


@st.composite
def runs(draw: st.DrawFn) -> list[OutputRecord]:
    """The output of a run without faults: lives of two producers, queues that change hands now and then."""
    records: list[OutputRecord] = []
    dealt: dict[object, int] = {}
    lives = {"p": 1, "q": 1}
    owners = dict.fromkeys(range(QUEUES), ("a", 1, True))
    for at in range(draw(st.integers(0, 25))):
        what = draw(st.integers(0, 9))
        if what == 0:
            lives[draw(st.sampled_from("pq"))] += 1
        if what in (1, 2):
            queue = draw(st.integers(0, QUEUES - 1))
            owners[queue] = (
                draw(st.sampled_from("abc")),
                owners[queue][1] + draw(st.integers(1, 2)),
                draw(st.booleans()),
            )
        key, producer = draw(st.sampled_from(KEYS)), draw(st.sampled_from("ppq"))
        shard = SHARD[key]
        life = producer, lives[producer], shard
        sequence = dealt[life] = dealt.get(life, -1) + 1
        consumer, epoch, clean = owners[shard % QUEUES]
        started = 1_000.0 + 100 * at + draw(st.integers(0, 120))
        records.append(
            OutputRecord(
                message_id=f"{producer}:{lives[producer]}:{shard}:{sequence}",
                key=key,
                shard=shard,
                queue=shard % QUEUES,
                epoch=epoch,
                producer=producer,
                incarnation=lives[producer],
                sequence=sequence,
                consumer=consumer,
                ordinal=0,
                attempt=1,
                redelivered=False,
                first_after_handover=False,
                clean=clean,
                started=started,
                ended=started + draw(st.integers(0, 120)),
                published=draw(st.sampled_from([-1.0, 0.0, started])),
            )
        )
    return records


@st.composite
def outputs(draw: st.DrawFn) -> list[OutputRecord]:
    """A run with events dropped, moved to another place, repeated there, or repeated by the newest owner."""
    records = draw(runs())
    for _ in range(draw(st.integers(0, 8)) if records else 0):
        at = draw(st.integers(0, len(records) - 1))
        to = draw(st.integers(0, len(records)))
        record = records[at]
        fault = draw(st.sampled_from(["drop", "move", "repeat", "redeliver"]))
        if fault in ("drop", "move"):
            records.pop(at)
        if fault in ("move", "repeat"):
            records.insert(to, record)
        if fault == "redeliver":
            owner = max((r for r in records if r.queue == record.queue), key=lambda r: r.epoch)
            changes = {"epoch": owner.epoch, "consumer": owner.consumer, "clean": owner.clean}
            later = {"started": record.started + 500, "ended": record.ended + 500}
            records.append(replace(record, **changes, **later))  # type: ignore[arg-type]
        if not records:
            break
    return records


LOGS = st.lists(
    st.builds(
        RunEvent,
        st.integers(500, 5_000).map(float),
        st.sampled_from([*sorted(run_log.UNPLANNED), run_log.SCALED]),
        st.sampled_from("abc"),
    ),
    max_size=5,
)


def compared(verdict: Verdict) -> dict[str, object]:
    """What the oracle has an opinion on."""
    names = (
        "events",
        "keys",
        "order_errors",
        "shard_order_errors",
        "gaps",
        "duplicates",
        "duplicates_on_planned_moves",
        "stale",
        "moves",
        "planned_moves",
        "incarnations",
        "records",
    )
    delays = {name: getattr(verdict, name) for name in ("handover_ms", "failover_ms")}
    found = {name: getattr(verdict, name) for name in names}
    return found | {name: (d.count, d.max, d.p50) for name, d in delays.items()}


def wanted(oracle: Oracle) -> dict[str, object]:
    """The oracle's opinion."""
    firsts = oracle.firsts()
    duplicates, unexcused, stale = oracle.duplicates()
    moves = [change for queue in range(QUEUES) for change in oracle.changes(queue) if change[0]]
    handover, failover = oracle.delays()
    return {
        "events": len(firsts),
        "keys": len({record.key for record in firsts}),
        "order_errors": oracle.order_errors(per_shard=False),
        "shard_order_errors": oracle.order_errors(per_shard=True),
        "gaps": oracle.gaps(),
        "duplicates": duplicates,
        "duplicates_on_planned_moves": unexcused,
        "stale": stale,
        "moves": len(moves),
        "planned_moves": sum(planned for _, planned, _ in moves),
        "incarnations": len({(record.producer, record.incarnation) for record in firsts}),
        "records": len(oracle.records),
        "handover_ms": ranked(handover),
        "failover_ms": ranked(failover),
    }


def ranked(samples: list[float]) -> tuple[int, float | None, float | None]:
    """Count, maximum and median by nearest rank."""
    if not samples:
        return 0, None, None
    return len(samples), samples[-1], samples[(len(samples) - 1) // 2]


@given(outputs(), st.none() | LOGS, st.sampled_from([1, 3, 1_000]))
def test_checker_agrees_with_the_oracle(records: list[OutputRecord], log: list[RunEvent] | None, memory: int) -> None:
    """For any output and log, and however few keys fit in memory, the verdict is what the definitions say."""
    want = wanted(Oracle(records, log))
    verdict = validator.verify(records, log=log, options=Options(keys_in_memory=memory))
    excused = verdict.duplicates > verdict.duplicates_on_planned_moves
    event(f"order errors: {min(verdict.order_errors, 3)}, excused duplicates: {excused}")
    assert compared(verdict) == want
    bad = want["order_errors"] or want["gaps"] or want["duplicates_on_planned_moves"]
    assert verdict.ok == (not bad and bool(records) and not verdict.contradictions)


@given(runs())
def test_run_without_faults_is_ok(records: list[OutputRecord]) -> None:
    """In a run in order nothing is found, with and without a log, live and afterwards."""
    assert validator.verify(records).faults == ()
    assert validator.verify(records, log=[]).faults == ()


@given(outputs(), st.randoms(use_true_random=False))
def test_interleaving_of_queues_does_not_matter(records: list[OutputRecord], chance: object) -> None:
    """Queues are independent: any other mixture of the same per-queue streams gives the same verdict."""
    streams = [[record for record in records if record.queue == queue] for queue in range(QUEUES)]
    mixed: list[OutputRecord] = []
    while any(streams):
        mixed.append(chance.choice([stream for stream in streams if stream]).pop(0))  # type: ignore[attr-defined]
    assert compared(validator.verify(mixed, log=[])) == compared(validator.verify(records, log=[]))


def as_lines(records: Iterable[OutputRecord]) -> list[bytes]:
    """The records as a file has them."""
    return [record.to_json().encode() for record in records]


@given(outputs())
def test_lines_give_the_verdict_of_records(records: list[OutputRecord]) -> None:
    """Written and read again, the same records give the same verdict."""
    checker = validator.Checker()
    for line in as_lines(records):
        checker.feed_line(line)
    assert checker.verdict() == validator.verify(records)
    checker.close()
