"""One queue of one consumer of the world: does what the handover machine says, and tells it what came of it.

The order of steps is that of `lbg_consumer`: first delivery, ledger, handlers; handler, acknowledgement; nothing in
hand, ledger clean, release. What is checked here is the machine, so whatever a consumer decides is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lbg.core import handover
from lbg.core.lanes import Slot
from tests.core.worlds.broker import Event, Link

if TYPE_CHECKING:
    from tests.core.worlds.consumers import Consumer
    from tests.core.worlds.groups import GroupWorld


@dataclass(eq=False)
class Tenure:
    """One link's time with a queue."""

    link: Link
    epoch: int = 0
    is_open: bool = False
    is_over: bool = False
    stored_clean: bool = False
    pending: list[Event] = field(default_factory=list)
    unacked: int = 0
    at_end: list[Callable[[], None]] = field(default_factory=list)  # what waits for an answer, if none comes


class Item(NamedTuple):
    """An event on its way through the lanes."""

    event: Event
    tenure: Tenure


class RecordedHandover(handover.Handover):
    """The machine, with what moved it written down in the world."""

    def __init__(self, world: GroupWorld) -> None:
        super().__init__(world.ability, world.timing)
        self._transitions = world.transitions

    def _move(self, event: handover.Event) -> None:
        self._transitions.add((self.state, event))
        super()._move(event)


