"""The publish window: which events of a producer are in flight, and what is sent again after a failure.

Here live sequences, the windows, the rule of re-sending and the rule of stopping. Not here: sockets, tasks, clocks,
message formats, the size of the buffer. Events go in as method calls, actions come out as values, `now` is an argument
(any clock that never goes back, in seconds). The producer, the tests and a simulation drive the same code.

Theory of operation
-------------------
A *line* (`publish_line`) keeps the events of one shard and sends again from its first unconfirmed event on. This
machine numbers events, shares the room in flight among the lines, and settles each event once:

    input           what happens                                                  actions that follow
    --------------  ------------------------------------------------------------  ------------------------------------
    publish         the event is numbered and goes to the end of its line         Submit, at the next poll
    poll(now)       lines that may send are served in turn, a share at a time     Resume (for a line due), Submit
    answered        verdicts go to their lines; accepted prefixes are confirmed   Confirm, Fail
    lost            every line goes back to its first unconfirmed event           none until connected
    connected       abilities of the new connection set the window of the lines   Submit, at the next poll
    restart(shard)  a stopped line begins a new incarnation                       Resume, at the next poll

*One line never holds another.* A full queue refuses its own shards; the others go on. (The buffer is shared: once a
refused shard fills it, all publishers wait. Which is worse, that or a loss, is not a choice.)

*Windows.* In flight over all lines: `max_in_flight`. Per line: `window` where the broker blocks a shard behind a
refused event until resumed (`ordered_rejects`) or cannot refuse for lack of room at all, and otherwise 1. Without such
a block a later event may be accepted after an earlier one was refused (measured on RabbitMQ with `reject-publish`).

*A hole.* Sequences are dense per (producer, incarnation, shard), so that a consumer tells a gap from an end. An event
that can never be accepted (its contract is stale, it is too large, permission is missing) therefore ends the life of
its line. The event fails; so does everything behind it that was not accepted; publishing to the shard raises `Stopped`
until `restart` gives the line a new incarnation, with sequences from 0. Nothing else is sound:

- to skip it in silence lets later events overtake one that the application believes to be ahead of them;
- to skip it and go on counting leaves a hole, which every consumer reports as a loss;
- to renumber what follows changes ids that a broker may already have accepted, which breaks deduplication;
- to number at the first acceptance leaves nothing to deduplicate by while an answer is outstanding.

Kafka's idempotent producer came to the same: it raises its epoch and starts sequences again for the partition
(KIP-360). It does so by itself; here the application is asked, because what follows the hole may depend on it. The
incarnation is per line for that reason: one bad event does not end the numbering of the other shards.

*A broken promise.* Should a broker that is believed not to refuse for lack of room do it all the same, `limited` is
corrected for the life of the connection, so that it happens to at most one window of events.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from lbg.core.publish_line import Entry, Line, LineInput, LineState, Verdict

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Submit(Generic[T]):
    """Send these events, in this order; answer with `answered(number, ...)`."""

    number: int
    entries: tuple[Entry[T], ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Lift the broker's block on a shard. Comes before the Submit that probes it."""

    shard: int


@dataclass(frozen=True, slots=True)
class Confirm(Generic[T]):
    """These events are durable at the broker, in order per shard. An entry is confirmed or failed once."""

    entries: tuple[Entry[T], ...]


class Fate(enum.Enum):
    """Why an event failed."""

    REFUSED = enum.auto()  # the broker will never take it
    BEHIND = enum.auto()  # it stood behind a refused one and was not accepted (perhaps was, if `is_uncertain`)


@dataclass(frozen=True, slots=True)
class Fail(Generic[T]):
    """This event is given up. `cause` is the refused event that stopped the line (the entry itself if REFUSED)."""

    entry: Entry[T]
    fate: Fate
    cause: Entry[T]


Send: TypeAlias = Submit[T] | Resume
Settle: TypeAlias = Confirm[T] | Fail[T]


class Stopped(Exception):
    """Publishing to a shard whose line has stopped; `restart` it first."""

    def __init__(self, shard: int) -> None:
        super().__init__(f"shard {shard} is stopped behind an event that was refused")
        self.shard = shard


