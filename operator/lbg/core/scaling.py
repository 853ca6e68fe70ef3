"""How many consumers: `decide` turns what is known of the load into a desired CC, purely, one look at a time.

Theory of operation
-------------------
Every call brings a snapshot and the memory of the call before, and returns a decision with the next memory. In order:

1. *Bounds* always hold, whatever anybody asks for: consumers.min, raised by a schedule, to consumers.max, at most QC.
2. In every mode but Operator somebody else decides; here it is only kept within the bounds.
3. *Unknown holds.* A backlog that cannot be read is not 0. One exception: at zero consumers nobody would ever notice
   work, so after 30 s of not knowing one consumer is woken.
4. *Up* to the smallest CC whose most loaded consumer meets the targets (see `demand`), or that CPU asks for by the
   formula of HorizontalPodAutoscaler. Not for a hot queue, not for a step that only reshuffles, and not after a step
   that did not raise throughput (see `effects`).
5. *Down* one at a time, once the arrival rate fits the smaller group at 80 % and the backlog would drain in half the
   target, and the last change has settled.
6. *Zero* only after nothing arrived and nothing waited, ready or unacknowledged, for 30 s.
7. `behavior` limits how fast; see there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Final

from lbg.core import assignment, behavior, demand, durations, effects, loads
from lbg.core.conditions import Finding, Status, Type
from lbg.core.demand import Demand
from lbg.core.loads import QueueLoad, Snapshot
from lbg.core.spec.autoscaling import Mode
from lbg.core.spec.group import LoadBalancedGroup

WAKE_SECONDS: Final = 30.0
"""At zero consumers, a backlog unknown for so long wakes one."""
COMFORT: Final = 0.7
"""A smaller size with at most this score has room for the gusts that usually come with a load."""
IDLE_SECONDS: Final = 30.0
"""Least time of nothing waiting and nothing arriving before the last consumer goes."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the group's author wants, in the terms of this module."""

    group: str
    queues: int  # QC
    assignment: assignment.Policy
    mode: Mode
    min: int
    max: int
    drain_seconds: float
    cpu_utilization: float  # percent of the request
    rule: behavior.Rule
    floor: int = 0  # of the schedule in force

    @property
    def high(self) -> int:
        """Return the most consumers that may be desired."""
        return max(0, min(self.max, self.queues))

    @property
    def low(self) -> int:
        """Return the fewest consumers that may be desired; schedules do not count where autoscaling is off."""
        floor = 0 if self.mode is Mode.OFF else self.floor
        return max(0, min(max(self.min, floor), self.high))

    @property
    def smoothing(self) -> float:
        """Return the time constant of rates in seconds: a quarter of the target it should help to meet, 1 to 15."""
        return min(max(self.drain_seconds / 4, 1.0), 15.0)

    def clip(self, consumers: int) -> int:
        """Return a number of consumers within the bounds."""
        return min(max(consumers, self.low), self.high)


