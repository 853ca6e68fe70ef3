"""A world of a whole group: consumers, broker, seats, operator and load, in virtual time; laws checked on the way.

The laws that hold in every world, whatever fails: per shard no handler starts before everything earlier was handled;
a planned release leaves nothing behind that was started; claims of seats as in `worlds.seats`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from lbg.core import assignment, handover, seating
from lbg.core.handover import Ability, State
from lbg.core.membership import GroupView
from tests.core.worlds.broker import Event, ModelBroker, Session
from tests.core.worlds.consumers import Consumer
from tests.core.worlds.seats import SeatWorld

SHARDS_PER_QUEUE = 2
HEARTBEAT = 10.0  # after which the broker takes a silent connection as gone
ORPHAN_CYCLE = 60.0
DEPLOYMENT_EVERY = 0.3


class Takeover(NamedTuple):
    """One activation: the ledger's epoch was raised."""

    at: float
    queue: int
    epoch: int
    was_clean: bool
    who: str


@dataclass(frozen=True)
class Pace:
    """How fast things are in a world, in seconds; each value is drawn anew between a tenth of it and itself."""

    network: float = 0.01  # one way, consumer to broker
    store: float = 0.02  # one way, consumer to store
    notice: float = 0.2  # from a change in the store to the consumer that looks
    handler: float = 0.05
    publish: float = 0.2  # between two events of a queue