class Worker:
    """One queue of one consumer."""

    def __init__(self, consumer: Consumer, queue: int) -> None:
        self.queue = queue
        self.machine = RecordedHandover(consumer.world)
        self.tenure: Tenure | None = None
        self._consumer = consumer
        self._broker = consumer.world.broker
        self._lanes = consumer.lanes
        self._timer = 0

    @property
    def epoch(self) -> int | None:
        """Return the epoch under which handlers may be started here, or None."""
        return self.tenure.epoch if self.tenure is not None and self.tenure.is_open else None

    def act(self, actions: list[handover.Action]) -> None:
        """Do what the machine says, then what follows from its state."""
        for action in actions:
            match action:
                case handover.Bind(priority=priority):
                    self._bind(priority)
                case handover.Activate():
                    assert self.tenure is not None
                    self._ask(self.tenure, self._broker.take_over, self._taken)
                case handover.Drain():
                    self._lanes.pause(self.queue)
                    self.in_hand_changed()
                case handover.Release(clean=clean):
                    assert self.tenure is not None
                    self._release(self.tenure, clean)
        self._set_timer()
        self._guard_idle()
        self._consumer.wake_if_changed()

    def in_hand_changed(self) -> None:
        """Learn that an event of this queue left the lanes."""
        if self.machine.state is handover.State.DRAINING and not self._lanes.in_hand(self.queue):
            self.act(self.machine.emptied())

    # Binding.

    def _bind(self, priority: int) -> None:
        session = self._consumer.session
        if session is None:
            self._consumer.clock.call(0.0, self._consumer.hear, self._unbound)
            return
        link = Link(self.queue, priority, session)
        tenure = self.tenure = Tenure(link)
        link.on_deliveries = self._heard(self._delivered, tenure)
        link.on_lost = self._heard(self.lost, tenure)
        self._ask(tenure, self._broker.bind, self._bound)

    def _unbound(self) -> None:
        if self.tenure is None and self.machine.state is handover.State.BINDING:
            self.act(self.machine.lost(self._consumer.clock.now))

    def _bound(self, tenure: Tenure, was_accepted: bool) -> None:
        if tenure.is_over:
            return
        if was_accepted:
            self.act(self.machine.bound(self._consumer.clock.now))
            self._first_delivery(tenure)
        else:
            self._end(tenure)
            self.act(self.machine.refused(self._consumer.clock.now))

    # Being active.

    def _delivered(self, tenure: Tenure, events: list[Event]) -> None:
        if tenure.is_over or self.machine.state is handover.State.RELEASING:
            return
        tenure.unacked += len(events)
        if tenure.is_open and not tenure.stored_clean:
            self._admit(tenure, events)
            return
        tenure.pending += events
        if tenure.is_open:
            tenure.is_open = False  # the stored ledger says clean: unclean again before a handler starts
            self._ask(tenure, self._broker.save, self._reopened, tenure.epoch, False)
        self._first_delivery(tenure)

    def _first_delivery(self, tenure: Tenure) -> None:
        if tenure.pending and not tenure.is_over and self.machine.state is handover.State.WAITING:
            self.act(self.machine.delivered())

    def _taken(self, tenure: Tenure, epoch: int, was_clean: bool) -> None:
        if tenure.is_over:
            return
        if not epoch:
            self._give_up(tenure)
            return
        tenure.epoch = epoch
        self._consumer.world.note_takeover(self.queue, epoch, was_clean, self._consumer.name)
        self._open(tenure)
        self.act(self.machine.activated(self._consumer.clock.now))

    def _reopened(self, tenure: Tenure, was_saved: bool) -> None:
        if tenure.is_over:
            return
        if not was_saved:
            self._give_up(tenure)
            return
        tenure.stored_clean = False
        self._open(tenure)
        self.act([])

    def _open(self, tenure: Tenure) -> None:
        tenure.is_open = True
        pending, tenure.pending = tenure.pending, []
        self._admit(tenure, pending)

    def _admit(self, tenure: Tenure, events: list[Event]) -> None:
        for event in events:
            self._lanes.offer(Slot(self.queue, event.shard), Item(event, tenure))
        self._consumer.pump()

    def acknowledge(self, item: Item, leave: Callable[[], None]) -> None:
        """Acknowledge; where it may leave the link empty and the broker may switch, only after the ledger is clean."""
        tenure = item.tenure

        def send() -> None:
            if not tenure.is_over:
                tenure.unacked -= 1
                tenure.link.session.up(self._broker.acknowledge, tenure.link, item.event)
            leave()

        if tenure.unacked == 1 and self.machine.guards_last_ack:
            self._save_clean(tenure, send)
        else:
            send()

    def _guard_idle(self) -> None:
        tenure = self.tenure
        if tenure is None or not tenure.is_open or tenure.unacked or tenure.stored_clean:
            return
        if self.machine.state is handover.State.ACTIVE and self.machine.guards_last_ack:
            self._save_clean(tenure, lambda: None)

    def _save_clean(self, tenure: Tenure, then: Callable[[], None]) -> None:
        """Write the ledger clean, and go on whatever came of it, also when no answer comes any more."""
        tenure.stored_clean = True
        tenure.at_end.append(then)

        def answered(_tenure: Tenure, _was_saved: bool) -> None:
            if then in tenure.at_end:
                tenure.at_end.remove(then)
                then()

        self._ask(tenure, self._broker.save, answered, tenure.epoch, True)

    # Letting go.

    def _release(self, tenure: Tenure, clean: bool) -> None:
        if clean:
            self._save_clean(tenure, lambda: self._let_go(tenure, is_planned=True))
        else:
            self._let_go(tenure, is_planned=not tenure.link.started)

    def _let_go(self, tenure: Tenure, *, is_planned: bool) -> None:
        if tenure.is_over:
            return
        self._close(tenure)

        def released() -> None:
            if self.tenure is tenure:
                self._end(tenure)
                self.act(self.machine.released(self._consumer.clock.now))
                self._consumer.pump()

        self._end_link(tenure, is_planned, released)

    def _give_up(self, tenure: Tenure) -> None:
        """Recycle a link whose queue went to somebody else while it was bound."""
        if tenure.is_over:
            return
        self._close(tenure)

        def given_up() -> None:
            if self.tenure is tenure:
                self._end(tenure)
                self.act(self.machine.lost(self._consumer.clock.now))

        self._end_link(tenure, False, given_up)

    def _end_link(self, tenure: Tenure, is_planned: bool, then: Callable[[], None]) -> None:
        tenure.at_end.append(then)  # a connection that is lost meanwhile ends it as well
        tenure.link.session.up(self._broker.release, tenure.link, is_planned, self._heard(self._at_end, tenure))

    def lost(self, tenure: Tenure) -> None:
        """Learn that the link is gone."""
        if tenure.is_over:
            self._at_end(tenure)
            return
        self._end(tenure)
        self.act(self.machine.lost(self._consumer.clock.now))

    def _end(self, tenure: Tenure) -> None:
        self._close(tenure)
        if self.tenure is tenure:
            self.tenure = None
            self._lanes.drop(self.queue)

    def _close(self, tenure: Tenure) -> None:
        tenure.is_over = True
        self._at_end(tenure)

    def _at_end(self, tenure: Tenure) -> None:
        waiting, tenure.at_end = tenure.at_end, []
        for then in waiting:
            then()

    # Pieces.

    def _heard(self, action: Callable[..., None], *fixed: Any) -> Callable[..., None]:
        """Return what the broker calls so that this process does something, if it still can."""
        return lambda *values: self._consumer.hear(action, *fixed, *values)

    def _ask(
        self, tenure: Tenure, request: Callable[..., None], answer: Callable[..., None], *values: Any
    ) -> None:  # fmt: skip
        tenure.link.session.up(request, tenure.link, *values, self._heard(answer, tenure))

    def _set_timer(self) -> None:
        self._timer += 1
        if self.machine.wake_at is not None:
            self._consumer.clock.call_at(self.machine.wake_at, self._consumer.hear, self._tick, self._timer)

    def _tick(self, timer: int) -> None:
        if timer == self._timer:
            self.act(self.machine.tick(self._consumer.clock.now))