def policy_of(group: LoadBalancedGroup, floor: int = 0) -> Policy:
    """Return the policy that a group's spec states, with the floor of the schedule in force."""
    spec, scaling = group.spec, group.spec.autoscaling
    return Policy(
        group=group.name,
        queues=spec.queues.count,
        assignment=spec.assignment.policy,
        mode=scaling.mode,
        min=spec.consumers.min,
        max=spec.max_consumers,
        drain_seconds=scaling.targets.drain_seconds,
        cpu_utilization=scaling.targets.cpu_utilization,
        rule=behavior.Rule(scaling.behavior.scale_up, scaling.behavior.scale_down),
        floor=floor,
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """What scaling remembers between looks. Losing it costs time only: rates are measured and windows begin again."""

    loads: loads.Loads = field(default_factory=loads.Loads)
    history: behavior.History = field(default_factory=behavior.History)
    effect: effects.Effect = field(default_factory=effects.Effect)
    hot: int | None = None  # the queue that HotQueue names
    empty_since: float | None = None
    unknown_since: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The desired CC, one line why it is what it is, what to tell people, and the memory for the next call."""

    desired: int
    reason: str
    findings: tuple[Finding, ...]
    memory: Memory


def decide(seen: Snapshot, policy: Policy, memory: Memory, now: float) -> Decision:
    """Return how many consumers the group should have.

    Pure: equal arguments give an equal decision. Call it as often as the world is looked at; it samples at its own pace
    and changes nothing in between. A type of finding that is missing has not changed.

    Args:
        seen: what is known now.
        policy: bounds, targets and pace.
        memory: of the decision before, `Memory()` at first.
        now: monotonic seconds.
    """
    current = policy.clip(seen.desired)
    if policy.mode is not Mode.OPERATOR:
        return _follow(seen, policy, memory)
    if current != seen.desired:
        # Out of bounds is corrected at once and by any distance: windows are for what the load recommends.
        history = behavior.stepped(memory.history, seen.desired, current, policy.rule, now)
        return Decision(current, f"bounds are {policy.low} to {policy.high}", (), replace(memory, history=history))
    if not loads.is_due(memory.loads, policy.smoothing, now):
        return Decision(current, "", (), memory)
    memory = _remembered(seen, policy, memory, now)
    if memory.unknown_since is not None:
        return _hold(seen, current, memory, now)
    if current == 0:
        return _wake(seen, policy, memory, now)
    return _scale(seen, policy, memory, current, now)


def _follow(seen: Snapshot, policy: Policy, memory: Memory) -> Decision:
    asked = seen.desired if seen.requested is None else seen.requested
    desired = policy.clip(asked)
    reason = f"{asked} asked for"
    if desired != asked:
        reason += f", bounds are {policy.low} to {policy.high}"
    off = policy.mode is Mode.OFF
    status, word = (Status.FALSE, "Off") if off else (Status.TRUE, "FollowingScale")
    who = "consumers.replicas counts" if off else f"mode {policy.mode.value}: the group's scale is followed"
    return Decision(desired, reason, (Finding(Type.SCALING_ACTIVE, status, word, who),), memory)


def _remembered(seen: Snapshot, policy: Policy, memory: Memory, now: float) -> Memory:
    before = memory.loads
    table = _table(seen, policy)
    measured = loads.sample(before, seen, table, policy.smoothing, now)
    serving = [queue for queue in seen.queues or () if not queue.is_blocked]
    is_unknown = seen.queues is None or any(queue.backlog is None for queue in serving)
    if not is_unknown and seen.desired > 0:
        # Rates need two looks; a queue that is new since the last one has had only one.
        is_unknown = any(measured.tracks[queue.queue].arrival is None for queue in serving)
    is_empty = not is_unknown and all(_is_idle(queue, before) for queue in seen.queues or ())
    return replace(
        memory,
        loads=measured,
        empty_since=(now if memory.empty_since is None else memory.empty_since) if is_empty else None,
        unknown_since=(now if memory.unknown_since is None else memory.unknown_since) if is_unknown else None,
    )


def _table(seen: Snapshot, policy: Policy) -> tuple[int, ...]:
    effective = min(seen.effective, policy.queues)
    return loads.owners(policy.queues, effective, policy.group, policy.assignment) if effective else ()


def _is_idle(queue: QueueLoad, before: loads.Loads) -> bool:
    """Return whether a queue is empty and nothing went through it since the look before."""
    last = before.tracks.get(queue.queue)
    return queue.backlog == 0 and (last is None or last.published == queue.published)


def _hold(seen: Snapshot, current: int, memory: Memory, now: float) -> Decision:
    # A time in which nothing is known must not pass for one in which little was needed.
    memory = replace(memory, history=behavior.forget(memory.history))
    assert memory.unknown_since is not None
    unread = [queue.queue for queue in seen.queues or () if queue.backlog is None and not queue.is_blocked]
    if current == 0 and now - memory.unknown_since >= WAKE_SECONDS:
        message = f"the backlog has been unknown for {WAKE_SECONDS:.0f} s at zero consumers: one is woken to look"
        return Decision(1, message, (_inactive("BacklogUnknown", message),), memory)
    if seen.queues is not None and not unread:
        finding = Finding(Type.SCALING_ACTIVE, Status.UNKNOWN, "Measuring", "rates need a second look at the queues")
        return Decision(current, finding.message, (finding,), memory)
    which = "the broker does not answer" if seen.queues is None else f"of {len(unread)} queues, first {unread[0]}"
    message = f"the backlog is unknown ({which}): the scale is held"
    return Decision(current, message, (_inactive("MetricsUnknown", message),), memory)


def _inactive(reason: str, message: str) -> Finding:
    return Finding(Type.SCALING_ACTIVE, Status.FALSE, reason, message)


def _wake(seen: Snapshot, policy: Policy, memory: Memory, now: float) -> Decision:
    waiting = sum(queue.backlog or 0 for queue in seen.queues or ())
    active = Finding(Type.SCALING_ACTIVE, Status.TRUE, "MetricsKnown", "backlog and rates are known")
    if not waiting:
        return Decision(0, "nothing waits", (active,), memory)
    history = behavior.stepped(memory.history, 0, 1, policy.rule, now)
    return Decision(1, f"{waiting} events wait at zero consumers", (active,), replace(memory, history=history))


def _scale(seen: Snapshot, policy: Policy, memory: Memory, current: int, now: float) -> Decision:
    queues, tracks = seen.queues or (), memory.loads.tracks
    full = _demand(queues, policy, memory.loads, policy.drain_seconds)
    if full.capacity == inf and any(full.arrival + full.draining):
        memory = replace(memory, history=behavior.forget(memory.history))
        message = "no consumer has handled enough yet to tell its capacity: the scale is held"
        return Decision(current, message, (_inactive("CapacityUnknown", message),), memory)
    hot = demand.hot_queues(full, tracks, _table(seen, policy))
    late = demand.hottest(full, hot, tracks, queues, drain_seconds=policy.drain_seconds, last=memory.hot)
    growing, shrinking = full.without(hot), _demand(queues, policy, memory.loads, policy.drain_seconds / 2)
    # Each queue waits alone where each has a consumer of its own: only what stands out is certain to wait for a key.
    splittable = full.without(queue for queue in hot if full.stands_out(queue))
    flow = effects.Flow(
        throughput=sum(tracks[queue.queue].served or 0.0 for queue in queues if not queue.is_blocked),
        waiting=sum(splittable.draining) * policy.drain_seconds,
        is_enough=splittable.score(current) <= 1,
    )
    settled_for = memory.loads.settled_for(now)
    effect = effects.judge(
        memory.effect, flow, current, seen.effective, settled_for=settled_for, smoothing=policy.smoothing, now=now
    )
    wanted, comfortable = (_wanted(seen, policy, memory, growing, shrinking, level) for level in (1.0, COMFORT))
    recommended = effect.allowed(wanted, current, seen.effective)
    history = behavior.recommend(memory.history, recommended, comfortable, current, policy.rule, now)
    limited = behavior.limit(history, current, policy.rule, now)
    desired = limited if limited >= current else _paced(policy, memory, shrinking, current, limited, now)
    effect = effects.stepped(effect, flow, current, desired, seen.effective, now)
    history = behavior.stepped(history, current, desired, policy.rule, now)
    memory = replace(memory, history=history, effect=effect, hot=late.queue if late is not None else None)
    findings = (_active(policy, wanted), _hot(late), _ineffective(effect))
    return Decision(desired, _reason(growing, seen, policy, current, desired), findings, memory)


def _demand(queues: tuple[QueueLoad, ...], policy: Policy, measured: loads.Loads, drain_seconds: float) -> Demand:
    return demand.demand_of(
        measured.tracks,
        queues,
        group=policy.group,
        policy=policy.assignment,
        capacity=measured.capacity if measured.capacity else inf,
        drain_seconds=drain_seconds,
    )


def _wanted(seen: Snapshot, policy: Policy, memory: Memory, growing: Demand, shrinking: Demand, level: float) -> int:
    """Return the CC that load and CPU ask for, before any limit of pace; a smaller one scores at most `level`."""
    current, least = seen.desired, max(policy.low, 1)
    by_cpu = _by_cpu(seen, policy)
    needed = growing.score(current)
    if needed > 1 + demand.TOLERANCE:
        larger = growing.smallest(current, policy.high)
        # A step that relieves the most loaded consumer by less than the tolerance moves queues for nothing.
        if growing.score(larger) <= needed * (1 - demand.TOLERANCE):
            return max(larger, by_cpu or 0)
        return max(current, by_cpu or 0)
    if policy.low == 0 and memory.empty_since is not None:
        return 0
    smaller = shrinking.smallest(least, current, level)
    by_load = smaller if shrinking.score(smaller) <= level else current
    return max(by_load, least if by_cpu is None else by_cpu)


def _by_cpu(seen: Snapshot, policy: Policy) -> int | None:
    """Return the CC that CPU asks for, None where it is not measured.

    The formula of HorizontalPodAutoscaler, with its caution: a consumer without a figure counts as idle on the way up
    and as on target on the way down.
    """
    target, least = policy.cpu_utilization, max(policy.low, 1)
    known = [consumer.cpu for consumer in seen.consumers if consumer.cpu is not None]
    if not known:
        return None
    missing = len(seen.consumers) - len(known)
    ratio = sum(known) / len(known) / target
    if abs(ratio - 1) <= demand.TOLERANCE:
        return seen.desired
    filled = 0.0 if ratio > 1 else missing * target
    asked = ceil((sum(known) + filled) / target)
    if ratio < 1:
        return min(max(asked, least), seen.desired)
    # Only sizes at which somebody holds fewer queues than now relieve anybody.
    held = ceil(policy.queues / seen.desired)
    sizes = range(max(asked, seen.desired + 1), policy.high + 1) if asked > seen.desired else ()
    return next((size for size in sizes if ceil(policy.queues / size) < held), seen.desired)


def _paced(policy: Policy, memory: Memory, shrinking: Demand, current: int, limited: int, now: float) -> int:
    """Return the next size of a group that may shrink to `limited`, or the current one while it must wait."""
    if memory.loads.settled_for(now) < policy.smoothing:
        return current
    if limited == 0:
        is_idle = memory.empty_since is not None and now - memory.empty_since >= IDLE_SECONDS
        return 0 if is_idle else current
    return limited if shrinking.score(limited) <= 1 else current


def _reason(growing: Demand, seen: Snapshot, policy: Policy, current: int, desired: int) -> str:
    if desired == current:
        return ""
    if desired < current:
        fits = f"the arrival rate fits {desired} at {demand.FIT:.0%}"
        return fits if desired else f"nothing arrived or waited for {IDLE_SECONDS:.0f} s"
    if growing.score(current) <= 1 + demand.TOLERANCE:
        return f"CPU is above the target of {policy.cpu_utilization:.0f} %"
    waiting = sum(queue.backlog or 0 for queue in seen.queues or ())
    return (
        f"{waiting} events wait and {sum(growing.arrival):.0f}/s arrive, a consumer handles {growing.capacity:.0f}/s, "
        f"the target is to drain in {policy.drain_seconds:.0f} s"
    )


def _active(policy: Policy, wanted: int) -> Finding:
    if wanted > policy.high or (wanted == policy.high and policy.high < policy.queues):
        message = f"{policy.high} consumers are the most that consumers.max and queues.count allow"
        return Finding(Type.SCALING_ACTIVE, Status.TRUE, "AtMaximum", message)
    return Finding(Type.SCALING_ACTIVE, Status.TRUE, "MetricsKnown", "backlog and rates are known")


def _hot(late: demand.Hot | None) -> Finding:
    if late is None:
        return Finding(Type.HOT_QUEUE, Status.FALSE, "LoadIsSplit", "no queue has more load than a consumer can serve")
    shard = f", mostly shard {late.shard}" if late.shard is not None else ""
    # In steps of five percent: a status that changes with every look wakes every watcher.
    share = round(late.share * 20) * 5
    message = f"queue {late.queue}{shard} has {share} % of the load; more consumers cannot split it: spread its keys"
    return Finding(Type.HOT_QUEUE, Status.TRUE, "QueueCannotBeSplit", message)


def _ineffective(effect: effects.Effect) -> Finding:
    failed = effect.ineffective
    if failed is None:
        return Finding(Type.SCALING_INEFFECTIVE, Status.FALSE, "StepsHelp", "no step up has failed to raise throughput")
    message = (
        f"{failed.consumers} consumers handle no more than {failed.base} did: the bottleneck is elsewhere, "
        f"no further step up for {durations.text(round(failed.forgiven_after))}"
    )
    return Finding(Type.SCALING_INEFFECTIVE, Status.TRUE, "ThroughputUnchanged", message)
