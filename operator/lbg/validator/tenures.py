"""Who held a queue when, as far as the output tells, and which repetitions fell between which owners.

A *tenure* is one consumer's time as the owner of a queue under one epoch, seen from its first record to its last; an
owner that handled nothing leaves none. Tenures are numbered per queue in the order in which they began. Whether the
change between two of them was planned is decided later (`moves`), when the run's log has been read: a live log may
lag behind the output.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tenure:
    """One owner of a queue under one epoch. Times are ms since the Unix epoch."""

    consumer: str
    epoch: int  # 0: the consumer could not read it
    clean: bool  # the consumer found the queue released by its previous owner, or never owned
    line: int  # of its first record
    first_started: float
    first_published: float  # of the event that was started first; -1 when unknown
    last_ended: float
    events: int = 1


@dataclass(slots=True)
class Repeats:
    """Duplicates between the same two tenures: how many, and the first of them for a person to look at."""

    line: int
    message_id: str
    count: int = 0


@dataclass(slots=True)
class QueueHistory:
    """The tenures of one queue, the newest of which is the current one.

    `epoch`, `consumer`, `current` and `number` mirror the newest tenure, for a caller on a hot path to compare with.
    """

    queue: int
    tenures: list[Tenure] = field(default_factory=list)
    repeats: dict[tuple[int, int], Repeats] = field(default_factory=dict)  # (earlier, later tenure), or twice the same
    newest_epoch: int = 0
    epoch: int = -1
    consumer: str = ""
    number: int = -1
    shared_epochs: int = 0  # epochs under which a second consumer handled events: two owners at once
    _numbers: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def current(self) -> Tenure:
        """Return the newest tenure."""
        return self.tenures[-1]

    def enter(self, tenure: Tenure) -> int:
        """Return the number of the tenure that a record belongs to, given as the tenure it would begin.

        A record from an epoch that has passed belongs to its own, older tenure, and moves nothing: its writer is the
        one that is late.
        """
        epoch, consumer = tenure.epoch, tenure.consumer
        known = self._numbers.get((epoch, consumer)) if epoch else None
        if known is None and 0 < epoch < self.newest_epoch:
            known = self._before(epoch)
        if known is not None:
            self._extend(self.tenures[known], tenure)
            return known
        if epoch and epoch == self.newest_epoch:
            self.shared_epochs += 1
        return self._begin(tenure)

    def repeat(self, before: int, now: int, line: int, message_id: str) -> None:
        """Count a duplicate whose last occurrence was in tenure `before` and that occurred again in tenure `now`."""
        # A shard that turned up in another queue brings tenure numbers from there: a contradiction, counted elsewhere.
        before = min(before, self.number)
        between = (before, now) if before <= now else (now, before)
        repeats = self.repeats.get(between)
        if repeats is None:
            repeats = self.repeats[between] = Repeats(line, message_id)
        repeats.count += 1

    def _begin(self, tenure: Tenure) -> int:
        self.tenures.append(tenure)
        self.number = len(self.tenures) - 1
        self.epoch, self.consumer = tenure.epoch, tenure.consumer
        if tenure.epoch:
            self.newest_epoch = max(self.newest_epoch, tenure.epoch)
            self._numbers[tenure.epoch, tenure.consumer] = self.number
        return self.number

    def _before(self, epoch: int) -> int:
        # First seen after a newer epoch: the nearest older tenure is where its events were in hand.
        numbers = range(len(self.tenures))
        return max((n for n in numbers if 0 < self.tenures[n].epoch < epoch), default=0)

    def _extend(self, tenure: Tenure, by: Tenure) -> None:
        tenure.events += 1
        tenure.last_ended = max(tenure.last_ended, by.last_ended)
        if by.first_started < tenure.first_started:
            tenure.first_started, tenure.first_published = by.first_started, by.first_published
