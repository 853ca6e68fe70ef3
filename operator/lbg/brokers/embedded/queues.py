"""One exclusive queue as a sans-I/O machine: who is active, what is unacknowledged, what comes next.

Events go in as method calls, deliveries come out of `pump`. No socket, no store, no clock: the engine does I/O and
tells the machine what happened, so that a test drives exactly what the broker runs.

Theory of operation
-------------------
*Positions.* Messages of a queue are numbered 1, 2, 3... as they are admitted, without holes. So `published` is the last
committed position, and a backlog is a subtraction. At every moment the positions split into

    acknowledged | held (delivered, unacknowledged) | ready in memory | ready in the store only
                   all of one link, in tag order      `_ready`, sorted  above `_loaded`, up to `published`

Only the active link holds anything, because whatever ends a link's turn either needs it to hold nothing (quiesced) or
takes back what it holds (released, lost). What is taken back goes to the head of `_ready` in its order; it was
delivered before everything else there, so the order of positions is kept.

*Redelivered* is one comparison: a queue delivers in order of position, so a message was delivered before exactly if its
position is at most the highest one ever delivered. To keep that true across a `kill -9` of the broker, the store must
know the mark before the message leaves: `announced` is the highest position that it allows to be delivered. It runs
ahead, in transactions that happen anyway. After a crash it becomes the mark; messages between the real mark and the
announced one are then called redelivered although they were not, which is the harmless direction.

*Who is active.*

    ability       next active when there is none        turn of the active link ends
    cooperative   longest bound                         it is released or lost
    exclusive     the only one                          it is released or lost (a second bind is refused)
    broker        highest priority, then longest bound  also: a waiting link has a strictly higher priority and the
                                                        active one holds nothing; until then it gets nothing new

A superseded link stays bound and waits; its next turn comes like anybody's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from lbg.brokers.base import HandoverAbility

Entry: TypeAlias = tuple[int, bytes]
"""A position and a packed message."""

KEEP_MESSAGES: Final = 2_000
KEEP_BYTES: Final = 1024 * 1024
"""Bounds of what one queue keeps ready in memory; the rest of a backlog stays in the store."""

ANNOUNCE_AHEAD: Final = 512
"""How far deliveries may run ahead of the announced mark's next write; also the bound of false `redelivered`."""


@dataclass(slots=True, eq=False)
class BoundLink:
    """One link bound to one queue. Tags are dense from 1 and grow with position."""

    name: str
    window: int
    priority: int = 0
    held: dict[int, Entry] = field(default_factory=dict)  # by tag; insertion order is order of position
    last_tag: int = 0


class Push(NamedTuple):
    """Deliveries for one link: entries in order, the first `redelivered` of which had been delivered before."""

    link: BoundLink
    first_tag: int
    entries: list[Entry]
    redelivered: int


