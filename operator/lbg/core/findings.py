"""What one look says about a group, apart from scaling: one finding per condition type that can be judged now.

Here the observed records become sentences. Nothing is decided here, and nothing is remembered but one thing: an order
violation that was found stays found, also when the queue that counted it is on the move and nobody reports it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from lbg.core import conditions
from lbg.core.conditions import Finding, Status, Type
from lbg.core.marks import Violation
from lbg.core.membership import Blocked
from lbg.core.observed import Observed, Presence
from lbg.core.spec import loading
from lbg.core.spec.group import LoadBalancedGroup

_BROKEN: Final = (Violation.GAP, Violation.LATE, Violation.INCARNATION)
_UNJUDGED: Final = (Violation.UNKNOWN, Violation.UNSEQUENCED)


def refusal(group: LoadBalancedGroup, seen: Observed) -> Finding | None:
    """Return why the spec must not be acted on, or None: it would lose or reorder events, or take somebody's names."""
    look = seen.topology
    if look.presence is Presence.CONFLICT:
        names = ", ".join(look.names) or f"prefix {group.prefix}"
        return _unprovisioned("NameInUse", f"in use by others: {names}; choose another spec.prefix, or remove them")
    if look.presence is not Presence.OURS or look.contract is None:
        return None
    stored, asked = look.contract, loading.contract(group)
    if asked == stored:
        return None
    if asked.queues < stored.queues:
        return _unprovisioned(
            "QueuesShrunk",
            f"spec.queues.count: {asked.queues} is less than the {stored.queues} in use, events in the others would be "
            f"lost: write {stored.queues}, or make a new group",
        )
    fields = (
        ("spec.prefix", asked.prefix, stored.prefix),
        ("spec.hashing.count", asked.count, stored.count),
        ("spec.hashing.algorithm", asked.algorithm.value, stored.algorithm.value),
        ("spec.queues.count", asked.queues, stored.queues),
    )
    changed = "; ".join(f"{path}: {new} is {old} in use" for path, new, old in fields if new != old)
    return _unprovisioned(
        "ImmutableChanged", f"{changed}: keys would move while their events wait; write it back, or make a new group"
    )


def _unprovisioned(reason: str, message: str) -> Finding:
    return Finding(Type.QUEUES_PROVISIONED, Status.FALSE, reason, message)


def of_broker(group: LoadBalancedGroup, seen: Observed) -> tuple[Finding, Finding]:
    """Return BrokerReachable and QueuesProvisioned."""
    look, count = seen.topology, group.spec.queues.count
    if look.presence is Presence.UNKNOWN:
        why = look.reason or "the broker does not answer"
        return (
            Finding(Type.BROKER_REACHABLE, Status.FALSE, "Unreachable", f"{why}; consumers go on with what they hold"),
            Finding(Type.QUEUES_PROVISIONED, Status.UNKNOWN, "BrokerUnreachable", "the queues cannot be looked at"),
        )
    answers = Finding(Type.BROKER_REACHABLE, Status.TRUE, "Answers", "the broker answers")
    refused = refusal(group, seen)
    if refused is not None:
        return answers, refused
    if look.presence is Presence.ABSENT or not look.complete:
        return answers, _unprovisioned("Declaring", f"{count} queues and what belongs to them are being declared")
    return answers, Finding(Type.QUEUES_PROVISIONED, Status.TRUE, "Declared", f"{count} queues are declared")


def of_consumers(seen: Observed, target: int, effective: int) -> Finding:
    """Return ConsumersAvailable: whether the seats that the group wants are held by connected consumers."""
    if seen.seats is None:
        message = "the seats cannot be read; consumers go on with what they hold"
        return Finding(Type.CONSUMERS_AVAILABLE, Status.UNKNOWN, "SeatsUnreadable", message)
    connected = sum(seat.ordinal < target and seat.summary.connected for seat in seen.seats if not seat.is_vacant)
    message = f"{connected} of {target} consumers are seated and connected, effective {effective}"
    if target == 0:
        return Finding(Type.CONSUMERS_AVAILABLE, Status.TRUE, "NoneWanted", "no consumer is wanted")
    if connected == 0:
        return Finding(Type.CONSUMERS_AVAILABLE, Status.FALSE, "NoneConnected", message)
    if connected < target:
        return Finding(Type.CONSUMERS_AVAILABLE, Status.FALSE, "SomeConnected", message)
    return Finding(Type.CONSUMERS_AVAILABLE, Status.TRUE, "AllConnected", message)


