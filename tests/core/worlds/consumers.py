"""A consumer of the world: real seat, handover machines and lanes, with handlers that only take their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbg.core import roles, seating
from lbg.core.lanes import Lanes, Slot
from lbg.core.membership import Membership, Summary
from tests.core.worlds.broker import Session
from tests.core.worlds.members import Member
from tests.core.worlds.workers import Item, Worker

if TYPE_CHECKING:
    from tests.core.worlds.groups import GroupWorld

STALL = 5.0  # a process that slept for longer starts nothing before it has read what the broker has to say
LATE_READ = 0.05


class Consumer(Member):
    """One consumer process."""

    def __init__(self, world: GroupWorld, me: seating.Holder) -> None:
        super().__init__(world.clock, world.store, me, world.store_delay)
        self.world = world
        self.lanes: Lanes[Item] = Lanes(world.lanes)
        self.session: Session | None = None
        self.was_paused = False
        self.stopped_at: float | None = None
        self.rested_at: float | None = None
        self.workers = [Worker(self, queue) for queue in range(len(world.broker.queues))]
        self._said = Summary()
        self._slept_until = 0.0
        self.clock.call(world.network_delay(), self.hear, self.connect)

    def is_at_rest(self) -> bool:
        """Return whether everything was handed over after SIGTERM."""
        return self.rested_at is not None

    # The connection.

    def connect(self) -> None:
        """Open a session."""
        if self.session is None and self.rested_at is None:
            self.session = Session(self.clock, self.world.network_delay)
            for worker in self.workers:
                worker.act(worker.machine.connect(True, self.clock.now))

    def disconnect(self, session: Session, away: float) -> None:
        """Learn that a session is gone; the next one opens after a while."""
        if self.session is session:
            self.session = None
            self.clock.call(away, self.hear, self.connect)
            for worker in self.workers:
                if worker.tenure is not None:
                    worker.lost(worker.tenure)
                worker.act(worker.machine.connect(False, self.clock.now))

    # The seat.

    def summary(self) -> Summary:
        """Return what the seat says."""
        machines = [(worker.queue, worker.machine.reports) for worker in self.workers]
        return Summary(
            connected=self.session is not None,
            bound={queue: reports.bound for queue, reports in machines if reports.bound is not None},
            asks={queue: reports.asks for queue, reports in machines if reports.asks is not None},
            epochs={worker.queue: worker.epoch for worker in self.workers if worker.epoch is not None},
            stalled=tuple(queue for queue, reports in machines if reports.stalled),
        )

    def wake_if_changed(self) -> None:
        """Have the seat say at once what must not be late; end once everything was handed over."""
        said = self.summary()
        if said != self._said:
            self._said = said
            self.wake()
        stopping = self.stopped_at is not None and self.rested_at is None
        if stopping and all(worker.machine.is_at_rest for worker in self.workers):
            self.rested_at = self.clock.now
            self.world.note_rest(self)
            self.leave()

    def seen(self, look: Membership) -> None:
        """Follow a look at the membership."""
        table = self.world.table(look.view)
        for worker, direction in zip(self.workers, roles.directions(look, table, self.name), strict=True):
            worker.act(worker.machine.direct(direction, self.clock.now))

    def stop(self) -> None:
        """SIGTERM."""
        if self.stopped_at is None:
            self.machine.stop()
            self.wake()
            for worker in self.workers:
                worker.act(worker.machine.stop(self.clock.now))
            self.stopped_at = self.clock.now
            self.wake_if_changed()

    def adopt(self, queues: list[int]) -> None:
        """Bind queues that nobody is bound to, as the slow cycle does."""
        away = self.unreadable_since is not None and self.clock.now - self.unreadable_since >= 30.0
        if self.stopped_at is None and self.session is not None and (self.machine.seat is not None or away):
            for queue in queues:
                self.workers[queue].act(self.workers[queue].machine.adopt(self.clock.now))

    # Handlers.

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        super().pause(seconds)
        self.was_paused = True
        if seconds > STALL:
            self._slept_until = self.clock.now + seconds + LATE_READ

    def pump(self) -> None:
        """Start what may start."""
        if self.clock.now < self._slept_until:
            self.clock.call_at(self._slept_until, self.hear, self.pump)
            return
        while (taken := self.lanes.take()) is not None:
            slot, item, _ = taken
            if item.tenure.is_over:
                self.lanes.finish(slot)
                continue
            item.tenure.link.started.add(item.event)
            self.world.note_start(slot.queue, item.event, self.name)
            self.clock.call(self.world.handler_time(), self.hear, self._handled, slot, item)

    def _handled(self, slot: Slot, item: Item) -> None:
        if item.tenure.is_over:
            self._leave(slot)  # the call outlived its link: the event goes to whoever owns the queue now
            return
        self.world.note_handled(slot.queue, item.event, self.name)
        self.workers[slot.queue].acknowledge(item, lambda: self._leave(slot))

    def _leave(self, slot: Slot) -> None:
        self.lanes.finish(slot)
        self.workers[slot.queue].in_hand_changed()
        self.pump()