class ExclusiveQueue:
    """The machine of one queue. See the module for its theory."""

    def __init__(
        self,
        ability: HandoverAbility,
        *,
        limit: int | None = None,
        published: int = 0,
        acked: int = 0,
        announced: int = 0,
    ) -> None:
        self.ability = ability
        self.limit = limit
        self.published = published  # last committed position
        self.admitted = published  # last position given out, committed or not
        self.acked = acked  # how many, not which
        self.announced = announced  # deliveries up to here are known to the store
        self.mark = announced  # highest position that may have been delivered
        self.active: BoundLink | None = None
        self.links: list[BoundLink] = []  # in order of registration
        self.wants_announcement = False
        self.is_retired = False  # nothing will be delivered any more: the next announcement is the exact mark
        self._ready: deque[Entry] = deque()
        self._ready_bytes = 0
        # Highest position ever taken into memory; above it the store has the rest.
        self._loaded = published if acked == published else 0

    # Figures.

    @property
    def unacknowledged(self) -> int:
        """Return how many messages the active link holds."""
        return len(self.active.held) if self.active else 0

    @property
    def backlog(self) -> int:
        """Return committed messages that are not acknowledged."""
        return self.published - self.acked

    # Publishing.

    @property
    def is_full(self) -> bool:
        """Tell whether the queue is at its limit, counting what is admitted and not yet committed."""
        return self.limit is not None and self.admitted - self.acked >= self.limit

    def admit(self) -> int:
        """Give the next position to a message that is about to be stored; the caller looked at `is_full`."""
        self.admitted += 1
        return self.admitted

    def commit(self, entries: Sequence[Entry]) -> None:
        """Take messages that are durable now, in order of position, following on the last committed one."""
        follows = self._loaded == self.published
        self.published = entries[-1][0]
        # With a backlog in the store only, newer messages must come from there too, behind it.
        if follows:
            self._take(entries)

    def missing(self) -> int | None:
        """Return the position after which to load from the store, or None when nothing needs loading now."""
        if self.active is None or self._loaded >= self.published or len(self._ready) >= KEEP_MESSAGES // 4:
            return None
        if self._ready_bytes >= KEEP_BYTES // 4:
            return None
        return self._loaded

    def load(self, entries: Sequence[Entry], upto: int) -> None:
        """Take what the store has between the last loaded position and `upto`, both known to be committed."""
        self._ready.extend(entries)
        self._ready_bytes += sum(len(data) for _, data in entries)
        self._loaded = upto

    def _take(self, entries: Sequence[Entry]) -> None:
        # What does not fit is not lost: it is committed, and `missing` asks for it when there is room.
        for entry in entries:
            if len(self._ready) >= KEEP_MESSAGES or self._ready_bytes >= KEEP_BYTES:
                break
            self._ready.append(entry)
            self._ready_bytes += len(entry[1])
            self._loaded = entry[0]

    # Links.

    def can_bind(self) -> bool:
        """Tell whether another link may bind now."""
        return self.ability is not HandoverAbility.EXCLUSIVE or not self.links

    def bind(self, link: BoundLink) -> None:
        """Register a link behind those that are bound."""
        self.links.append(link)
        self._settle()

    def unbind(self, link: BoundLink) -> None:
        """End a link, for whatever reason: what it holds goes back to the head in order. Absent links are fine."""
        if link not in self.links:
            return
        self.links.remove(link)
        if link is self.active:
            self.active = None
            given_back = list(link.held.values())
            self._ready.extendleft(reversed(given_back))
            self._ready_bytes += sum(len(data) for _, data in given_back)
            link.held.clear()
        self._settle()

    def ack(self, link: BoundLink, tags: Iterable[int]) -> list[int]:
        """Acknowledge, and return the positions to remove. Tags that the link does not hold have no effect."""
        held = link.held
        positions = [held.pop(tag)[0] for tag in tags if tag in held]
        self.acked += len(positions)
        if not held:
            self._settle()
        return positions

    def _settle(self) -> None:
        if self.active is None:
            if self.links:
                # max() keeps the first of equals, which is the longest bound.
                by_priority = self.ability is HandoverAbility.BROKER
                self.active = max(self.links, key=_priority) if by_priority else self.links[0]
        elif not self.active.held and self._is_superseded():
            self.active = max(self.links, key=_priority)

    def _is_superseded(self) -> bool:
        if self.ability is not HandoverAbility.BROKER or self.active is None:
            return False
        priority = self.active.priority
        return any(link.priority > priority for link in self.links)

    # Delivering.

    def next_announcement(self) -> int:
        """Return the mark to write in the next transaction; `announced` once that has committed."""
        if self.is_retired:
            return self.mark
        if self.active is None:  # announce nothing that nobody may get: it would be called redelivered for nothing
            return self.announced
        ahead = max(ANNOUNCE_AHEAD, 2 * self.active.window)
        return max(self.announced, min(self.admitted, self.mark + ahead))

    def pump(self, max_bytes: int) -> Push | None:
        """Hand out what the active link may get now, or None. Call again until None.

        At least one message and then no more than `max_bytes`. Sets `wants_announcement` where only the mark in the
        store stands in the way.
        """
        link, ready = self.active, self._ready
        if link is None or not ready or self.is_retired or self._is_superseded():
            return None
        room = link.window - len(link.held)
        if room <= 0:
            return None
        if ready[0][0] > self.announced:
            self.wants_announcement = True
            return None
        first_tag = link.last_tag + 1
        entries = self._hand_out(link, room, max_bytes)
        redelivered = sum(1 for position, _ in entries if position <= self.mark)
        self.mark = max(self.mark, entries[-1][0])
        return Push(link, first_tag, entries, redelivered)

    def _hand_out(self, link: BoundLink, room: int, max_bytes: int) -> list[Entry]:
        ready, held, tag = self._ready, link.held, link.last_tag
        entries: list[Entry] = []
        size = 0
        while ready and len(entries) < room and ready[0][0] <= self.announced:
            if entries and size + len(ready[0][1]) > max_bytes:
                break
            entry = ready.popleft()
            size += len(entry[1])
            tag += 1
            held[tag] = entry
            entries.append(entry)
        link.last_tag = tag
        self._ready_bytes -= size
        return entries


def _priority(link: BoundLink) -> int:
    return link.priority
