"""The plan in a world that answers back: whatever happens, the loop converges, and nobody is removed who still serves.

The world applies actions as a substrate does, with seats by compare-and-swap and consumers that start late, claim, take
queues over, hand them over one at a time, and die. The plan sees it only through `Observed`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import hypothesis
from hypothesis import strategies as st

from lbg.core import actions, assignment, plan
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.membership import GroupView, Seat, Standing, Summary
from lbg.core.observed import Basis, Consumer, GroupRecord, Observed, Presence, QueueLook, TopologyLook
from lbg.core.spec.autoscaling import Autoscaling, Mode
from lbg.core.spec.consumers import Consumers, Handler
from lbg.core.spec.group import GroupSpec, LoadBalancedGroup, Metadata, Queues

DRAIN_BUDGET = 30.0  # default of the spec
SECONDS_PER_PASS = 1.0
SETTLING_PASSES = 120
"""Enough for every consumer to come, to hand over each queue in a pass of its own, and to go."""


def group_of(queues: int, low: int, high: int, *, suspend: bool = False) -> LoadBalancedGroup:
    """Build a group whose scale somebody else decides, so that the test does."""
    spec = GroupSpec(
        queues=Queues(count=queues),
        consumers=Consumers(min=low, max=high, replicas=low, handler=Handler(python="a:b")),
        autoscaling=Autoscaling(mode=Mode.EXTERNAL),
        suspend=suspend,
    )
    return LoadBalancedGroup(metadata=Metadata(name="orders"), spec=spec)


@dataclass
class Process:
    """A consumer of the world."""

    name: str
    connects_at: float
    leaving: bool = False
    outdated: bool = False
    holds: set[int] = field(default_factory=set)

    @property
    def holder(self) -> str:
        """Return its identity with the nonce."""
        return f"{self.name}_u_n"


class World:
    """A group on an imaginary substrate."""

    def __init__(self, group: LoadBalancedGroup, consumers: int) -> None:
        self.group = group
        self.now = 0.0
        self.record = GroupRecord("orders")
        self.seats: dict[int, Seat] = {}
        self.present = False
        self.made = 0
        self.processes: list[Process] = []
        self.memory = plan.Memory()
        self.view = GroupView("orders", "", 0, 0, 0)
        self.surplus_at: dict[str, float] = {}
        self.generations: list[int] = []
        for _ in range(consumers):
            self._start()

    @property
    def queues(self) -> int:
        """Return QC."""
        return self.group.spec.queues.count

    def _start(self) -> None:
        self.made += 1
        self.processes.append(Process(f"c{self.made}", self.now + 2))

    def observe(self) -> Observed:
        """Look, in the order that the records ask for."""
        contract = Contract("orders", 256, Algorithm.XXH64, self.queues)
        look = TopologyLook(Presence.OURS, contract) if self.present else TopologyLook(Presence.ABSENT)
        active = {queue: process.holder for process in self.processes for queue in process.holds}
        queues = tuple(QueueLook(queue, 5, 0, 1, active.get(queue), 100) for queue in range(self.queues))
        consumers = tuple(
            Consumer(p.name, f"{p.name}_u", p.connects_at, p.connects_at <= self.now, p.leaving, p.outdated)
            for p in self.processes
        )
        seats = tuple(self.seats[ordinal] for ordinal in sorted(self.seats))
        return Observed(self.record, look, queues if self.present else None, seats, consumers, wall=1e9 + self.now)

    def make(self) -> plan.Plan:
        """Plan without applying."""
        return plan.plan(self.group, self.observe(), self.memory, self.now)

    def reconcile(self) -> plan.Plan:
        """Plan and apply."""
        made = self.make()
        self.memory = made.memory
        self.record = replace(self.record, conditions=made.conditions)
        self.view = actions.view_after(self.view, "spec", made.actions)
        for action in made.actions:
            self._apply(action)
        self._check()
        return made

    def _apply(self, action: actions.Action) -> None:
        match action:
            case actions.DeclareTopology():
                self.present = True
            case actions.SetDesired(replicas=replicas):
                assert self.group.spec.consumers.min <= replicas <= min(self.group.spec.max_consumers, self.queues)
                self.record = replace(self.record, desired=replicas)
            case actions.SetView():
                assert action.effective <= self.queues
                basis = Basis(self.queues, self.group.spec.assignment.policy, action.table_version)
                self.record = replace(
                    self.record,
                    effective=action.effective,
                    generation=action.generation,
                    basis=basis,
                    suspended=action.suspended,
                    adopted_generation=action.spec_generation,
                )
            case actions.CreateSeat(ordinal=ordinal):
                self.seats.setdefault(ordinal, Seat(ordinal, "0"))
            case actions.ClearSeat(ordinal=ordinal, holder=holder):
                assert not any(process.holder == holder for process in self.processes), "a living holder lost its seat"
                self.seats[ordinal] = self.seats[ordinal].cleared()
            case actions.DeleteSeat(ordinal=ordinal):
                assert self.seats[ordinal].is_vacant
                del self.seats[ordinal]
            case actions.Resize():
                self._resize(action)
            case actions.Report():
                pass
            case _:
                raise AssertionError(f"unexpected: {action}")

    def _resize(self, action: actions.Resize) -> None:
        for _ in range(action.add):
            self._start()
        for name in action.remove:
            process = next(p for p in self.processes if p.name == name)
            held_long_enough = self.now - self.surplus_at.get(name, self.now) >= DRAIN_BUDGET
            # A rollout hands over by the offered seat; a smaller group takes the queues away first.
            assert process.outdated or not process.holds or held_long_enough, "removed while it holds queues"
            process.leaving = True

    def _check(self) -> None:
        self.generations.append(self.record.generation)
        for process in self.processes:
            seat = self._seat_of(process)
            is_surplus = self.record.effective <= self.target and (seat is None or seat.ordinal >= self.target)
            if is_surplus and process.holds:
                self.surplus_at.setdefault(process.name, self.now)
            else:
                self.surplus_at.pop(process.name, None)

    @property
    def target(self) -> int:
        """Return how many consumers should run."""
        return 0 if self.group.spec.suspend else self.record.desired or 0

    def _seat_of(self, process: Process) -> Seat | None:
        return next((self.seats[o] for o in sorted(self.seats) if self.seats[o].holder == process.holder), None)

    def live(self) -> None:
        """Let the consumers do one step each: claim, take over, hand over, go."""
        self.now += SECONDS_PER_PASS
        for process in list(self.processes):
            if process.connects_at <= self.now:
                self._seat(process)
                self._hand_over(process)
                self._take_over(process)
                self._report(process)
        self.processes = [p for p in self.processes if not self._is_gone(p)]

    def _is_gone(self, process: Process) -> bool:
        return process.leaving and not process.holds

    def _seat(self, process: Process) -> None:
        seat = self._seat_of(process)
        if process.leaving:
            if seat is not None:
                self.seats[seat.ordinal] = replace(seat, offered=True)
            return
        limit = self.view.desired
        if seat is not None:
            if seat.ordinal < min(self.view.desired, self.view.effective):
                return
            limit = min(limit, seat.ordinal)
        free = [o for o in sorted(self.seats) if o < limit and (self.seats[o].is_vacant or self.seats[o].offered)]
        if free:
            if seat is not None:
                self.seats[seat.ordinal] = seat.cleared()
            mine = self.seats[free[0]]
            self.seats[free[0]] = replace(mine, holder=process.holder, term=mine.term + 1, offered=False)

    def _table(self) -> assignment.Table:
        return assignment.assign(self.queues, self.view.effective, "orders")

    def _hand_over(self, process: Process) -> None:
        """Give up one queue that somebody else should serve and is there for, or that nobody should."""
        seat = self._seat_of(process)
        holders = {seat.ordinal for seat in self.seats.values() if not seat.is_vacant and not seat.offered}
        for queue in sorted(process.holds):
            owner = self._table().owner(queue)
            is_mine = seat is not None and owner == seat.ordinal
            if process.leaving or self.view.suspended or owner is None or (not is_mine and owner in holders):
                process.holds.discard(queue)
                return

    def _take_over(self, process: Process) -> None:
        seat = self._seat_of(process)
        if seat is None or process.leaving or self.view.suspended:
            return
        taken = {queue for other in self.processes for queue in other.holds}
        wanted = self._table().queues_of(seat.ordinal)
        process.holds.update(queue for queue in wanted if queue not in taken)

    def _report(self, process: Process) -> None:
        seat = self._seat_of(process)
        if seat is None:
            return
        summary = Summary(
            connected=True,
            bound={queue: Standing(self.view.generation, seat.term, 0) for queue in process.holds},
            epochs=dict.fromkeys(process.holds, 1),
        )
        generation = max(seat.generation, self.view.generation)
        self.seats[seat.ordinal] = replace(seat, summary=summary, renewals=seat.renewals + 1, generation=generation)


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[str, int]]:
    """Draw what happens, in order: passes, deaths, requests for a scale however absurd, rollouts, time."""
    kinds = st.sampled_from(["pass", "pass", "pass", "die", "scale", "rollout", "wait", "forget", "suspend", "resume"])
    return draw(st.lists(st.tuples(kinds, st.integers(-3, 40)), max_size=25))


def happen(world: World, kind: str, number: int) -> None:
    """Let one thing happen."""
    if kind == "die" and world.processes:
        world.processes.pop(number % len(world.processes))
    elif kind == "scale":
        world.record = replace(world.record, requested=[number, 999, -1][number % 3])
    elif kind == "rollout":
        for process in world.processes:
            process.outdated = True
    elif kind == "wait":
        world.now += 40.0 * max(number, 0)
    elif kind == "forget":  # the operator restarted
        world.memory = plan.Memory()
    elif kind in ("suspend", "resume"):
        spec = world.group.spec.model_copy(update={"suspend": kind == "suspend"})
        world.group = world.group.model_copy(update={"spec": spec})
    world.reconcile()
    world.live()


@hypothesis.given(
    queues=st.integers(1, 12), bounds=st.tuples(st.integers(0, 12), st.integers(1, 12)),
    consumers=st.integers(0, 5), what=happenings(),
)  # fmt: skip
@hypothesis.settings(max_examples=150)
def test_whatever_happens_the_loop_converges_and_then_has_nothing_to_do(
    queues: int, bounds: tuple[int, int], consumers: int, what: list[tuple[str, int]]
) -> None:
    """After the last happening the group is as asked, the plan is empty, and nothing that must not happen did."""
    high = min(max(bounds), queues)
    world = World(group_of(queues, min(*bounds, high), max(high, 1)), consumers)
    for kind, number in what:
        happen(world, kind, number)
    for _ in range(SETTLING_PASSES):
        world.reconcile()
        world.live()
    made = world.make()
    assert made.actions == ()
    assert world.record.effective == len(world.processes) == world.target
    assert sorted(world.seats) == list(range(world.record.desired or 0))
    assert sum(len(process.holds) for process in world.processes) == (queues if world.target else 0)
    assert world.generations == sorted(world.generations)


def test_a_rollout_never_leaves_fewer_ready_consumers_than_wanted() -> None:
    """Outdated consumers go one by one, each after a fresh one is ready, until none is left."""
    world = World(group_of(6, 3, 3), 0)
    for _ in range(30):
        world.reconcile()
        world.live()
    for process in world.processes:
        process.outdated = True
    for _ in range(60):
        world.reconcile()
        ready = [p for p in world.processes if p.connects_at <= world.now and not p.leaving]
        assert len(ready) >= 3
        world.live()
    assert [process.outdated for process in world.processes] == [False] * 3
    assert world.make().actions == ()
