"""The plan: from what a group's author wants and what one look saw to what is to be done, the same on every substrate.

Theory of operation
-------------------
`plan` is level-triggered: it looks at what is, never at what happened, so a look that was missed, an action that failed
and an operator that was restarted need no care of their own. Applied and observed again, a plan gives an empty one,
until the world or the load changes. Its memory holds clocks and rates only; losing it costs patience, never safety.

The order of the questions is the order of what must not go wrong:

1. *Paused* changes nothing. *Refused* changes nothing either: a spec that would lose or reorder events, or that would
   take somebody else's names, ends in a condition with the remedy, and its text never reaches the consumers.
2. *Queues* come before consumers. Before they were declared once, nobody is started.
3. *Desired* comes from `scaling` within the bounds; while suspended or being deleted the *target* is 0 instead, and
   desired is kept for the day after.
4. *Effective, generation and seats* follow from `coordination`, *who runs* from `staffing`: effective falls before
   consumers go, and rises after they have come.
5. *Deleting* hands over first and removes the queues last, by their policy. DeleteIfEmpty goes on serving until nothing
   waits: that is what drains them.

What cannot be read is left alone. Without seats nothing is coordinated, without consumers none comes or goes, without
the broker the scale is held; consumers go on with what they hold in every case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from lbg.core import assignment, conditions, coordination, findings, loads, scaling, schedules, staffing, status
from lbg.core.actions import (
    Action,
    AnswerRequest,
    DeclareTopology,
    DeleteTopology,
    Finish,
    Report,
    SetDesired,
    SetView,
)
from lbg.core.conditions import Condition, Finding, Type
from lbg.core.observed import Basis, Consumer, GroupRecord, Observed, Presence
from lbg.core.spec.autoscaling import Mode
from lbg.core.spec.group import DeletionPolicy, LoadBalancedGroup

ACTIONS_SHOWN: Final = 12
MOVING_SECONDS: Final = 1.0
"""Look again this soon while something is under way whose end nobody tells us of."""
STEADY_SECONDS: Final = 30.0
BROKER_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What the caller keeps from plan to plan, in its process. `Memory()` after a start."""

    coordination: coordination.Memory = field(default_factory=coordination.Memory)
    staffing: staffing.Memory = field(default_factory=staffing.Memory)
    scaling: scaling.Memory = field(default_factory=scaling.Memory)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, what to tell, what to remember, and when to look again at the latest."""

    actions: tuple[Action, ...]
    status: status.Status
    memory: Memory
    requeue_after: float  # seconds; sooner when something changes

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions after this look."""
        return self.status.conditions


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plan in the making: the numbers that hold once it is applied."""

    desired: int
    effective: int
    generation: int
    target: int
    memory: Memory
    actions: tuple[Action, ...] = ()
    found: tuple[Finding, ...] = ()
    held_by: tuple[str, str] | None = None  # what keeps the group from being ready, whatever was found
    requeue_after: float = STEADY_SECONDS

    def then(self, *actions: Action) -> _Draft:
        return replace(self, actions=(*self.actions, *actions))

    def saying(self, *found: Finding) -> _Draft:
        return replace(self, found=(*self.found, *found))


def plan(group: LoadBalancedGroup, seen: Observed, memory: Memory, now: float) -> Plan:
    """Return what is to be done about a group, and everything there is to say about it.

    Args:
        group: what its author wants.
        seen: one look at everything.
        memory: of the plan before.
        now: monotonic seconds of the look.
    """
    record = seen.group
    watched = coordination.look(memory.coordination, record, seen.seats, now)
    policy = scaling.policy_of(group, _floor(group, seen).min)
    desired = policy.clip(_asked(group, record)) if record.desired is None else record.desired
    draft = _Draft(
        desired=desired,
        effective=record.effective,
        generation=record.generation,
        target=0 if group.spec.suspend else desired,
        memory=replace(memory, coordination=watched),
    )
    draft = _planned(group, seen, policy, draft, now)
    return _finished(group, seen, draft)


def _planned(group: LoadBalancedGroup, seen: Observed, policy: scaling.Policy, draft: _Draft, now: float) -> _Draft:
    if group.spec.paused:
        message = "spec.paused is true: nothing is changed until it is false"
        return draft.saying(Finding(Type.SCALING_ACTIVE, conditions.Status.FALSE, "Paused", message))
    if seen.group.deleting:
        return _deleted(group, seen, draft, now)
    if findings.refusal(group, seen) is not None:
        return draft
    presence = seen.topology.presence
    if presence is Presence.ABSENT:
        return replace(draft.then(DeclareTopology()), requeue_after=0.0)
    if presence is Presence.UNKNOWN and seen.group.generation == 0:
        return replace(draft, requeue_after=BROKER_SECONDS)
    if not seen.topology.complete:
        draft = draft.then(DeclareTopology())
    draft = _scaled(group, seen, policy, draft, now)
    return _coordinated(group, seen, draft, now)


def _asked(group: LoadBalancedGroup, record: GroupRecord) -> int:
    return group.spec.consumers.replicas if record.requested is None else record.requested


def _floor(group: LoadBalancedGroup, seen: Observed) -> schedules.Floor:
    return schedules.floor_at(group.spec.autoscaling.schedules, seen.wall, seen.zones)


def _scaled(group: LoadBalancedGroup, seen: Observed, policy: scaling.Policy, draft: _Draft, now: float) -> _Draft:
    """Decide the desired CC; one that somebody else wrote in mode Operator is overridden, and said so."""
    record = seen.group
    if group.spec.suspend:
        message = "spec.suspend is true: consumers are held at 0, desired is kept"
        finding = Finding(Type.SCALING_ACTIVE, conditions.Status.FALSE, "Suspended", message)
        memory = replace(draft.memory, scaling=scaling.Memory())
        draft = replace(draft, held_by=("Suspended", message), memory=memory).saying(finding)
        return draft if record.desired is not None else draft.then(SetDesired(draft.desired, "first plan", False))
    is_operator = policy.mode is Mode.OPERATOR
    if record.desired is None:
        write_back = is_operator and record.requested not in (None, draft.desired)
        draft = draft.then(SetDesired(draft.desired, "first plan", write_back))
    elif is_operator and record.requested not in (None, record.desired):
        message = f"replicas {record.requested} overridden with {record.desired}: autoscaling.mode Operator decides"
        draft = draft.then(
            SetDesired(record.desired, message, write_back=True), Report("ScaleOverridden", message, is_warning=True)
        )
    if seen.seats is None:
        # Without the seats nobody knows who serves, so rates mean nothing.
        return draft
    decision = scaling.decide(_snapshot(group, seen, draft), policy, draft.memory.scaling, now)
    draft = replace(draft, memory=replace(draft.memory, scaling=decision.memory)).saying(*decision.findings)
    if decision.desired == draft.desired:
        return draft
    report = Report("Scaled", f"{draft.desired} to {decision.desired} consumers: {decision.reason}")
    draft = draft.then(SetDesired(decision.desired, decision.reason, write_back=is_operator), report)
    return replace(draft, desired=decision.desired, target=decision.desired)


def _snapshot(group: LoadBalancedGroup, seen: Observed, draft: _Draft) -> loads.Snapshot:
    full = findings.full_queues(group, seen)
    queues = None
    if seen.queues is not None:
        queues = tuple(
            loads.QueueLoad(look.queue, look.backlog, look.published, look.queue in full, look.hot_shard)
            for look in seen.queues[: group.spec.queues.count]
        )
        if len(queues) < group.spec.queues.count:
            queues = None  # some are missing: what is not there cannot be read as empty
    by_holder: dict[str, loads.ConsumerLoad] = {}
    for seat in seen.seats or ():
        if seat.holder is not None and seat.ordinal < seen.group.effective and seat.summary.connected:
            cpu = next((c.cpu for c in seen.consumers or () if c.is_holder(seat.holder)), None)
            load = loads.ConsumerLoad(seat.ordinal, seat.holder, seat.summary.rate, seat.summary.busy, cpu)
            by_holder.setdefault(seat.holder, load)
    return loads.Snapshot(
        desired=draft.desired,
        effective=seen.group.effective,
        queues=queues,
        consumers=tuple(by_holder.values()),
        requested=_asked(group, seen.group),
    )


def _coordinated(group: LoadBalancedGroup, seen: Observed, draft: _Draft, now: float) -> _Draft:
    """Plan the view, the seats and the consumers for the draft's target."""
    if seen.seats is None:
        return replace(draft, requeue_after=MOVING_SECONDS)
    record, spec = seen.group, group.spec
    basis = Basis(spec.queues.count, spec.assignment.policy, assignment.TABLE_VERSION)
    prefix = coordination.serving_prefix(seen.seats, seen.consumers, draft.memory.coordination)
    effective = coordination.next_effective(record.effective, draft.target, prefix, draft.memory.coordination)
    generation = coordination.next_generation(record, seen.seats, effective, basis)
    view = SetView(effective, generation, basis.table_version, spec.suspend, record.spec_generation)
    stored = SetView(
        record.effective,
        record.generation,
        record.basis.table_version if record.basis is not None else 0,
        record.suspended,
        record.adopted_generation,
    )
    if view != stored:
        draft = draft.then(view)
    kept = 0 if record.deleting and draft.target == 0 else draft.desired
    draft = draft.then(
        *coordination.keep_seats(seen.seats, seen.consumers, max(kept, record.effective, effective)),
        *_answered(seen),
    )
    draft = replace(draft, effective=effective, generation=generation)
    if seen.consumers is None:
        return replace(draft, requeue_after=MOVING_SECONDS)
    return _staffed(group, seen, seen.consumers, draft, now)


