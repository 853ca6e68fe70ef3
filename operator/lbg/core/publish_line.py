"""One line of the publish window: the events of one shard, in published order, and the states they put it in.

Here live the table of states and the rule of re-sending. Which line may send when, and what is reported to the
application, is `publish_window`'s business. No I/O, no clock: time is a number that the caller passes.

Theory of operation
-------------------
The unit of order is the *shard*. Each has a *line* of events in published order: `sent`, those submitted and not yet
confirmed, then `unsent`. Everything follows from one rule: **after any failure the line is sent again from its first
unconfirmed event on, never one event alone.** What a broker has accepted by then appears twice, as a repeated suffix,
which the marks of the consumers recognise. One event alone behind later ones would be a reordering that, after a lost
ledger, nobody can recognise. For the same reason confirms are given by prefix: an acceptance that overtook an earlier
unanswered event counts only when that one is accepted too.

A line is in one of five states. Inputs come from the broker's verdicts, from time and from the connection:

    state     sends                 input      next      why
    --------  --------------------  ---------  --------  -----------------------------------------------------------
    OPEN      up to its window      NOT_TAKEN  SETTLING  an event was not accepted; later ones may still be in flight
    PROBING   one event             NOT_TAKEN  SETTLING  the cause of the failure is still there
    PROBING   one event             TAKEN      OPEN      the broker takes events of this shard again
    SETTLING  nothing               LATER      WAITING   all in flight are answered; the first event not accepted can
                                                         be tried again: the line goes back to `unsent`, in order
    SETTLING  nothing               NEVER      STOPPED   ... it cannot: it fails, and so does everything behind it
    WAITING   nothing               DUE        PROBING   its delay is over; a probe, because a full queue refuses all
    STOPPED   nothing, takes none   RESTART    WAITING   the application has acknowledged the hole; due at once
    OPEN                            LOST       OPEN      the connection went: the line goes back to `unsent`, in order
    PROBING, SETTLING, WAITING      LOST       PROBING   ... and what it had met may still be there
    STOPPED                         LOST       STOPPED   nothing is in flight

Only the first event of a line that was not accepted decides between LATER and NEVER. A refusal behind an event whose
fate is unknown is not believed: the broker met it out of order, or will meet it again.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Verdict(enum.Enum):
    """What the broker said about one submitted event, as far as this machine is concerned."""

    ACCEPTED = enum.auto()
    LATER = enum.auto()  # refused for now, or held back behind a refused one: certainly not accepted
    UNKNOWN = enum.auto()  # not answered: perhaps accepted. Handled as LATER
    NEVER = enum.auto()  # trying again does not help


class LineState(enum.Enum):
    """The states of the table above."""

    OPEN = enum.auto()
    PROBING = enum.auto()
    SETTLING = enum.auto()
    WAITING = enum.auto()
    STOPPED = enum.auto()


class LineInput(enum.Enum):
    """The inputs of the table above."""

    TAKEN = enum.auto()
    NOT_TAKEN = enum.auto()
    LATER = enum.auto()
    NEVER = enum.auto()
    DUE = enum.auto()
    RESTART = enum.auto()
    LOST = enum.auto()


_S, _I = LineState, LineInput
TRANSITIONS: Final[dict[tuple[LineState, LineInput], LineState]] = {
    (_S.OPEN, _I.NOT_TAKEN): _S.SETTLING,
    (_S.PROBING, _I.NOT_TAKEN): _S.SETTLING,
    (_S.PROBING, _I.TAKEN): _S.OPEN,
    (_S.SETTLING, _I.LATER): _S.WAITING,
    (_S.SETTLING, _I.NEVER): _S.STOPPED,
    (_S.WAITING, _I.DUE): _S.PROBING,
    (_S.STOPPED, _I.RESTART): _S.WAITING,
    (_S.OPEN, _I.LOST): _S.OPEN,
    (_S.PROBING, _I.LOST): _S.PROBING,
    (_S.SETTLING, _I.LOST): _S.PROBING,
    (_S.WAITING, _I.LOST): _S.PROBING,
    (_S.STOPPED, _I.LOST): _S.STOPPED,
}
"""Every transition there is; a pair that is missing is a defect and raises KeyError."""


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """One event on its line. The identity never changes, however often it is sent."""

    event: T
    shard: int
    incarnation: int
    sequence: int
    submissions: int = 0
    is_sent: bool = False  # submitted, and not put back since
    verdict: Verdict | None = None  # of the current submission
    was_unanswered: bool = False  # some earlier submission was
    was_accepted: bool = False  # some earlier submission was: it is durable, and only to be repeated

    @property
    def is_at_broker(self) -> bool:
        """Return whether the broker is known to hold it. A later loss or refusal does not undo that."""
        return self.was_accepted or self.verdict is Verdict.ACCEPTED

    @property
    def is_uncertain(self) -> bool:
        """Return whether the broker may hold it all the same, while it is not confirmed."""
        is_open = self.is_sent and (self.verdict is None or self.verdict is Verdict.UNKNOWN)
        return self.was_unanswered or is_open or self.is_at_broker


class Line(Generic[T]):
    """The state of one shard. Only `publish_window.PublishWindow` touches it."""

    __slots__ = (
        "attempts",
        "cause",
        "incarnation",
        "next_sequence",
        "queued",
        "retry_at",
        "sent",
        "shard",
        "state",
        "unanswered",
        "unsent",
    )

    def __init__(self, shard: int, incarnation: int) -> None:
        self.shard = shard
        self.incarnation = incarnation
        self.next_sequence = 0
        self.state = LineState.OPEN
        self.sent: deque[Entry[T]] = deque()
        self.unsent: deque[Entry[T]] = deque()
        self.unanswered = 0  # of `sent`; the rest was accepted behind an event that is not answered yet
        self.attempts = 0  # failed in a row
        self.retry_at = 0.0  # while WAITING
        self.queued = False  # stands in the ring of lines that may send
        self.cause: Entry[T] | None = None  # while STOPPED

    def move(self, line_input: LineInput) -> None:
        """Follow the table."""
        self.state = TRANSITIONS[self.state, line_input]

    def room(self, window: int) -> int:
        """Return how many events may be submitted now; not positive when none."""
        if self.state is LineState.OPEN:
            return window - len(self.sent)
        if self.state is LineState.PROBING:
            return 1 - len(self.sent)
        return 0

    def put_back(self) -> None:
        """Return everything sent to the head of `unsent`, in order, ready for a new submission."""
        for entry in self.sent:
            if entry.verdict is None or entry.verdict is Verdict.UNKNOWN:
                entry.was_unanswered = True
            elif entry.verdict is Verdict.ACCEPTED:
                entry.was_accepted = True
            entry.verdict = None
            entry.is_sent = False
        self.unsent.extendleft(reversed(self.sent))
        self.sent.clear()
        self.unanswered = 0