class GroupWorld(SeatWorld):
    """One group. Steps are its methods; `run` lets time pass."""

    def __init__(
        self,
        seed: int,
        ability: Ability,
        *,
        queues: int = 3,
        standbys: assignment.Standbys = 1,
        pace: Pace | None = None,
        timing: handover.Timing | None = None,
        operator_clears: bool = True,
        lanes: int = 3,
    ) -> None:
        super().__init__(seed, operator_clears=operator_clears)
        self.ability = ability
        self.pace = pace or Pace()
        self.timing = timing or handover.Timing()
        self.lanes = lanes
        self.broker = ModelBroker(ability, queues)
        self.takeovers: list[Takeover] = []
        self.duplicates: list[tuple[int, Event]] = []
        self.published: Counter[int] = Counter()  # by shard
        self.done: defaultdict[int, int] = defaultdict(lambda: -1)  # by shard: everything up to this was handled
        self.is_loading = True
        self.owner_changes = [0] * queues  # how often another consumer became the one that should serve
        self.disturbances = 0  # what else may move a queue
        self.transitions: set[tuple[State, handover.Event]] = set()
        self._owners: list[str | None] = [None] * queues
        self._standbys = standbys
        self._tables: dict[int, assignment.Table] = {}
        self._rolling = 0
        self._is_deploying = True
        self._restarting: list[str] = []  # pods whose container is down for a moment
        self.store.on_change += [self._notify, self._note_owners]
        self.clock.call(0.0, self._deploy)
        for queue in range(queues):
            self.clock.call(0.0, self._publish, queue)

    # Pace.

    def network_delay(self) -> float:
        """Return how long a message takes."""
        return self._draw(self.pace.network)

    def store_delay(self) -> float:
        """Return how long the store takes to hear or to answer."""
        return self._draw(self.pace.store)

    def handler_time(self) -> float:
        """Return how long a handler takes."""
        return self._draw(self.pace.handler)

    def _draw(self, most: float) -> float:
        return self._random.uniform(most / 10, most)

    def _process(self, me: seating.Holder) -> Consumer:
        consumer = Consumer(self, me)
        self.clock.call(ORPHAN_CYCLE * self._random.uniform(0.9, 1.1), self._look_for_orphans, consumer)
        return consumer

    def _look_for_orphans(self, consumer: Consumer) -> None:
        if not consumer.is_dead:
            orphans = [queue for queue, state in enumerate(self.broker.queues) if not state.links]
            self.clock.call(self.network_delay(), consumer.hear, consumer.adopt, orphans)
            self.clock.call(ORPHAN_CYCLE * self._random.uniform(0.9, 1.1), self._look_for_orphans, consumer)

    def _notify(self) -> None:
        for member in self.members:
            if not member.is_dead:
                self.clock.call(self._draw(self.pace.notice), member.hear, member.wake)

    def _note_owners(self) -> None:
        table = self.table(self.store.view)
        for queue, before in enumerate(self._owners):
            ordinal = table.owner(queue)
            holder = self.store.seats[ordinal].holder if ordinal is not None else None
            if holder not in (None, before):
                self.owner_changes[queue] += before is not None
                self._owners[queue] = holder

    # What happens.

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.run(self.clock.now + seconds)

    def crash(self, consumer: Consumer, *, silent: bool = False, same_pod: bool = False) -> None:
        """SIGKILL. A silent one leaves its connection open until the broker misses it; a pod may restart in place."""
        self.disturbances += 1
        consumer.kill()
        if consumer.session is not None:
            self.clock.call(HEARTBEAT if silent else self.network_delay(), self.broker.close, consumer.session)
        if same_pod:
            self._restarting.append(consumer.machine.me.pod)
            self.clock.call(1.0, self._restart)

    def _restart(self) -> None:
        self.start(self._restarting.pop(0))

    def freeze(self, consumer: Consumer, seconds: float) -> None:
        """SIGSTOP for a while; the broker ends the connection if it takes long."""
        self.disturbances += 1
        consumer.pause(seconds)
        if consumer.session is not None and seconds > HEARTBEAT:
            self.clock.call(HEARTBEAT, self._end_session, consumer, consumer.session)

    def lose_link(self, consumer: Consumer, queue: int) -> None:
        """End one link from the broker's side."""
        self.disturbances += 1
        for link in list(self.broker.queues[queue].links):
            if link.session is consumer.session:
                self.broker.lose(link)

    def lose_session(self, consumer: Consumer, seconds: float, *, silent: bool = False) -> None:
        """Cut a connection; a new one is possible after a while. The broker may notice much later."""
        session = consumer.session
        if session is None:
            return
        self.disturbances += 1
        session.is_open = False
        self.clock.call(HEARTBEAT if silent else self.network_delay(), self.broker.close, session)
        self.clock.call(self.network_delay(), consumer.hear, consumer.disconnect, session, seconds)

    def suspend(self, seconds: float) -> None:
        """Let nobody serve for a while. Until each consumer has heard of it, it may be activated in another's place."""
        self.disturbances += 1 + len(self.serving())
        self.store.show(suspended=True)
        self.run(seconds)
        self.store.show(suspended=False)

    def lose_seat(self, ordinal: int) -> None:
        """Take a seat from whoever holds it, by mistake."""
        if not self.store.is_away:
            self.disturbances += 1
            self.store.clear(ordinal)

    def stop_deploying(self) -> None:
        """Let no pod come or go by itself any more."""
        self._is_deploying = False

    def roll_out(self) -> None:
        """Replace every pod: a new one comes up, then an old one is asked to end."""
        self._rolling += 1
        self._replace(self.serving())

    def _replace(self, old: list[Consumer]) -> None:
        while old and old[0].is_dead:
            old = old[1:]
        if not old:
            self._rolling -= 1
            return
        self.start()
        self.clock.call(1.0, old[0].hear, old[0].stop)
        self.clock.call(2.0, self._replace, old[1:])

    def _end_session(self, consumer: Consumer, session: Session) -> None:
        self.broker.close(session)
        session.down.send(consumer.hear, consumer.disconnect, session, self.pace.network)

    # Who is there.

    def serving(self) -> list[Consumer]:
        """Return the consumers that run and are not asked to end."""
        return [c for c in self.members if isinstance(c, Consumer) and not c.is_dead and c.stopped_at is None]

    def _is_gone(self, holder: str) -> bool:
        return super()._is_gone(holder) and holder.rpartition("_")[0] not in self._restarting

    def active(self, queue: int) -> Consumer | None:
        """Return the consumer that the broker delivers a queue to."""
        link = self.broker.queues[queue].active
        sessions = {consumer.session: consumer for consumer in self.serving()}
        return sessions.get(link.session) if link is not None else None

    def _deploy(self) -> None:
        """Play the Deployment: as many pods as desired; which of too many goes is chance."""
        serving = self.serving()
        wanted = self.store.view.desired
        if self._is_deploying and not self._rolling:
            for _ in range(wanted - len(serving) - len(self._restarting)):
                self.start()
            # Effective CC falls before pods go.
            if len(serving) > wanted >= self.store.view.effective:
                victim = self._random.choice(serving)
                victim.hear(victim.stop)
        self.clock.call(DEPLOYMENT_EVERY, self._deploy)

    def table(self, view: GroupView) -> assignment.Table:
        """Return the assignment of a view."""
        if view.effective not in self._tables:
            self._tables[view.effective] = assignment.assign(
                len(self.broker.queues), view.effective, view.group, standbys=self._standbys
            )
        return self._tables[view.effective]

    # Load, and what became of it.

    def _publish(self, queue: int) -> None:
        if self.is_loading:
            shard = queue + len(self.broker.queues) * self._random.randrange(SHARDS_PER_QUEUE)
            self.broker.queues[queue].publish(Event(shard, self.published[shard]))
            self.published[shard] += 1
        self.clock.call(self._draw(self.pace.publish), self._publish, queue)

    def note_start(self, queue: int, event: Event, who: str) -> None:
        """Check that nothing earlier of the shard is still to be handled."""
        assert event.number <= self.done[event.shard] + 1, f"{who} starts {event} of queue {queue} too early"

    def note_handled(self, queue: int, event: Event, who: str) -> None:
        """Count what was handled, and what was handled again."""
        if event.number <= self.done[event.shard]:
            self.duplicates.append((queue, event))
        self.done[event.shard] = max(self.done[event.shard], event.number)

    def note_rest(self, consumer: Consumer) -> None:
        """Check that a consumer that was asked to end let go of everything in time."""
        assert consumer.stopped_at is not None
        assert consumer.rested_at is not None
        if not consumer.was_paused and not self.timing.force:
            messages = 12 * self.pace.network  # bind, activate, write the ledger and release, there and back
            limit = self.timing.offer_limit + self.pace.handler + messages
            assert consumer.rested_at - consumer.stopped_at <= limit

    def note_takeover(self, queue: int, epoch: int, was_clean: bool, who: str) -> None:
        """Keep who took over which queue."""
        self.takeovers.append(Takeover(self.clock.now, queue, epoch, was_clean, who))

    # Being settled.

    def unsettled(self) -> list[str]:
        """Return what is not yet as the table says: seats, actives, standbys."""
        view = self.store.view
        if self.store.is_away or view.effective != view.desired or self._rolling:
            return [f"effective {view.effective}, desired {view.desired}, {self._rolling} rollouts"]
        running = [consumer for consumer in self.members if not consumer.is_dead]
        if len(running) != view.desired:
            return [f"{len(running)} processes, desired {view.desired}"]
        by_name = {consumer.name: consumer for consumer in self.serving()}
        seats = [self.store.seats[ordinal].holder for ordinal in range(view.effective)]
        if any(holder not in by_name for holder in seats):
            return [f"seats {seats}"]
        table = self.table(view)
        found = []
        for number, queue in enumerate(self.broker.queues):
            owner = table.owner(number)
            standbys = () if self.ability is Ability.EXCLUSIVE else table.standbys(number)
            want = [str(seats[ordinal]) for ordinal in ((owner,) if owner is not None else ()) + standbys]
            sessions = {by_name[name].session: name for name in by_name}
            bound = [sessions.get(link.session, "somebody gone") for link in queue.links]
            active = sessions.get(queue.active.session, "somebody gone") if queue.active is not None else None
            if active != (want[0] if want else None) or sorted(bound) != sorted(want):
                found.append(f"queue {number}: active {active}, bound {bound}, wanted {want}")
            elif want and by_name[want[0]].workers[number].machine.state is not State.ACTIVE:
                found.append(f"queue {number}: {by_name[want[0]].workers[number].machine.state}")
        return found

    def settle_group(self, seconds: float) -> None:
        """Let time pass until everything is as the table says; fail if it takes longer."""
        end = self.clock.now + seconds
        while self.unsettled():
            assert self.clock.now < end, (self.clock.now, self.unsettled())
            self.run(0.1)

    def drain(self) -> None:
        """Stop the load and let time pass until every event was handled and acknowledged."""
        self.is_loading = False
        end = self.clock.now + 20.0 + self._backlog() * self.pace.handler
        while self._backlog():
            assert self.clock.now < end, "something is never handled"
            self.run(0.1)
        assert all(self.done[shard] == count - 1 for shard, count in self.published.items()), "an event was lost"
        self.is_loading = True

    def _backlog(self) -> int:
        return sum(len(queue.ready) + sum(len(link.held) for link in queue.links) for queue in self.broker.queues)

    def check_moves(self) -> None:
        """Check that no queue moved more often than somebody else should serve it, or something failed: twice each."""
        for queue, (epoch, changes) in enumerate(zip(self.epochs(), self.owner_changes, strict=True)):
            assert epoch <= 1 + 2 * (changes + self.disturbances), f"queue {queue} moved {epoch - 1} times"

    def epochs(self) -> list[int]:
        """Return how often each queue was taken over."""
        return [queue.ledger.epoch for queue in self.broker.queues]