def of_summaries(group: LoadBalancedGroup, seen: Observed) -> Iterator[Finding]:
    """Yield what the holders of seats report; nothing when the seats could not be read."""
    if seen.seats is None:
        return
    summaries = seen.summaries
    yield _blocked(group, seen)
    stalled = sorted({queue for summary in summaries for queue in summary.stalled})
    if stalled:
        message = f"queues {_some(stalled)}: handlers in hand outlive the drain budget; the handover waits for them"
        yield Finding(Type.HANDOVER_STALLED, Status.TRUE, "BudgetExceeded", message)
    else:
        yield Finding(Type.HANDOVER_STALLED, Status.FALSE, "InTime", "no handover is late")
    unreadable = any(Type.LEDGER_UNREADABLE.value in summary.conditions for summary in summaries)
    if unreadable:
        message = "a consumer cannot read its ledger: order is not checked there"
        yield Finding(Type.LEDGER_UNREADABLE, Status.TRUE, "NotReadable", message)
    else:
        yield Finding(Type.LEDGER_UNREADABLE, Status.FALSE, "Readable", "every reported ledger can be read")
    yield _order(seen, is_unreadable=unreadable)


def full_queues(group: LoadBalancedGroup, seen: Observed) -> frozenset[int]:
    """Return the queues that a blocked shard has stopped: its events fill the window, so nothing else gets through."""
    held = {blocked.queue for summary in seen.summaries for blocked in summary.blocked}
    window = group.spec.consumers.window
    filled = {queue.queue for queue in seen.queues or () if (queue.unacknowledged or 0) >= window}
    return frozenset(held & filled)


def _blocked(group: LoadBalancedGroup, seen: Observed) -> Finding:
    blocked = sorted((b for summary in seen.summaries for b in summary.blocked), key=lambda b: (b.since_ms, b.shard))
    if not blocked:
        return Finding(Type.QUEUE_BLOCKED, Status.FALSE, "NoneBlocked", "no shard is blocked")
    full = full_queues(group, seen)
    worst = next((b for b in blocked if b.queue in full), blocked[0])
    reason = "WindowFull" if worst.queue in full else "ShardBlocked"
    return Finding(Type.QUEUE_BLOCKED, Status.TRUE, reason, _blocked_message(worst, blocked, reason))


def _blocked_message(worst: Blocked, blocked: Sequence[Blocked], reason: str) -> str:
    stopped = ", and the queue with it," if reason == "WindowFull" else ""
    more = f" ({len(blocked) - 1} more)" if len(blocked) > 1 else ""
    since = conditions.timestamp(worst.since_ms / 1000)
    # The error comes last: it is what is cut off when the line is too long.
    return (
        f"shard {worst.shard} of queue {worst.queue}{stopped} is blocked since {since} by {worst.message_id}{more}; "
        f"mend the handler, or skip it: {worst.error}"
    )


def violations_of(seen: Observed) -> Mapping[str, int]:
    """Return the order findings that active consumers report, by kind."""
    total: Counter[str] = Counter()
    for summary in seen.summaries:
        total.update(summary.violations)
    return dict(sorted(total.items()))


def _order(seen: Observed, *, is_unreadable: bool) -> Finding:
    counts = violations_of(seen)
    broken = {kind: counts[kind] for kind in _BROKEN if counts.get(kind)}
    if broken:
        said = ", ".join(f"{count} {kind}" for kind, count in broken.items())
        return Finding(Type.ORDER_PROVEN, Status.FALSE, "ViolationsFound", f"order findings since creation: {said}")
    last = conditions.find(seen.group.conditions, Type.ORDER_PROVEN)
    if last is not None and last.finding.status is Status.FALSE:
        return last.finding
    unjudged = {kind: counts[kind] for kind in _UNJUDGED if counts.get(kind)}
    if unjudged or is_unreadable:
        said = ", ".join(f"{count} {kind}" for kind, count in unjudged.items()) or "a ledger cannot be read"
        return Finding(Type.ORDER_PROVEN, Status.UNKNOWN, "SomeUnjudged", f"events that could not be judged: {said}")
    if not any(summary.epochs for summary in seen.summaries):
        return Finding(Type.ORDER_PROVEN, Status.UNKNOWN, "NothingReported", "no consumer is active on a queue yet")
    return Finding(Type.ORDER_PROVEN, Status.TRUE, "NoViolation", "every handled event was in order")


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"


def ready(found: Mapping[Type, Finding], *, target: int, effective: int, held_by: tuple[str, str] | None) -> Finding:
    """Return Ready, the summary of the other findings.

    Args:
        found: the findings of this look by type.
        target: CC that should serve.
        effective: CC that the table in force is built from.
        held_by: reason and message of what keeps the group from being ready whatever was found (suspended, deleting).
    """
    if held_by is not None:
        return Finding(Type.READY, Status.FALSE, *held_by)
    for kind in (Type.BROKER_REACHABLE, Type.QUEUES_PROVISIONED, Type.CONSUMERS_AVAILABLE):
        finding = found[kind]
        if finding.status is not Status.TRUE:
            return Finding(Type.READY, finding.status, finding.reason, finding.message)
    if effective != target:
        message = f"effective {effective} of {target} wanted: queues are moving"
        return Finding(Type.READY, Status.FALSE, "Moving", message)
    blocked = found.get(Type.QUEUE_BLOCKED)
    if blocked is not None and blocked.reason == "WindowFull":
        return Finding(Type.READY, Status.FALSE, blocked.reason, blocked.message)
    return Finding(Type.READY, Status.TRUE, "Serving", f"{target} consumers serve all queues")
