"""Scaling over traces: a model of a group is driven by `decide`, and what it does over minutes and hours is judged.

The model serves queues as consumers do (shares its capacity over its queues, a key is served serially), starts
consumers with a delay, and reports as they report. Time is a variable.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lbg.core import assignment, behavior, scaling
from lbg.core.conditions import Finding, Status, Type
from lbg.core.loads import ConsumerLoad, QueueLoad, Snapshot
from lbg.core.spec.autoscaling import Behavior, Mode, PolicyType, ScaleDown, ScaleUp, StepPolicy

CAPACITY = 100.0
HOUR = 3600.0


def policy(
    *, queues: int = 12, drain: float = 60, low: int = 1, high: int = 12, behave: Behavior | None = None
) -> scaling.Policy:
    """Build a policy with the defaults of the spec."""
    rules = behave or Behavior()
    rule = behavior.Rule(rules.scale_up, rules.scale_down)
    return scaling.Policy("g", queues, assignment.Policy.BALANCED, Mode.OPERATOR, low, high, drain, 70, rule)


def quick(window: int = 5) -> Behavior:
    """Build the behavior of a demonstration: a short window down, no limit worth mentioning up."""
    down = ScaleDown(
        stabilization_window_seconds=window,
        policies=(StepPolicy(type=PolicyType.PODS, value=1, period_seconds=2),),
    )
    return Behavior(scale_up=ScaleUp(), scale_down=down)


@dataclass
class Group:
    """The model. `arrive` gives events per second of each queue; `serial` caps what a queue can be served."""

    policy: scaling.Policy
    arrive: Callable[[float], list[float]]
    desired: int = 1
    start_seconds: float = 2.0
    tick: float = 0.25
    report_seconds: float = 1.0
    total_capacity: float = float("inf")  # of what the handlers share
    serial: dict[int, float] = field(default_factory=dict)
    unknown: Callable[[float], bool] = lambda now: False
    counts: bool = True  # the broker counts what is published
    now: float = 0.0
    effective: int = 1
    memory: scaling.Memory = field(default_factory=scaling.Memory)
    changes: list[tuple[float, int]] = field(default_factory=list)
    decisions: list[scaling.Decision] = field(default_factory=list)
    found: dict[Type, Finding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.policy.queues
        self.backlog = [0.0] * count
        self.published = [0.0] * count
        self.started: list[float] = [-1e9] * self.desired
        self.effective = self.desired
        self.work: dict[int, list[float]] = {}
        self.reports: dict[int, tuple[float, float]] = {}
        self.reported_at = 0.0

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self.now < until:
            self.now += self.tick
            self._serve()
            self._decide()

    def _serve(self) -> None:
        for queue, rate in enumerate(self.arrive(self.now)):
            self.backlog[queue] += rate * self.tick
            self.published[queue] += rate * self.tick
        self.effective = min(self.desired, sum(at <= self.now for at in self.started))
        if not self.effective:
            return
        each = min(CAPACITY, self.total_capacity / self.effective)
        table = assignment.assign(self.policy.queues, self.effective, "g").owners
        for ordinal in range(self.effective):
            own = [queue for queue, owner in enumerate(table) if owner == ordinal]
            done = self._serve_one(own, each * self.tick)
            self.work.setdefault(ordinal, []).append(done)
            self.reports.setdefault(ordinal, (0.0, 0.0))
            if self.now - self.reported_at >= self.report_seconds:
                recent = self.work.pop(ordinal)
                rate = sum(recent) / len(recent) / self.tick
                # Waiting for what all share is time in a handler as well.
                self.reports[ordinal] = (rate, rate / each)
        if self.now - self.reported_at >= self.report_seconds:
            self.reported_at = self.now

    def _serve_one(self, own: list[int], budget: float) -> float:
        done = 0.0
        limits = {queue: min(self.backlog[queue], self.serial.get(queue, 1e9) * self.tick) for queue in own}
        while budget > 1e-9 and any(limit > 1e-9 for limit in limits.values()):
            share = budget / sum(limit > 1e-9 for limit in limits.values())
            for queue in [q for q, limit in limits.items() if limit > 1e-9]:
                part = min(share, limits[queue])
                limits[queue] -= part
                self.backlog[queue] -= part
                budget -= part
                done += part
        return done

    def _decide(self) -> None:
        seen = self.look()
        decision = scaling.decide(seen, self.policy, self.memory, self.now)
        self.memory = decision.memory
        self.decisions.append(decision)
        self.found.update({finding.type: finding for finding in decision.findings})
        if decision.desired != self.desired:
            self.changes.append((self.now, decision.desired))
            added = decision.desired - self.desired
            starts = [self.now + self.start_seconds] * added
            self.started = (self.started + starts)[: decision.desired]
            self.desired = decision.desired

    def look(self) -> Snapshot:
        """Look at the group as `observe` would."""
        if self.unknown(self.now):
            return Snapshot(self.desired, self.effective, None)
        queues = tuple(
            QueueLoad(queue, int(self.backlog[queue]), int(self.published[queue]) if self.counts else None)
            for queue in range(self.policy.queues)
        )
        consumers = tuple(
            ConsumerLoad(ordinal, f"c{ordinal}_u_n", *self.reports.get(ordinal, (0.0, 0.0)))
            for ordinal in range(self.effective)
        )
        return Snapshot(self.desired, self.effective, queues, consumers)

    def sizes(self, since: float = 0.0) -> list[int]:
        """Return the sizes changed to after a moment."""
        return [size for at, size in self.changes if at > since]


def even(rate: Callable[[float], float], queues: int = 12) -> Callable[[float], list[float]]:
    """Spread a rate over all queues."""
    return lambda now: [rate(now) / queues] * queues


def clustered(rules: scaling.Policy, load: Callable[[float], list[float]], **more: Any) -> Group:
    """Build a group at the pace of a cluster: pods start slowly, seats renew every ten seconds, a look every five."""
    return Group(rules, load, tick=5.0, start_seconds=20.0, report_seconds=10.0, **more)


def is_true(group: Group, kind: Type) -> bool:
    """Return whether the last finding of a type is True."""
    return group.found[kind].status is Status.TRUE


def test_a_demonstration_curve_takes_one_consumer_to_four_and_back() -> None:
    """A ramp to 3.5 times a consumer within a minute reaches 4 before its top, and 1 again within 15 s of its end."""
    load = even(lambda now: 30 + 320 * min(1.0, max(0.0, (now - 10) / 60)) if now < 90 else 30)
    group = Group(policy(high=4, drain=4, behave=quick()), load)
    group.run(70)
    assert group.sizes() == [2, 3, 4]
    assert sum(group.backlog) <= 4 * CAPACITY * 4
    group.run(20 + 15)
    assert group.sizes(since=90) == [3, 2, 1]


@pytest.mark.parametrize("counts", [True, False], ids=["broker counts", "consumers report"])
def test_a_black_friday_is_served_and_then_paid_no_longer(counts: bool) -> None:
    """Fourteen times the load at once: the backlog is gone within minutes, and the group small again afterwards."""
    load = even(lambda now: 700 if 600 < now < 2400 else 50)
    group = clustered(policy(), load, counts=counts)
    group.run(600)
    assert group.sizes() == []
    group.run(300)
    assert group.desired >= 9
    assert sum(group.backlog) < 60 * CAPACITY
    group.run(3600)
    assert group.desired == 1
    assert max(group.sizes(since=2400)) <= group.policy.high
    steps = itertools.pairwise([12, *group.sizes(since=2400)])
    assert all(before - after == 1 for before, after in steps)


@pytest.mark.parametrize("mean", [60, 100, 165, 300, 420])
def test_a_noisy_steady_load_changes_the_scale_at_most_once_an_hour(mean: int) -> None:
    """Gusts of five seconds with a coefficient of variation of 0.5: after two hours the scale is as good as still."""
    seeded = random.Random(mean)
    gusts = [seeded.gammavariate(4, mean / 4) for _ in range(10 * 720 + 2)]
    group = clustered(policy(), even(lambda now: gusts[int(now // 5)]))
    group.run(10 * HOUR)
    settled = [at for at, _ in group.changes if at > 2 * HOUR]
    assert len(settled) <= 8
    assert sum(group.backlog) < 60 * group.desired * CAPACITY


def test_a_sawtooth_is_followed_up_and_down_without_trembling() -> None:
    """Between two drops the scale only rises, and after a drop it only falls until the load needs more again."""
    group = clustered(policy(), even(lambda now: 20 + 600 * (now % 1800) / 1800))
    group.run(4 * 1800)
    turns = [b > a for a, b in itertools.pairwise([1, *group.sizes()])]
    reversals = sum(before != after for before, after in itertools.pairwise(turns))
    assert reversals <= 7
    assert max(group.sizes()) == 12


@pytest.mark.parametrize(("drain", "behave"), [(60.0, None), (4.0, quick())], ids=["default pace", "quick pace"])
def test_one_hot_key_is_named_and_adds_no_consumer(drain: float, behave: Behavior | None) -> None:
    """A key slower than its events grows a backlog that no consumer can split: HotQueue, and the scale stays."""
    load = [3.0] * 12
    hot = [3.0] * 3 + [60.0] + [3.0] * 8
    group = Group(policy(drain=drain, behave=behave), lambda now: hot if now > 60 else load, serial={3: 40.0})
    group.run(900)
    assert group.sizes() == []
    assert is_true(group, Type.HOT_QUEUE)
    assert "queue 3 has 65 %" in group.found[Type.HOT_QUEUE].message


def test_a_queue_too_hot_for_one_consumer_does_not_stop_scaling_for_the_others() -> None:
    """With one queue beyond any consumer the group still grows for the rest, and names the queue."""
    load = [60.0] * 3 + [300.0] + [60.0] * 8
    group = clustered(policy(), lambda now: load)
    group.run(1800)
    assert group.desired == 12
    assert "queue 3" in group.found[Type.HOT_QUEUE].message


def test_the_broker_being_away_holds_the_scale() -> None:
    """For an hour nothing is known: no change, said as MetricsUnknown; and the window begins again afterwards."""
    load = even(lambda now: 150 if now < 700 else 10)
    group = clustered(policy(), load, unknown=lambda now: 600 < now < 4200)
    group.run(600)
    size = group.desired
    group.run(3590)
    assert group.desired == size > 1
    assert group.found[Type.SCALING_ACTIVE].reason == "MetricsUnknown"
    group.run(250)
    assert group.desired == size
    group.run(600)
    assert group.desired == 1


def test_a_bottleneck_elsewhere_stops_the_steps_up() -> None:
    """Handlers that share 105/s: a step that raised throughput by 5 % is not followed by another, and that is said."""
    group = clustered(policy(), even(lambda now: 300), total_capacity=105.0)
    group.run(400)
    assert is_true(group, Type.SCALING_INEFFECTIVE)
    size = group.desired
    group.run(250)
    assert group.desired == size < group.policy.high


def test_a_bottleneck_that_stays_is_tried_with_one_consumer_now_and_then() -> None:
    """Two hours behind a bottleneck cost a few tries of one consumer each, further and further apart."""
    group = clustered(policy(queues=60, high=60), even(lambda now: 300, 60), total_capacity=105.0)
    group.run(400)
    size = group.desired
    group.run(2 * HOUR)
    tries = [at for at, _ in group.changes if at > 400]
    assert group.desired - size == len(tries) <= 4


def test_a_mended_bottleneck_is_forgiven() -> None:
    """Once the shared part is fast again, throughput rises, the condition goes, and the group is as large as needed."""
    group = clustered(policy(), even(lambda now: 300), total_capacity=150.0)
    group.run(600)
    group.total_capacity = float("inf")
    group.run(900)
    assert not is_true(group, Type.SCALING_INEFFECTIVE)
    assert sum(group.backlog) < 60 * group.desired * CAPACITY


def test_no_step_only_reshuffles() -> None:
    """Four queues: three consumers would leave two queues on one of them, so the group goes from two to four."""
    group = clustered(policy(queues=4, high=4), even(lambda now: 50 if now < 300 else 230, 4))
    group.run(900)
    assert 3 not in group.sizes()
    assert group.desired == 4


def test_an_idle_group_sleeps_and_wakes_with_the_first_event() -> None:
    """With min 0 the last consumer goes after a quiet window, and one event wakes one consumer at the next look."""
    load = even(lambda now: 0 if 600 < now < 2000 else 50)
    group = clustered(policy(low=0), load)
    group.run(600 + 290)
    assert group.desired == 1
    group.run(70)
    assert group.desired == 0
    group.run(2000 - 960 + 10)
    assert group.desired == 1


def test_the_last_consumer_stays_half_a_minute_however_short_the_window() -> None:
    """A window of 0 does not end a group between two events that are seconds apart."""
    group = Group(policy(low=0, drain=4, behave=quick(0)), even(lambda now: 0 if now > 60 else 50))
    group.run(60 + 29)
    assert group.desired == 1
    group.run(5)
    assert group.desired == 0


def test_queues_that_wait_alone_without_standing_out_are_not_hot() -> None:
    """With a consumer for each queue and a bottleneck behind them all wait alike: nothing to spread, no HotQueue."""
    group = clustered(policy(), even(lambda now: 300), total_capacity=150.0, desired=12)
    group.run(600)
    assert sum(group.backlog) > 10_000
    assert not is_true(group, Type.HOT_QUEUE)


def test_at_zero_an_unknown_backlog_wakes_one_consumer_after_half_a_minute() -> None:
    """Nobody could notice work otherwise; before that, not knowing changes nothing."""
    group = Group(policy(low=0), even(lambda now: 0), desired=0, unknown=lambda now: now > 100)
    group.run(129)
    assert group.sizes() == []
    group.run(3)
    assert group.sizes() == [1]