def _answered(seen: Observed) -> tuple[AnswerRequest, ...]:
    answers = {name: answer for summary in seen.summaries for name, answer in summary.answered.items()}
    return tuple(AnswerRequest(r.id, answers[r.id]) for r in seen.group.requests if r.id in answers)


def _staffed(
    group: LoadBalancedGroup, seen: Observed, consumers: tuple[Consumer, ...], draft: _Draft, now: float
) -> _Draft:
    resize, remembered = staffing.staff(
        staffing.Staff(consumers, seen.seats or (), seen.queues),
        draft.target,
        effective=seen.group.effective,
        replicas=seen.group.replicas,
        drain_budget=group.spec.consumers.drain_budget,
        memory=draft.memory.staffing,
        now=now,
    )
    draft = replace(draft, memory=replace(draft.memory, staffing=remembered))
    if resize is not None:
        draft = draft.then(resize)
    is_moving = draft.effective != draft.target or len(consumers) != draft.target or resize is not None
    if is_moving:
        return replace(draft, requeue_after=MOVING_SECONDS)
    is_operator = group.spec.autoscaling.mode is Mode.OPERATOR and not group.spec.suspend
    steady = scaling.policy_of(group).smoothing if is_operator else STEADY_SECONDS
    return replace(draft, requeue_after=steady)


