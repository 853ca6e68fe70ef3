"""Laws of scaling: bounds, purity, monotone answers, and the pace of autoscaling/v2."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st

from lbg.core import assignment, behavior, demand, effects, loads, scaling
from lbg.core.conditions import Type
from lbg.core.loads import ConsumerLoad, Loads, QueueLoad, Snapshot, Track
from lbg.core.spec.autoscaling import Behavior, Mode, PolicyType, ScaleDown, ScaleUp, SelectPolicy, StepPolicy

QUEUES = 12
NOW = 1000.0


def policy(
    mode: Mode = Mode.OPERATOR, low: int = 1, high: int = QUEUES, floor: int = 0, **rules: object
) -> scaling.Policy:
    """Build a policy whose behavior allows any step at once unless rules say otherwise."""
    free = (StepPolicy(type=PolicyType.PODS, value=1000, period_seconds=1),)
    up = rules.get("up", ScaleUp(policies=free))
    down = rules.get("down", ScaleDown(stabilization_window_seconds=0, policies=free))
    rule = behavior.Rule(up, down)  # type: ignore[arg-type]
    return scaling.Policy("g", QUEUES, assignment.Policy.BALANCED, mode, low, high, 60, 70, rule, floor)


def known(
    arrival: float, backlog: float, current: int = 1, *, capacity: float = 100.0
) -> tuple[scaling.Memory, tuple[QueueLoad, ...]]:
    """Build a memory that has measured an even load for long, and the look a second later that goes on with it."""
    published, waiting = 10_000_000, int(backlog / QUEUES)
    arrived = arrival / QUEUES
    served = min(arrived, capacity / -(-QUEUES // current))  # nobody serves more than a consumer can
    tracks = {queue: Track(0, NOW - 1, published, waiting, arrived, served) for queue in range(QUEUES)}
    measured = Loads(tracks, NOW - 1, ("never",), 0.0, capacity)
    grown = waiting + int(arrived) - int(served)
    return scaling.Memory(loads=measured), tuple(QueueLoad(q, grown, published + int(arrived)) for q in range(QUEUES))


def decided(
    arrival: float, backlog: float, current: int, rules: scaling.Policy, cpu: float | None = None
) -> scaling.Decision:
    """Decide for an even load that has been measured for long, in a group that has settled."""
    memory, queues = known(arrival, backlog, current)
    consumers = tuple(ConsumerLoad(n, f"c{n}", cpu=cpu) for n in range(current))
    layout = (current, tuple((c.ordinal, c.holder) for c in consumers))
    memory = replace(memory, loads=replace(memory.loads, layout=layout))
    return scaling.decide(Snapshot(current, current, queues, consumers), rules, memory, NOW)


loads_of_all_sizes = st.tuples(st.floats(0, 5000), st.floats(0, 1e6), st.integers(1, QUEUES))


@hypothesis.given(load=loads_of_all_sizes, low=st.integers(0, 8), floor=st.integers(0, 20), high=st.integers(1, 40))
def test_bounds_hold_for_every_load(load: tuple[float, float, int], low: int, floor: int, high: int) -> None:
    """From any size and load the decision lies between min, raised by the floor, and max, and never above QC."""
    arrival, backlog, current = load
    rules = policy(low=low, high=high, floor=floor)
    got = decided(arrival, backlog, current, rules).desired
    assert min(max(low, floor), high, QUEUES) <= got <= min(high, QUEUES)


@hypothesis.given(load=loads_of_all_sizes)
def test_the_same_input_gives_the_same_decision(load: tuple[float, float, int]) -> None:
    """Nothing outside the arguments counts."""
    assert decided(*load, policy()) == decided(*load, policy())


@hypothesis.given(load=loads_of_all_sizes, factor=st.floats(1, 10))
def test_more_load_never_wants_fewer_consumers(load: tuple[float, float, int], factor: float) -> None:
    """An even load that is larger in arrivals and backlog gets as many consumers or more."""
    arrival, backlog, current = load
    less, more = (decided(arrival * f, backlog * f, current, policy()).desired for f in (1.0, factor))
    assert less <= more


@hypothesis.given(load=loads_of_all_sizes)
def test_a_step_up_meets_the_targets_or_nothing_would(load: tuple[float, float, int]) -> None:
    """After a step up every consumer fits, or the size is the smallest that does as well as the largest one."""
    arrival, backlog, current = load
    got = decided(arrival, backlog, current, policy()).desired
    if got > current:
        held = [-(-QUEUES // size) for size in (got, QUEUES)]  # most queues on one consumer
        need = max(arrival / 0.8, arrival + backlog / 60) / QUEUES
        assert need * held[0] <= 100.0 + 20 or held[0] == held[1]
        assert -(-QUEUES // (got - 1)) > held[0]


@pytest.mark.parametrize(
    ("arrival", "backlog", "current", "want"),
    [
        (60, 0, 1, 1), (85, 0, 1, 1), (95, 0, 1, 2), (60, 6000, 1, 2), (60, 1000, 1, 1), (230, 0, 2, 3),
        (300, 0, 4, 4), (150, 0, 3, 2), (170, 0, 3, 3), (20, 9000, 3, 3), (20, 300, 3, 2), (5000, 0, 1, 12),
    ],
)  # fmt: skip
def test_the_size_for_a_load(arrival: float, backlog: float, current: int, want: int) -> None:
    """A consumer handles 100/s and should need 80 of it; a backlog should drain in 60 s; down goes one at a time."""
    assert decided(arrival, backlog, current, policy()).desired == want


def test_a_step_that_relieves_nobody_by_a_tenth_is_not_taken() -> None:
    """Four nearly equal queues: three consumers leave two on one of them, and no fourth is allowed: the group stays."""
    rules = replace(policy(high=3), queues=4)
    table = assignment.assign(4, 3, "g")
    # The pair that a third consumer would split is a little heavier, so splitting it looks like a gain.
    rates = {queue: 98.0 if len(table.queues_of(owner)) == 2 else 102.0 for queue, owner in enumerate(table.owners)}
    tracks = {queue: Track(0, NOW - 1, 0, 0, rate, rate) for queue, rate in rates.items()}
    memory = scaling.Memory(loads=Loads(tracks, NOW - 1, ("never",), 0.0, 150.0))
    queues = tuple(QueueLoad(queue, 0, int(track.arrival or 0)) for queue, track in tracks.items())
    assert scaling.decide(Snapshot(2, 2, queues), rules, memory, NOW).desired == 2
    allowed = replace(rules, max=4)
    assert scaling.decide(Snapshot(2, 2, queues), allowed, memory, NOW).desired == 4


def test_a_step_down_waits_until_the_last_change_has_settled() -> None:
    """Who serves has changed a moment ago: the rates of the new owners are not known yet."""
    memory, queues = known(60, 0)
    consumers = tuple(ConsumerLoad(n, f"c{n}") for n in range(3))
    seen = Snapshot(3, 3, queues, consumers)
    assert scaling.decide(seen, policy(), memory, NOW).desired == 3
    layout = (3, tuple((c.ordinal, c.holder) for c in consumers))
    settled = replace(memory, loads=replace(memory.loads, layout=layout, settled_since=NOW - 60))
    assert scaling.decide(seen, policy(), settled, NOW).desired == 2


@pytest.mark.parametrize(
    ("cpu", "current", "want"), [(70, 4, 4), (76, 4, 4), (140, 2, 4), (35, 4, 3), (90, 4, 6), (None, 4, 3)]
)
def test_cpu_counts_as_for_an_hpa_and_the_larger_answer_wins(cpu: float | None, current: int, want: int) -> None:
    """With a target of 70 %: within a tenth nothing, above it by the ratio to a size that relieves somebody."""
    assert decided(10, 0, current, policy(), cpu).desired == want


@pytest.mark.parametrize("mode", [Mode.HPA, Mode.EXTERNAL, Mode.OFF])
def test_where_others_decide_the_load_changes_nothing(mode: Mode) -> None:
    """Only mode Operator follows the load; the others keep what is asked for within the bounds."""
    memory, queues = known(5000, 1e6)
    seen = Snapshot(2, 2, queues, (), requested=3)
    assert scaling.decide(seen, policy(mode), memory, NOW).desired == 3


def test_looks_in_quick_succession_change_nothing() -> None:
    """Between two samples a decision keeps the size and the memory."""
    memory, queues = known(5000, 1e6)
    got = scaling.decide(Snapshot(2, 2, queues), policy(), memory, NOW - 0.9)
    assert (got.desired, got.memory) == (2, memory)


def test_a_blocked_queue_is_no_reason_for_consumers() -> None:
    """What no consumer can serve does not count, neither known nor unknown."""
    memory, queues = known(60, 0)
    held = (replace(queues[0], backlog=1_000_000, is_blocked=True), *queues[1:])
    assert scaling.decide(Snapshot(1, 1, held), policy(), memory, NOW).desired == 1
    blind = (replace(queues[0], backlog=None, is_blocked=True), *queues[1:])
    got = scaling.decide(Snapshot(1, 1, blind), policy(), memory, NOW)
    assert {finding.type: finding.reason for finding in got.findings}[Type.SCALING_ACTIVE] == "MetricsKnown"


def test_a_counter_that_starts_again_is_no_negative_rate() -> None:
    """A new broker counts from 0: that look gives no rate, and the old ones stay."""
    memory, queues = known(60, 0)
    fresh = tuple(replace(queue, published=3) for queue in queues)
    got = loads.sample(memory.loads, Snapshot(1, 1, fresh), (0,) * QUEUES, 15, NOW)
    assert got.tracks[0].arrival == memory.loads.tracks[0].arrival
    assert got.tracks[0].published == 3


def rule(up: ScaleUp | None = None, down: ScaleDown | None = None) -> behavior.Rule:
    """Build the two directions, the defaults of the spec unless given."""
    spec = Behavior()
    return behavior.Rule(up or spec.scale_up, down or spec.scale_down)


def pods(value: int, period: int = 60) -> StepPolicy:
    """Build a policy in pods."""
    return StepPolicy(type=PolicyType.PODS, value=value, period_seconds=period)


def percent(value: int, period: int = 60) -> StepPolicy:
    """Build a policy in percent."""
    return StepPolicy(type=PolicyType.PERCENT, value=value, period_seconds=period)


@pytest.mark.parametrize(
    ("policies", "select", "current", "want"),
    [
        ((pods(4), percent(100)), SelectPolicy.MAX, 2, 6),
        ((pods(4), percent(100)), SelectPolicy.MAX, 8, 16),
        ((pods(4), percent(100)), SelectPolicy.MIN, 8, 12),
        ((percent(10),), SelectPolicy.MAX, 4, 5),
        ((pods(1),), SelectPolicy.DISABLED, 4, 4),
    ],
)
def test_steps_up_are_limited_as_in_autoscaling_v2(
    policies: tuple[StepPolicy, ...], select: SelectPolicy, current: int, want: int
) -> None:
    """Pods, percent rounded up, the largest or smallest of several, or none at all."""
    up = rule(up=ScaleUp(policies=policies, select_policy=select))
    history = behavior.recommend(behavior.History(), 100, 100, current, up, NOW)
    assert behavior.limit(history, current, up, NOW) == want


def test_a_limit_holds_for_its_period() -> None:
    """Four pods a minute: after a step of three there is one left, and all four again a minute later."""
    up = rule(up=ScaleUp(policies=(pods(4),)))
    history = behavior.stepped(behavior.History(), 2, 5, up, NOW)
    for at, want in ((NOW + 30, 6), (NOW + 60, 9)):
        history = behavior.recommend(history, 100, 100, 5, up, at)
        assert behavior.limit(history, 5, up, at) == want


def test_down_waits_for_the_highest_recommendation_of_the_window() -> None:
    """One peak within the window keeps the size; the window over, one consumer goes."""
    down = rule()
    history = behavior.History()
    for at in range(0, 300, 15):
        history = behavior.recommend(history, 5 if at == 150 else 2, 5, 5, down, NOW + at)
        assert behavior.limit(history, 5, down, NOW + at) == 5
    for at in range(300, 450, 15):
        history = behavior.recommend(history, 2, 2, 5, down, NOW + at)
    assert behavior.limit(history, 5, down, NOW + 449) == 5
    history = behavior.recommend(history, 2, 2, 5, down, NOW + 450)
    assert behavior.limit(history, 5, down, NOW + 450) == 4


@hypothesis.given(
    recommended=st.lists(st.integers(0, 12), min_size=1, max_size=60), current=st.integers(0, 12),
    window=st.integers(0, 120),
)  # fmt: skip
def test_windows_keep_exactly_the_extremes_of_what_was_recommended(
    recommended: list[int], current: int, window: int
) -> None:
    """The short history answers as a full list of recommendations would."""
    both = rule(
        ScaleUp(stabilization_window_seconds=window, policies=(pods(1000),)),
        ScaleDown(stabilization_window_seconds=window, policies=(pods(1000),)),
    )
    history, full = behavior.History(), [(0.0, current)]
    for step, value in enumerate(recommended):
        at = step * 10.0
        history = behavior.recommend(history, value, value, current, both, at)
        full.append((at, value))
        recent = [v for when, v in full if when > at - window] or [value]
        got = behavior.limit(history, current, both, at)
        if min(recent) > current:
            assert got == min(recent)
        elif max(recent) < current:
            assert got == max(*recent, current - 1)
        else:
            assert got == current
        assert len(history.highs) <= 14


def test_a_step_down_that_was_taken_back_waits_longer_unless_it_is_comfortable() -> None:
    """After a reversal the window is eight times as long for a size that only just does."""
    down = rule()
    history = behavior.stepped(behavior.History(), 3, 2, down, NOW)
    history = behavior.stepped(history, 2, 3, down, NOW + 60)
    assert history.patience == 8
    tight = roomy = history
    for at in range(70, 421, 10):
        tight = behavior.recommend(tight, 2, 3, 3, down, NOW + at)
        roomy = behavior.recommend(roomy, 2, 2, 3, down, NOW + at)
    assert behavior.limit(tight, 3, down, NOW + 420) == 3
    assert behavior.limit(roomy, 3, down, NOW + 420) == 2


def judged(flow: effects.Flow, base: int, to: int, settled_for: float = 60.0) -> effects.Effect:
    """Judge a step up from a throughput of 100 at the default pace."""
    step = effects.Effect(effects.Step(base, 100.0, to, NOW))
    return effects.judge(step, flow, to, to, settled_for=settled_for, smoothing=15.0, now=NOW + 60)


def test_a_step_must_gain_a_tenth_or_half_of_what_it_could() -> None:
    """From 9 to 10 a gain of 6 % is enough, from 1 to 2 it is not; and nothing is judged while nothing waits."""
    busy = effects.Flow(throughput=106.0, waiting=10_000, is_enough=False)
    assert judged(busy, 1, 2).ineffective is not None
    assert judged(busy, 9, 10) == effects.Effect()
    assert judged(replace(busy, waiting=0.0), 1, 2) == effects.Effect()


def test_no_step_follows_one_that_is_being_judged() -> None:
    """Until rates mean the new holders nothing more is added, and less is always allowed."""
    busy = effects.Flow(throughput=100.0, waiting=10_000, is_enough=False)
    assert judged(busy, 1, 2, settled_for=29).allowed(9, 2, 2) == 2
    assert judged(busy, 1, 2, settled_for=29).allowed(1, 2, 2) == 1
    assert judged(busy, 1, 2, settled_for=30).ineffective is not None
    assert judged(replace(busy, throughput=200.0), 1, 2, settled_for=30).allowed(9, 2, 2) == 9


@hypothesis.given(arrival=st.lists(st.floats(0, 100), min_size=1, max_size=40), high=st.integers(1, 40))
def test_the_smallest_size_is_the_smallest(arrival: list[float], high: int) -> None:
    """No smaller candidate meets the targets, by trying each of them."""
    high = min(high, len(arrival))
    asked = demand.Demand("g", assignment.Policy.BALANCED, tuple(arrival), (0.0,) * len(arrival), 100.0)
    got = asked.smallest(1, high)
    good = [size for size in range(1, high + 1) if asked.score(size) <= 1]
    assert got == good[0] if good else asked.score(got) <= asked.score(high) * 1.000001