class PublishWindow(Generic[T]):
    """The machine: lines by shard, what is in flight, and what to do next.

    Args:
        incarnation: of every line until it is restarted.
        max_in_flight: events submitted and not answered, over all lines.
        window: the same bound per line; also the longest suffix that a failure can repeat.
        batch: most events in one Submit.
        retry_delay: seconds to wait before attempt n (from 0) of a line that was refused; jitter is the caller's.
    """

    def __init__(
        self,
        incarnation: int,
        *,
        max_in_flight: int = 2_000,
        window: int = 500,
        batch: int = 200,
        retry_delay: Callable[[int], float],
    ) -> None:
        if min(max_in_flight, window, batch) < 1:
            raise ValueError("max_in_flight, window and batch must be at least 1")
        self._incarnation = incarnation
        self._max_in_flight = max_in_flight
        self._window = window
        self._batch = batch
        self._retry_delay = retry_delay
        self._lines: dict[int, Line[T]] = {}
        self._ready: deque[Line[T]] = deque()  # lines that may send, each once, served in turn
        self._waiting: dict[int, Line[T]] = {}
        self._batches: dict[int, tuple[Entry[T], ...]] = {}
        self._next_batch = 0
        self._in_flight = 0
        self._unsent = 0
        self._resent = 0
        self._is_connected = False
        self._ordered_rejects = False
        self._line_window = 1

    # What a caller may look at.

    @property
    def in_flight(self) -> int:
        """Return the events submitted and not answered."""
        return self._in_flight

    @property
    def unsent(self) -> int:
        """Return the events that wait to be submitted, for the first time or again."""
        return self._unsent

    @property
    def resent(self) -> int:
        """Return how many submissions so far were not the first of their event."""
        return self._resent

    @property
    def is_connected(self) -> bool:
        """Return whether events are submitted at all."""
        return self._is_connected

    @property
    def can_send(self) -> bool:
        """Return whether `poll` would submit something now (waiting lines that are due not counted)."""
        return self._is_connected and bool(self._ready) and self._in_flight < self._max_in_flight

    @property
    def wakes_at(self) -> float | None:
        """Return when `poll` must be called next for a line whose delay ends, or None."""
        if not self._waiting or not self._is_connected:
            return None
        return min(line.retry_at for line in self._waiting.values())

    def held(self) -> list[Entry[T]]:
        """Return every event neither confirmed nor failed: in order per shard, shards in order of first use."""
        return [entry for line in self._lines.values() for held in (line.sent, line.unsent) for entry in held]

    def stopped(self) -> dict[int, Entry[T]]:
        """Return the refused event of each stopped shard."""
        return {shard: line.cause for shard, line in self._lines.items() if line.cause is not None}

    def refused_now(self) -> tuple[int, ...]:
        """Return the shards whose last attempt failed and that will try again."""
        return tuple(shard for shard, line in self._lines.items() if line.attempts and line.cause is None)

    def state_of(self, shard: int) -> LineState:
        """Return the state of a shard's line; OPEN for one never used."""
        line = self._lines.get(shard)
        return LineState.OPEN if line is None else line.state

    # Inputs.

    def publish(self, shard: int, event: T) -> Entry[T]:
        """Append an event to its line and number it. Call `poll` to have it submitted.

        Raises:
            Stopped: an earlier event of the shard was refused for good.
        """
        line = self._lines.get(shard)
        if line is None:
            line = self._lines[shard] = Line(shard, self._incarnation)
        if line.cause is not None:
            raise Stopped(shard)
        entry = Entry(event, shard, line.incarnation, line.next_sequence)
        line.next_sequence += 1
        line.unsent.append(entry)
        self._unsent += 1
        if not line.queued:
            self._enlist(line)
        return entry

    def connected(self, *, ordered_rejects: bool, limited: bool) -> None:
        """Learn of a new connection. `limited`: queues may refuse for lack of room, or it is not known.

        Raises:
            ValueError: the old one was not reported lost.
        """
        if self._is_connected:
            raise ValueError("connected twice: report the loss first")
        self._is_connected = True
        self._ordered_rejects = ordered_rejects
        self._line_window = self._window if ordered_rejects or not limited else 1
        for line in self._lines.values():
            self._enlist(line)

    def lost(self) -> None:
        """Learn that the connection is gone: what is unconfirmed goes back in order. Idempotent.

        Batches in flight are forgotten; a late `answered` for one has no effect. Answers that arrived with the loss
        should be given first: each saves a repetition.
        """
        self._is_connected = False
        self._batches.clear()
        self._waiting.clear()
        self._in_flight = 0
        for line in self._lines.values():
            self._unsent += len(line.sent)
            line.put_back()
            line.move(LineInput.LOST)

    def poll(self, now: float) -> list[Send[T]]:
        """Return what to send now: at most `max_in_flight` events, in batches. Nothing while disconnected."""
        actions: list[Send[T]] = []
        if not self._is_connected:
            return actions
        for line in [line for line in self._waiting.values() if line.retry_at <= now]:
            del self._waiting[line.shard]
            line.move(LineInput.DUE)
            if self._ordered_rejects:
                actions.append(Resume(line.shard))
            self._enlist(line)
        while self._ready and self._in_flight < self._max_in_flight:
            entries = self._take(min(self._batch, self._max_in_flight - self._in_flight))
            if not entries:
                break
            self._batches[self._next_batch] = entries
            actions.append(Submit(self._next_batch, entries))
            self._next_batch += 1
        return actions

    def answered(self, number: int, verdicts: Sequence[Verdict], now: float) -> list[Settle[T]]:
        """Take the broker's verdicts on a batch, in its order. Batches may be answered in any order.

        Raises:
            ValueError: there are not as many verdicts as events.
        """
        batch = self._batches.get(number)
        if batch is None:
            return []  # of a connection that was reported lost: its events are to be sent again already
        if len(verdicts) != len(batch):
            raise ValueError(f"batch {number}: {len(verdicts)} verdicts for {len(batch)} events")
        del self._batches[number]
        self._in_flight -= len(batch)
        confirmed: list[Entry[T]] = []
        actions: list[Settle[T]] = [*self._judge(batch, verdicts, confirmed, now)]
        if confirmed:
            actions.insert(0, Confirm(tuple(confirmed)))
        return actions

    def restart(self, shard: int, incarnation: int) -> None:
        """Open a stopped shard again under a new incarnation, with sequences from 0.

        Raises:
            ValueError: the shard is not stopped, or the incarnation does not exceed its last one.
        """
        line = self._lines.get(shard)
        if line is None or line.cause is None:
            raise ValueError(f"shard {shard} is not stopped")
        if incarnation <= line.incarnation:
            raise ValueError(f"incarnation {incarnation} must exceed {line.incarnation}, the last of shard {shard}")
        line.move(LineInput.RESTART)
        line.incarnation, line.next_sequence, line.cause = incarnation, 0, None
        # By way of WAITING, because the broker may hold a block on the shard that only a Resume lifts.
        line.retry_at = -math.inf
        self._waiting[shard] = line

    # The inside.

    def _judge(
        self, batch: Iterable[Entry[T]], verdicts: Iterable[Verdict], confirmed: list[Entry[T]], now: float
    ) -> list[Settle[T]]:
        actions: list[Settle[T]] = []
        for entry, verdict in zip(batch, verdicts, strict=True):
            line = self._lines[entry.shard]
            line.unanswered -= 1
            entry.verdict = verdict
            if verdict is not Verdict.ACCEPTED and line.state is not LineState.SETTLING:
                line.move(LineInput.NOT_TAKEN)
            sent = line.sent
            while sent and sent[0].verdict is Verdict.ACCEPTED:
                confirmed.append(sent.popleft())
            if line.state is LineState.SETTLING:
                if not line.unanswered:
                    actions += self._decide(line, now)
                continue
            if line.state is LineState.PROBING:
                line.move(LineInput.TAKEN)
                line.attempts = 0
            if not line.queued:
                self._enlist(line)
        return actions

    def _decide(self, line: Line[T], now: float) -> list[Settle[T]]:
        """End SETTLING: everything in flight is answered and the first of `sent` was not accepted."""
        head = line.sent[0]
        if head.verdict is Verdict.NEVER:
            return self._stop(line, head)
        if head.verdict is Verdict.LATER and not self._ordered_rejects:
            self._line_window = 1
        self._unsent += len(line.sent)
        line.put_back()
        line.move(LineInput.LATER)
        line.retry_at = now + self._retry_delay(line.attempts)
        line.attempts += 1
        self._waiting[line.shard] = line
        return []

    def _stop(self, line: Line[T], cause: Entry[T]) -> list[Settle[T]]:
        line.move(LineInput.NEVER)
        line.attempts = 0
        line.cause = cause
        actions: list[Settle[T]] = [Fail(cause, Fate.REFUSED, cause)]
        line.sent.popleft()
        # Accepted behind the refused one, now or before a loss: it is durable and must not be denied.
        actions += [
            Confirm((entry,)) if entry.is_at_broker else Fail(entry, Fate.BEHIND, cause)
            for entry in itertools.chain(line.sent, line.unsent)
        ]
        self._unsent -= len(line.unsent)
        line.sent.clear()
        line.unsent.clear()
        return actions

    def _enlist(self, line: Line[T]) -> None:
        if not line.queued and line.unsent and line.room(self._line_window) > 0:
            line.queued = True
            self._ready.append(line)

    def _take(self, most: int) -> tuple[Entry[T], ...]:
        """Move up to `most` events from the lines that may send, in turn, into flight."""
        taken: list[Entry[T]] = []
        while self._ready and len(taken) < most:
            line = self._ready.popleft()
            line.queued = False
            # A line that lost its right to send since it was enlisted has no room, and falls out here.
            share = min(line.room(self._line_window), _SHARE, most - len(taken), len(line.unsent))
            for _ in range(share):
                entry = line.unsent.popleft()
                entry.submissions += 1
                entry.is_sent = True
                if entry.submissions > 1:
                    self._resent += 1
                line.sent.append(entry)
                line.unanswered += 1
                taken.append(entry)
            self._enlist(line)
        self._in_flight += len(taken)
        self._unsent -= len(taken)
        return tuple(taken)


_SHARE: Final = 16
"""Events that one line may put into a batch before it is the next line's turn: a long line delays the others little."""