def _deleted(group: LoadBalancedGroup, seen: Observed, draft: _Draft, now: float) -> _Draft:
    """Plan the end of a group: serve what must be served, hand over, remove the queues last."""
    policy, presence = group.spec.queues.deletion_policy, seen.topology.presence
    if policy is DeletionPolicy.DELETE_IF_EMPTY and presence in (Presence.OURS, Presence.UNKNOWN):
        waiting = _waiting(group, seen)
        if waiting != 0:
            said = "an unknown number of" if waiting is None else str(waiting)
            who = "consumers drain them" if draft.target else "no consumer runs to drain them"
            message = f"{said} events wait, deletionPolicy is DeleteIfEmpty: {who}; or set Retain or Delete"
            held = replace(draft, held_by=("NotEmpty" if waiting else "BacklogUnknown", message))
            return _coordinated(group, seen, held, now)
    held = replace(draft, target=0, held_by=("Deleting", "the group is being deleted"))
    draft = _coordinated(group, seen, held, now)
    if seen.consumers != () or seen.seats is None or any(not seat.is_vacant for seat in seen.seats):
        return draft
    if policy is not DeletionPolicy.RETAIN:
        if presence is Presence.OURS:
            is_careful = policy is DeletionPolicy.DELETE_IF_EMPTY
            return replace(draft.then(DeleteTopology(only_if_empty=is_careful)), requeue_after=MOVING_SECONDS)
        if presence is Presence.UNKNOWN:
            message = "the broker does not answer: the queues cannot be deleted yet; or set deletionPolicy Retain"
            return replace(draft, held_by=("BrokerUnreachable", message), requeue_after=BROKER_SECONDS)
    # Seats go in the same plan; the group goes only once they are gone, or nobody would clean up after it.
    return draft if seen.seats else draft.then(Finish())


def _waiting(group: LoadBalancedGroup, seen: Observed) -> int | None:
    """Return what waits in all queues, None when any of it is unknown."""
    backlogs = [look.backlog for look in seen.queues or ()]
    known = [backlog for backlog in backlogs if backlog is not None]
    return sum(known) if len(known) == len(backlogs) >= group.spec.queues.count else None


def _finished(group: LoadBalancedGroup, seen: Observed, draft: _Draft) -> Plan:
    """Return the plan with its conditions and its status."""
    found = [
        *findings.of_broker(group, seen),
        findings.of_consumers(seen, draft.target, draft.effective),
        *findings.of_summaries(group, seen),
        *_scheduled(group, seen, draft.found),
    ]
    by_type = {finding.type: finding for finding in found}
    ready = findings.ready(by_type, target=draft.target, effective=draft.effective, held_by=draft.held_by)
    merged = conditions.merge(seen.group.conditions, [*by_type.values(), ready], seen.wall, seen.group.spec_generation)
    last = _last_plan(draft.actions, seen)
    said = status.status_of(
        group,
        seen,
        desired=draft.desired,
        effective=draft.effective,
        generation=draft.generation,
        last_plan=last,
        conditions=merged,
    )
    return Plan(draft.actions, said, draft.memory, draft.requeue_after)


def _scheduled(group: LoadBalancedGroup, seen: Observed, found: Iterable[Finding]) -> Iterable[Finding]:
    """Yield the findings; a schedule that cannot count, since its time zone is unknown here, is said with scaling."""
    unknown = _floor(group, seen).unknown_zones
    for finding in found:
        if unknown and finding.type is Type.SCALING_ACTIVE:
            message = f"schedules in unknown time zones set no floor: {', '.join(unknown)}; correct timeZone"
            yield replace(finding, reason="UnknownTimeZone", message=message)
        else:
            yield finding


def _last_plan(actions: tuple[Action, ...], seen: Observed) -> Mapping[str, object] | None:
    done = [str(action) for action in actions if not isinstance(action, Report)]
    if not done:
        return seen.group.last_plan
    more = [f"and {len(done) - ACTIONS_SHOWN} more"] if len(done) > ACTIONS_SHOWN else []
    return {"at": conditions.timestamp(seen.wall), "actions": [*done[:ACTIONS_SHOWN], *more]}
