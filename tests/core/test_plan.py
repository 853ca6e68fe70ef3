"""The plan, question by question: what is refused, what waits, what is kept, and what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from lbg.core import actions, assignment, conditions, plan
from lbg.core.conditions import Status, Type
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.membership import Blocked, GroupView, Request, Seat, Summary
from lbg.core.observed import Basis, Consumer, GroupRecord, Observed, Presence, QueueLook, TopologyLook
from lbg.core.spec import loading
from lbg.core.spec.group import LoadBalancedGroup

CONTRACT = Contract("orders", 256, Algorithm.XXH64, 12)
OURS = TopologyLook(Presence.OURS, CONTRACT)
NOW = 1000.0
WALL = 1_790_000_000.0


def group(**spec: Mapping[str, Any] | bool) -> LoadBalancedGroup:
    """Build a group of twelve queues."""
    consumers = {"min": 1, "max": 8, "replicas": 2, "handler": {"python": "a:b"}, **spec.pop("consumers", {})}  # type: ignore[dict-item]
    document = {
        "apiVersion": "lbg.dev/v1alpha1",
        "kind": "LoadBalancedGroup",
        "metadata": {"name": "orders"},
        "spec": {"consumers": consumers, **spec},
    }
    return loading.parse(document, "orders.yaml")


def external(**spec: Any) -> LoadBalancedGroup:
    """Build a group whose scale somebody else decides."""
    return group(autoscaling={"mode": "External"}, **spec)


def running(size: int = 2, *, summary: Summary | None = None, backlog: int | None = 0, **record: Any) -> Observed:
    """Build a look at a group that runs as wanted."""
    summary = summary or Summary(connected=True)
    seats = tuple(Seat(n, "1", f"c{n}_u_n", 1, generation=3, summary=summary) for n in range(size))
    fields = {
        "requested": size, "desired": size, "effective": size, "generation": 3,
        "basis": Basis(12, assignment.Policy.BALANCED), "adopted_generation": 1,
    }  # fmt: skip
    return Observed(
        group=GroupRecord("orders", **{**fields, **record}),
        topology=OURS,
        queues=tuple(QueueLook(queue, backlog, 0, published=100) for queue in range(12)),
        seats=seats,
        consumers=tuple(Consumer(f"c{n}", f"c{n}_u", float(n), ready=True) for n in range(size)),
        wall=WALL,
    )


def made(wanted: LoadBalancedGroup, seen: Observed, memory: plan.Memory | None = None) -> plan.Plan:
    """Plan."""
    return plan.plan(wanted, seen, memory or plan.Memory(), NOW)


def condition(got: plan.Plan, kind: Type) -> tuple[str, str]:
    """Return status and reason of a condition."""
    found = conditions.find(got.conditions, kind)
    assert found is not None
    return found.finding.status.value, found.finding.reason


NEW = Observed(GroupRecord("orders"), TopologyLook(Presence.ABSENT), None, (), (), WALL)


def test_a_group_that_runs_as_wanted_needs_nothing() -> None:
    """No action, Ready, and the next look no sooner than the pace of the load."""
    got = made(external(), running())
    assert got.actions == ()
    assert condition(got, Type.READY) == ("True", "Serving")
    assert got.requeue_after == plan.STEADY_SECONDS


def test_queues_come_before_consumers() -> None:
    """While the queues are absent nothing else is planned; once they are there, seats and consumers follow."""
    assert made(external(), NEW).actions == (actions.DeclareTopology(),)
    got = made(external(), replace(NEW, topology=OURS))
    assert got.actions == (
        actions.SetDesired(2, "first plan", write_back=False),
        actions.SetView(0, 1, 1, suspended=False, spec_generation=1),
        actions.CreateSeat(0),
        actions.CreateSeat(1),
        actions.Resize(2, add=2),
    )


def test_nobody_starts_while_the_broker_has_never_answered() -> None:
    """Unreachable is said, and the look is repeated soon."""
    got = made(external(), replace(NEW, topology=TopologyLook(Presence.UNKNOWN, reason="no route")))
    assert got.actions == ()
    assert condition(got, Type.BROKER_REACHABLE) == ("False", "Unreachable")
    assert condition(got, Type.READY) == ("False", "Unreachable")
    assert got.requeue_after == plan.BROKER_SECONDS


def test_a_running_group_is_looked_after_while_the_broker_is_away() -> None:
    """A dead consumer is replaced although the broker does not answer."""
    seen = running()
    away = replace(seen, topology=TopologyLook(Presence.UNKNOWN), queues=None, consumers=seen.consumers[:1])  # type: ignore[index]
    got = made(external(), away)
    assert got.actions == (actions.ClearSeat(1, "c1_u_n"), actions.Resize(2, add=1))


@pytest.mark.parametrize(
    ("stored", "reason", "remedy"),
    [
        (Contract("orders", 256, Algorithm.XXH64, 24), "QueuesShrunk", "write 24"),
        (Contract("orders", 256, Algorithm.XXH64, 6), "ImmutableChanged", "spec.queues.count: 12 is 6"),
        (Contract("orders", 128, Algorithm.XXH64, 12), "ImmutableChanged", "spec.hashing.count: 256 is 128"),
        (Contract("orders", 256, Algorithm.JAVA, 12), "ImmutableChanged", "spec.hashing.algorithm: xxh64 is java"),
    ],
    ids=["fewer queues", "more queues", "other count", "other algorithm"],
)
def test_a_change_that_would_lose_or_reorder_is_refused(stored: Contract, reason: str, remedy: str) -> None:
    """Nothing is done, not even what would be harmless; the condition names the field and the remedy."""
    seen = replace(running(), topology=TopologyLook(Presence.OURS, stored), consumers=())
    got = made(external(), seen)
    assert got.actions == ()
    assert condition(got, Type.QUEUES_PROVISIONED) == ("False", reason)
    assert condition(got, Type.READY) == ("False", reason)
    found = conditions.find(got.conditions, Type.QUEUES_PROVISIONED)
    assert found is not None
    assert remedy in found.finding.message


def test_names_of_others_are_not_touched() -> None:
    """A conflict names who has them, and nothing is planned."""
    taken = TopologyLook(Presence.CONFLICT, names=("orders.q0 of shop/invoices",))
    got = made(external(), replace(NEW, topology=taken))
    assert got.actions == ()
    assert condition(got, Type.QUEUES_PROVISIONED) == ("False", "NameInUse")


def test_paused_changes_nothing() -> None:
    """A dead consumer, absent queues and a new scale are all left alone, and said to be paused."""
    seen = replace(running(requested=5), consumers=(), topology=TopologyLook(Presence.ABSENT))
    got = made(external(paused=True), seen)
    assert got.actions == ()
    assert condition(got, Type.SCALING_ACTIVE) == ("False", "Paused")


def test_suspend_hands_over_first_and_keeps_everything_but_the_consumers() -> None:
    """Effective falls to 0 while desired and the seats stay; consumers go once that is visible."""
    wanted = external(suspend=True)
    got = made(wanted, running())
    assert got.actions == (actions.SetView(0, 4, 1, suspended=True, spec_generation=1),)
    assert got.status.desired == 2
    assert condition(got, Type.READY) == ("False", "Suspended")
    got = made(wanted, running(effective=0, generation=4, suspended=True))
    assert got.actions == (actions.Resize(0, remove=("c1", "c0")),)
    gone = replace(running(effective=0, generation=4, suspended=True), consumers=(), seats=(Seat(0, "1"), Seat(1, "1")))
    assert made(wanted, gone).actions == ()


@pytest.mark.parametrize("asked", [999, -1, 0, 8, 9, 3])
@pytest.mark.parametrize("mode", ["Operator", "HPA", "External", "Off"])
def test_bounds_hold_whatever_is_asked(asked: int, mode: str) -> None:
    """Whoever asks for whatever: desired stays within min and max."""
    got = made(group(autoscaling={"mode": mode}), running(requested=asked))
    assert 1 <= got.status.desired <= 8
    want = 2 if mode == "Operator" else min(max(asked, 1), 8)
    assert got.status.desired == want


@hypothesis.given(
    requested=st.integers(-1000, 1000), desired=st.integers(-5, 50), effective=st.integers(0, 12),
    low=st.integers(0, 8), suspend=st.booleans(), mode=st.sampled_from(["Operator", "HPA", "External", "Off"]),
)  # fmt: skip
def test_the_numbers_of_a_plan_are_ordered(
    requested: int, desired: int, effective: int, low: int, suspend: bool, mode: str
) -> None:
    """From any stored state: 0 <= effective <= QC, min <= desired <= max, and the same input gives the same plan."""
    wanted = group(autoscaling={"mode": mode}, suspend=suspend, consumers={"min": low, "replicas": max(low, 1)})
    seen = running(requested=requested, desired=desired, effective=effective)
    got = made(wanted, seen)
    assert made(wanted, seen) == got
    assert 0 <= got.status.effective <= 12
    assert suspend or low <= got.status.desired <= 8
    assert got.status.generation >= 3


def test_the_operator_overrides_kubectl_scale_and_says_so() -> None:
    """In mode Operator another number in /scale is written back, with a warning."""
    got = made(group(), running(requested=5))
    message = "replicas 5 overridden with 2: autoscaling.mode Operator decides"
    assert got.actions == (
        actions.SetDesired(2, message, write_back=True),
        actions.Report("ScaleOverridden", message, is_warning=True),
    )
    assert made(group(), running(requested=None)).actions == ()


def test_the_scale_of_others_is_followed_and_never_written_back() -> None:
    """An HPA that asks for more than may run keeps its own number; the group takes what the bounds allow."""
    got = made(external(), running(requested=999))
    assert got.actions[0] == actions.SetDesired(8, "999 asked for, bounds are 1 to 8", write_back=False)


def test_a_smaller_scale_moves_queues_first_and_removes_consumers_after() -> None:
    """One plan lowers desired and effective, the next one tells the surplus consumer to go, then its seat goes."""
    got = made(external(), running(3, requested=2))
    assert got.actions == (
        actions.SetDesired(2, "2 asked for", write_back=False),
        actions.Report("Scaled", "3 to 2 consumers: 2 asked for"),
        actions.SetView(2, 4, 1, suspended=False, spec_generation=1),
    )
    seen = running(3, requested=2, desired=2, effective=2, generation=4)
    assert made(external(), seen).actions == (actions.Resize(2, remove=("c2",)),)
    seen = replace(seen, consumers=seen.consumers[:2])  # type: ignore[index]
    assert made(external(), seen).actions == (actions.ClearSeat(2, "c2_u_n"),)
    seen = replace(seen, seats=(*seen.seats[:2], Seat(2, "1", generation=3)))  # type: ignore[index]
    assert made(external(), seen).actions == (actions.DeleteSeat(2),)


def test_schedules_raise_the_floor_in_every_mode_but_off() -> None:
    """A floor in force counts like min, whoever decides; Off means off."""
    for mode, want in (("Operator", 6), ("HPA", 6), ("External", 6), ("Off", 2)):
        scaling = {"mode": mode, "schedules": [{"cron": "* * * * *", "min": 6}]}
        assert made(group(autoscaling=scaling), running()).status.desired == want


def test_a_schedule_in_a_zone_that_is_not_known_is_reported() -> None:
    """It sets no floor, and ScalingActive says why."""
    scaling = {"mode": "External", "schedules": [{"cron": "* * * * *", "min": 6, "timeZone": "Mars/Olympus"}]}
    got = made(group(autoscaling=scaling), running())
    assert got.status.desired == 2
    assert condition(got, Type.SCALING_ACTIVE) == ("True", "UnknownTimeZone")


def test_a_new_spec_reaches_the_view_without_a_new_generation() -> None:
    """Adopting another text is written, and moves nothing when the table is the same."""
    got = made(external(), running(spec_generation=2))
    assert got.actions == (actions.SetView(2, 3, 1, suspended=False, spec_generation=2),)


def test_unreadable_seats_leave_everything_as_it_is() -> None:
    """Without the store nothing is coordinated and nobody comes or goes."""
    got = made(external(), replace(running(requested=5), seats=None))
    assert got.actions == ()
    assert condition(got, Type.CONSUMERS_AVAILABLE) == ("Unknown", "SeatsUnreadable")


def test_an_answered_request_leaves_the_view() -> None:
    """The answer is handed on, a request without one stays."""
    asked = (Request("1", "skip", "m1", "ann"), Request("2", "skip", "m2", "ann"))
    said = Summary(connected=True, answered={"1": "skipped"})
    got = made(external(), running(summary=said, requests=asked))
    assert got.actions == (actions.AnswerRequest("1", "skipped"),)
    view = GroupView("orders", "old", 2, 2, 3, requests=asked)
    assert actions.view_after(view, "new", got.actions) == replace(view, requests=asked[1:])


def deleted(policy: str, seen: Observed, **spec: Any) -> plan.Plan:
    """Plan the end of a group with a deletion policy."""
    wanted = external(queues={"count": 12, "deletionPolicy": policy}, **spec)
    return made(wanted, replace(seen, group=replace(seen.group, deleting=True)))


EMPTY = replace(running(effective=0, generation=4), consumers=(), seats=())


def test_deleting_hands_over_before_anything_is_removed() -> None:
    """First the empty table, then the consumers, then the queues with the seats, then the group."""
    assert deleted("Delete", running()).actions == (actions.SetView(0, 4, 1, suspended=False, spec_generation=1),)
    going = running(effective=0, generation=4)
    assert deleted("Delete", going).actions == (actions.Resize(0, remove=("c1", "c0")),)
    vacant = replace(EMPTY, seats=(Seat(0, "1"),))
    assert deleted("Delete", vacant).actions == (actions.DeleteSeat(0), actions.DeleteTopology(only_if_empty=False))
    assert deleted("Delete", EMPTY).actions == (actions.DeleteTopology(only_if_empty=False),)
    absent = replace(EMPTY, topology=TopologyLook(Presence.ABSENT))
    assert deleted("Delete", absent).actions == (actions.Finish(),)


def test_retain_lets_the_group_go_and_the_queues_stay() -> None:
    """Also while the broker is away, since nothing is asked of it."""
    assert deleted("Retain", EMPTY).actions == (actions.Finish(),)
    away = replace(EMPTY, topology=TopologyLook(Presence.UNKNOWN))
    assert deleted("Retain", away).actions == (actions.Finish(),)
    assert deleted("Delete", away).actions == ()


@pytest.mark.parametrize("backlog", [5, None], ids=["some wait", "unknown"])
def test_delete_if_empty_goes_on_serving_until_nothing_waits(backlog: int | None) -> None:
    """Consumers stay, a dead one is replaced, and Ready says what is waited for."""
    seen = running(backlog=backlog)
    got = deleted("DeleteIfEmpty", seen)
    assert got.actions == ()
    assert condition(got, Type.READY) == ("False", "NotEmpty" if backlog else "BacklogUnknown")
    got = deleted("DeleteIfEmpty", replace(seen, consumers=seen.consumers[:1]))  # type: ignore[index]
    assert actions.Resize(2, add=1) in got.actions
    assert deleted("DeleteIfEmpty", running()).status.effective == 0
    assert deleted("DeleteIfEmpty", EMPTY).actions == (actions.DeleteTopology(only_if_empty=True),)


def test_a_blocked_shard_is_named_and_a_full_window_is_not_ready() -> None:
    """QueueBlocked carries shard, queue, event and error; once its events fill the window the group is not ready."""
    held = Blocked(3, 15, "p:1:15:0", "key", "boom", since_ms=1_700_000_000_000)
    seen = running(summary=Summary(connected=True, blocked=(held,)))
    got = made(external(), seen)
    assert condition(got, Type.QUEUE_BLOCKED) == ("True", "ShardBlocked")
    assert condition(got, Type.READY) == ("True", "Serving")
    full = tuple(replace(look, unacknowledged=50) if look.queue == 3 else look for look in seen.queues or ())
    got = made(external(), replace(seen, queues=full))
    assert condition(got, Type.QUEUE_BLOCKED) == ("True", "WindowFull")
    assert condition(got, Type.READY) == ("False", "WindowFull")


@pytest.mark.parametrize(
    ("summary", "kind", "want"),
    [
        (Summary(connected=True, stalled=(4,)), Type.HANDOVER_STALLED, ("True", "BudgetExceeded")),
        (Summary(connected=True), Type.HANDOVER_STALLED, ("False", "InTime")),
        (Summary(connected=True, conditions=("LedgerUnreadable",)), Type.LEDGER_UNREADABLE, ("True", "NotReadable")),
        (Summary(connected=True, conditions=("LedgerUnreadable",)), Type.ORDER_PROVEN, ("Unknown", "SomeUnjudged")),
        (Summary(connected=True), Type.ORDER_PROVEN, ("Unknown", "NothingReported")),
        (Summary(connected=True, epochs={0: 1}), Type.ORDER_PROVEN, ("True", "NoViolation")),
        (Summary(connected=True, violations={"late": 2}), Type.ORDER_PROVEN, ("False", "ViolationsFound")),
        (Summary(connected=True, violations={"unknown": 2}), Type.ORDER_PROVEN, ("Unknown", "SomeUnjudged")),
        (Summary(connected=False), Type.CONSUMERS_AVAILABLE, ("False", "NoneConnected")),
    ],
)  # fmt: skip
def test_reports_become_conditions(summary: Summary, kind: Type, want: tuple[str, str]) -> None:
    """What holders report is what the conditions say."""
    assert condition(made(external(), running(summary=summary)), kind) == want


def test_a_violation_once_found_stays_found() -> None:
    """Also when the consumer that counted it is gone and nobody reports it any more."""
    first = made(external(), running(summary=Summary(connected=True, violations={"late": 1})))
    second = made(external(), running(summary=Summary(connected=True, epochs={0: 1}), conditions=first.conditions))
    assert condition(second, Type.ORDER_PROVEN) == ("False", "ViolationsFound")


def test_the_transition_time_moves_only_when_the_status_flips() -> None:
    """Another reason or message keeps it; another status takes the time of the look."""
    first = made(external(), running())
    later = replace(running(requested=3, conditions=first.conditions), wall=WALL + 60)
    second = made(external(), later)
    times = {c.finding.type: c.since for c in second.conditions}
    assert condition(second, Type.READY)[0] == Status.FALSE
    assert times[Type.READY] == WALL + 60
    assert times[Type.BROKER_REACHABLE] == WALL


def test_the_last_plan_is_kept_until_the_next_one_with_actions() -> None:
    """A person sees what was done last, not that nothing is done now."""
    done = made(external(), running(3, requested=2)).status.last_plan
    assert done is not None
    assert done["actions"] == ["set desired to 2: 2 asked for", "set effective to 2, generation 4"]
    assert made(external(), running(last_plan=done)).status.last_plan == done
