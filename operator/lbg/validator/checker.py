"""The check: one record after the other, in arrival order.

Theory of operation
-------------------
An event is (producer, incarnation, shard, sequence). Its first record is its *first occurrence*, any later one a
duplicate. Its *place* among the events of its producer and key is (incarnation, sequence). An order error is a first
occurrence whose place is below the highest place seen so far for its producer and key. Since a key has one shard, that
is also an order error of the shard; the converse does not hold, and is legal.

Most records extend what is known: the newest tenure of their queue, the last run of their sequences, the highest place
of their shard. For these a step is a few comparisons in `_take`; everything else is a fault, a redelivery or the first
of its kind, and has a method of its own.

The order of the records is evidence. Nothing here sorts, buffers or looks ahead, and nothing reads a clock: the same
records and the same log give the same verdict, live or afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from lbg.core import outputs, run_log
from lbg.core.outputs import OutputRecord
from lbg.core.run_log import RunEvent
from lbg.core.wire import Identity, Message
from lbg.validator import evidence, judging, places, rows
from lbg.validator import expected as expectations
from lbg.validator.evidence import Evidence, Hole, Lane
from lbg.validator.expected import Expected
from lbg.validator.judging import Options
from lbg.validator.rows import Row
from lbg.validator.sequences import Seen
from lbg.validator.source import Published
from lbg.validator.tenures import QueueHistory, Tenure
from lbg.validator.verdicts import Example, Verdict

_TRIM_EVERY: Final = 1 << 16  # records between two looks at the size of the key cache, or as many as it may hold
_SHOWN_OF_KEY: Final = 80  # characters


class Checker:
    """Takes records in arrival order and the run's log in any, and gives a verdict at any time.

    Args:
        expected: what was published, if it is known; the caller closes it.
        options: see there.
        on_example: called with a fault as it is met, for the first few of each kind. A gap may close later.
    """

    def __init__(
        self,
        expected: Expected | None = None,
        options: Options | None = None,
        on_example: Callable[[Example], None] | None = None,
    ) -> None:
        self._options = options or Options()
        self._expected = expected
        self._on_example = on_example
        self._known = Evidence(places.Places(self._options.keys_in_memory), self._options.examples)
        self._trim_every = min(_TRIM_EVERY, max(1, self._options.keys_in_memory))
        self._next_trim = self._trim_every

    def feed(self, record: OutputRecord) -> None:
        """Take the next record."""
        try:
            row = rows.from_record(record)
        except rows.Damaged as damaged:
            self.damage(str(damaged))
        else:
            self._take(row)

    def feed_line(self, line: bytes) -> None:
        """Take the next record as a line of JSON; a damaged one is counted and named."""
        try:
            row = rows.from_line(line)
        except rows.Damaged as damaged:
            self.damage(str(damaged))
        else:
            self._take(row)

    def feed_message(self, message: Message) -> None:
        """Take the next record as a message of a broker's output stream; a damaged one is counted and named."""
        try:
            record = outputs.from_message(message)
        except ValueError as damaged:
            self.damage(str(damaged))
        else:
            self.feed(record)

    def feed_tail(self, piece: bytes) -> None:
        """Say what follows the last newline, if anything: a whole record, or one that is still being written.

        The latter is no damage: a record is confirmed before its event is acknowledged, so half of one promises
        nothing yet. The verdict says that the input ends there.
        """
        self._known.truncated = False
        if piece:
            try:
                row = rows.from_line(piece)
            except rows.Damaged:
                self._known.truncated = True
            else:
                self._take(row)

    def feed_event(self, event: RunEvent) -> None:
        """Take an event of the run's log, in any order and also after the records that it explains."""
        self.expect_log()
        if self._known.log is not None and event.kind in run_log.UNPLANNED:
            self._known.log.append(event)

    def feed_log_line(self, line: bytes) -> None:
        """Take a line of the run's log; a damaged one is counted and named by its line in the log.

        It is a fault: whether a change of owner was planned is the log's word, and the word may have stood there.
        """
        self._known.log_lines += 1
        try:
            self.feed_event(run_log.from_json(line))
        except ValueError:
            text = f"line {self._known.log_lines:,} of the run's log is no event: restore the log, or verify without it"
            self._tell(self._known.note(evidence.LOG_DAMAGED, text, line=None))

    def feed_log_tail(self, piece: bytes) -> None:
        """Say what follows the last newline of the log, if anything: half an event is still being written."""
        # An event begins with a brace; what does not will never become one.
        if piece and not (piece.startswith(b"{") and b"\0" not in piece):
            self.feed_log_line(piece)

    def expect_log(self) -> None:
        """Let the run's log decide what was planned, even if it never says anything."""
        if self._known.log is None:
            self._known.log = []

    def damage(self, reason: str) -> None:
        """Count a record that arrived and cannot be read."""
        self._known.lines += 1
        self._note(evidence.DAMAGED, reason)

    def verdict(self, source: Callable[[], Iterable[Published]] | None = None) -> Verdict:
        """Judge what was taken so far.

        Args:
            source: reads what was published once more, to name the keys of the missing events that are shown.
        """
        return judging.judge(self._known, self._expected, self._options, source)

    def close(self) -> None:
        """Give temporary files back. Idempotent; no verdict after this."""
        self._known.places.close()

    def _take(self, row: Row) -> None:
        (
            _,
            key,
            shard,
            queue,
            epoch,
            producer,
            incarnation,
            sequence,
            consumer,
            _,
            started,
            ended,
            published,
            outcome,
        ) = row
        known = self._known
        known.lines += 1
        history = known.queues.get(queue)
        if history is not None and epoch == history.epoch and consumer == history.consumer:
            number = history.number
            tenure = history.tenures[number]
            tenure.events += 1
            if ended > tenure.last_ended:
                tenure.last_ended = ended
            if started < tenure.first_started:
                tenure.first_started, tenure.first_published = started, published
        else:
            history, number = self._enter(row)
        if sequence < 0 or incarnation < 0 or shard < 0 or not producer:
            self._without_identity(row)
            return
        lane = known.lanes.get((producer, shard))
        seen = None if lane is None else lane.lives.get(incarnation)
        if lane is None or seen is None or queue != lane.queue:
            lane, seen = self._open(row)
        if sequence == seen.end and number == seen.tenure:
            seen.end = sequence + 1  # what `mark` would do, without the call
        elif not self._is_first(row, seen, history, number):
            return
        place = incarnation << places.SEQUENCE_BITS | sequence
        if place > lane.highest:
            lane.highest = place
            lane.keys[key] = place
        else:
            self._below_highest(row, lane, place)
        if outcome != rows.HANDLED or self._expected is not None:
            self._compare(row)
        if known.lines >= self._next_trim:
            self._next_trim = known.lines + self._trim_every
            known.places.trim()

    def _enter(self, row: Row) -> tuple[QueueHistory, int]:
        """Return the queue's history and the number of the tenure that a record belongs to, perhaps a new one."""
        known = self._known
        history = known.queues.get(row.queue)
        if history is None:
            history = known.queues[row.queue] = QueueHistory(row.queue)
        shared = history.shared_epochs
        number = history.enter(
            Tenure(row.consumer, row.epoch, row.clean, known.lines, row.started, row.published, row.ended)
        )
        if history.shared_epochs > shared:
            text = f"queue {row.queue}, epoch {row.epoch}: {row.consumer} handles events, and so did another consumer"
            self._note(evidence.CONTRADICTION, text)
        if _is_late(row, history):
            known.counts[evidence.LATE] += 1
        return history, number

    def _without_identity(self, row: Row) -> None:
        if (row.producer, row.incarnation, row.sequence) == ("", -1, -1):
            self._known.counts[evidence.UNSEQUENCED] += 1
        else:
            self._note(evidence.DAMAGED, f"half an identity: producer {row.producer[:_SHOWN_OF_KEY]!r}, {row.name}")

    def _open(self, row: Row) -> tuple[Lane, Seen]:
        """Return lane and sequences of a record: they are new, or the queue is not the one that the shard was in."""
        known = self._known
        at = row.producer, row.shard
        lane = known.lanes.get(at)
        if lane is None:
            lane = known.lanes[at] = Lane(row.queue, known.places.lane(*at))
        if row.queue != lane.queue:
            text = f"shard {row.shard} is in queue {row.queue} and was in queue {lane.queue}"
            self._note(evidence.CONTRADICTION, text)
        seen = lane.lives.get(row.incarnation)
        if seen is None:
            seen = lane.lives[row.incarnation] = Seen()
            known.lives.add((row.producer, row.incarnation))
        return lane, seen

    def _is_first(self, row: Row, seen: Seen, history: QueueHistory, number: int) -> bool:
        end = seen.end
        before = seen.mark(row.sequence, number)
        if before is None:
            if row.sequence > end:
                hole = Hole((row.producer, row.incarnation), row.shard, end, row.sequence)
                self._tell(self._known.open_hole(hole))
            return True
        history.repeat(before, number, self._known.lines, row.name)
        self._known.counts[evidence.DUPLICATE] += 1
        if _is_late(row, history):
            text = f"{row.name} again, from epoch {row.epoch} while the queue is in epoch {history.newest_epoch}"
            self._note(evidence.STALE, text)
        return False

    def _below_highest(self, row: Row, lane: Lane, place: int) -> None:
        self._known.counts[evidence.SHARD_ORDER_ERROR] += 1
        highest = self._known.places.find(row.producer, row.shard, row.key)
        if highest is None or place > highest:
            lane.keys[row.key] = place
            return
        incarnation, sequence = places.pair(highest)
        later = Identity(row.producer, incarnation, row.shard, sequence).message_id
        self._note(evidence.ORDER_ERROR, f"{row.name} of key {_shown(row.key)} came after {later}")

    def _compare(self, row: Row) -> None:
        if row.outcome != rows.HANDLED:
            self._known.counts[row.outcome] += 1
        if self._expected is None:
            return
        fault = self._expected.fault(row.producer, row.incarnation, row.shard, row.sequence, row.key)
        if fault == expectations.WRONG_KEY:
            self._note(fault, f"{row.name} has key {_shown(row.key)}, and the source has another one there")
        elif fault == expectations.INVENTED:
            self._note(fault, f"{row.name} of key {_shown(row.key)} is not in the source")

    def _note(self, kind: str, text: str) -> None:
        self._tell(self._known.note(kind, text))

    def _tell(self, example: Example | None) -> None:
        if example is not None and self._on_example is not None:
            self._on_example(example)


def _is_late(row: Row, history: QueueHistory) -> bool:
    # Epoch 0 is unknown, which is neither older nor newer.
    return 0 < row.epoch < history.newest_epoch


def _shown(key: str) -> str:
    return repr(key if len(key) <= _SHOWN_OF_KEY else key[:_SHOWN_OF_KEY] + "…")
