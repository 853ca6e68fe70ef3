"""A model broker: exclusive queues in each of the three handover abilities, written from the contract alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lbg.core.handover import Ability
from tests.core.worlds.clock import Clock, Pipe

WINDOW = 5


class Event(NamedTuple):
    """One message: its shard, and its number there."""

    shard: int
    number: int


def _unheard(*_: object) -> None:
    """Stand in until the owner of a link listens."""


@dataclass(eq=False)
class Link:
    """One consumer bound to one queue. Its owner hears of deliveries and of its end."""

    queue: int
    priority: int
    session: Session
    on_deliveries: Callable[[list[Event]], None] = _unheard
    on_lost: Callable[[], None] = _unheard
    held: list[Event] = field(default_factory=list)  # delivered and not acknowledged, in order
    started: set[Event] = field(default_factory=set)  # whose handler was called
    is_bound: bool = False


@dataclass(frozen=True)
class StoredLedger:
    """What survives of a ledger: the epoch that wrote it, and whether that was released."""

    epoch: int = 0
    clean: bool = True


@dataclass(eq=False)
class ModelQueue:
    """One queue. Delivers to one link at a time, in order."""

    ability: Ability
    ready: deque[Event] = field(default_factory=deque)
    links: list[Link] = field(default_factory=list)  # in order of registration
    active: Link | None = None
    ledger: StoredLedger = StoredLedger()

    def publish(self, event: Event) -> None:
        """Take a message."""
        self.ready.append(event)
        self._deliver()

    def can_bind(self) -> bool:
        """Return whether another link is let in."""
        return self.ability is not Ability.EXCLUSIVE or not self.links

    def bind(self, link: Link) -> None:
        """Register a link behind the others."""
        link.is_bound = True
        self.links.append(link)
        self._choose()

    def unbind(self, link: Link) -> None:
        """End a link: what it holds goes back to the head in order."""
        if not link.is_bound:
            return
        link.is_bound = False
        self.links.remove(link)
        self.ready.extendleft(reversed(link.held))
        link.held.clear()
        if link is self.active:
            self.active = None
        self._choose()

    def acknowledge(self, link: Link, event: Event) -> None:
        """Forget an event; of a link that does not hold it, it has no effect."""
        if event in link.held:
            link.held.remove(event)
            self._choose()

    def write_ledger(self, link: Link, epoch: int, clean: bool) -> bool:
        """Write the ledger of an epoch; False if ownership was lost."""
        if link is not self.active or epoch < self.ledger.epoch:
            return False
        self.ledger = StoredLedger(epoch, clean)
        return True

    def _choose(self) -> None:
        """Decide who is active, then deliver."""
        if self.active is None and self.links:
            by_priority = self.ability is Ability.BROKER
            self.active = max(self.links, key=lambda link: link.priority) if by_priority else self.links[0]
        elif self.active is not None and not self.active.held:
            self.active = self._rival(self.active) or self.active
        self._deliver()

    def _rival(self, active: Link) -> Link | None:
        """Return the link that the queue waits to switch to, while it gives the active one nothing new."""
        if self.ability is not Ability.BROKER:
            return None
        first = max(self.links, key=lambda link: link.priority)
        return first if first.priority > active.priority else None

    def _deliver(self) -> None:
        link = self.active
        if link is None or self._rival(link) is not None:
            return
        events = []
        while self.ready and len(link.held) < WINDOW:
            events.append(self.ready.popleft())
            link.held.append(events[-1])
        if events:
            link.session.down.send(link.on_deliveries, events)


class Session:
    """One connection of one process: two directions, each in order, until it is cut."""

    def __init__(self, clock: Clock, delay: Callable[[], float]) -> None:
        self.links: list[Link] = []
        self.down = Pipe(clock, delay)
        self.is_open = True
        self._up = Pipe(clock, delay)

    def up(self, action: Callable[..., object], *arguments: Any) -> None:
        """Ask the broker for something; once the connection is cut, nothing arrives."""
        self._up.send(self._arrive, action, arguments)

    def _arrive(self, action: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        if self.is_open:
            action(*arguments)


class ModelBroker:
    """All queues of the group, and what a session can ask for; answers travel down the session of the link."""

    def __init__(self, ability: Ability, queues: int) -> None:
        self.queues = [ModelQueue(ability) for _ in range(queues)]

    def bind(self, link: Link, answer: Callable[[bool], None]) -> None:
        """Bind, and say whether it was accepted before anything is delivered."""
        queue = self.queues[link.queue]
        accepted = queue.can_bind()
        link.session.down.send(answer, accepted)
        if accepted:
            link.session.links.append(link)
            queue.bind(link)

    def release(self, link: Link, is_planned: bool, answer: Callable[[], None]) -> None:
        """End a link as asked."""
        if is_planned and link.is_bound:
            assert not link.started & set(link.held), "an active link is let go only empty-handed"
        self.queues[link.queue].unbind(link)
        link.session.down.send(answer)

    def take_over(self, link: Link, answer: Callable[[int, bool], None]) -> None:
        """Read the ledger and raise its epoch, if the link is still active; else answer with epoch 0."""
        queue = self.queues[link.queue]
        before = queue.ledger
        taken = queue.write_ledger(link, before.epoch + 1, clean=False)
        link.session.down.send(answer, before.epoch + 1 if taken else 0, before.clean)

    def save(self, link: Link, epoch: int, clean: bool, answer: Callable[[bool], None]) -> None:
        """Write the ledger, if the link is still active."""
        link.session.down.send(answer, self.queues[link.queue].write_ledger(link, epoch, clean))

    def acknowledge(self, link: Link, event: Event) -> None:
        """Take an acknowledgement."""
        self.queues[link.queue].acknowledge(link, event)

    def lose(self, link: Link) -> None:
        """End one link without having been asked to, and say so."""
        if link.is_bound:
            self.queues[link.queue].unbind(link)
            link.session.down.send(link.on_lost)

    def close(self, session: Session) -> None:
        """Take a connection as gone: the process ended, or was silent for too long."""
        session.is_open = False
        for link in session.links:
            self.queues[link.queue].unbind(link)
