"""Conditions: what is true of a group, in the shape that Kubernetes tools understand (`metav1.Condition`).

Here live the names of the condition types and the rule by which a fresh finding becomes a stored condition. Who finds
what is the business of `findings` and `scaling`; how a condition is written is the substrate's.

Polarity is part of a name. `Ready`, `QueuesProvisioned`, `ConsumersAvailable`, `ScalingActive`, `BrokerReachable` and
`OrderProven` are good when True. `HotQueue`, `QueueBlocked`, `HandoverStalled`, `ScalingIneffective` and
`LedgerUnreadable` name a trouble and are good when False. Unknown means that it could not be looked at; it is never
written as the good value.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MAX_MESSAGE: Final = 256
"""Messages are one line of at most so many characters: they travel in the status, whose size etcd bounds."""

_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]*")


class Type(enum.StrEnum):
    """What a condition is about. The order is the order in which a person wants to read them."""

    READY = "Ready"
    QUEUES_PROVISIONED = "QueuesProvisioned"
    CONSUMERS_AVAILABLE = "ConsumersAvailable"
    SCALING_ACTIVE = "ScalingActive"
    BROKER_REACHABLE = "BrokerReachable"
    ORDER_PROVEN = "OrderProven"
    HOT_QUEUE = "HotQueue"
    QUEUE_BLOCKED = "QueueBlocked"
    HANDOVER_STALLED = "HandoverStalled"
    SCALING_INEFFECTIVE = "ScalingIneffective"
    LEDGER_UNREADABLE = "LedgerUnreadable"


class Status(enum.StrEnum):
    """The three values of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one look says about one condition type; the message is made one bounded line.

    Raises:
        ValueError: the reason is not PascalCase.
    """

    type: Type
    status: Status
    reason: str
    message: str

    def __post_init__(self) -> None:
        if _REASON.fullmatch(self.reason) is None:
            raise ValueError(f"reason: {self.reason!r} is not PascalCase")
        object.__setattr__(self, "message", one_line(self.message))


@dataclass(frozen=True, slots=True)
class Condition:
    """A finding with its history, as it stands in the status."""

    finding: Finding
    since: float  # seconds since the Unix epoch of the last change of status, not of reason or message
    observed_generation: int  # of the spec that was looked at

    def to_mapping(self) -> dict[str, object]:
        """Return the `metav1.Condition` form."""
        return {
            "type": self.finding.type.value,
            "status": self.finding.status.value,
            "reason": self.finding.reason,
            "message": self.finding.message,
            "lastTransitionTime": timestamp(self.since),
            "observedGeneration": self.observed_generation,
        }


def merge(
    previous: Iterable[Condition], found: Iterable[Finding], wall: float, observed_generation: int
) -> tuple[Condition, ...]:
    """Return the conditions after a look, in the order of `Type`.

    The transition time of a condition moves only when its status flips. A type that was not looked at this time keeps
    its last condition, since saying nothing is not a change. Of two findings of one type the last one wins.
    """
    by_type = {condition.finding.type: condition for condition in previous}
    for finding in found:
        last = by_type.get(finding.type)
        same = last is not None and last.finding.status is finding.status
        since = last.since if last is not None and same else wall
        by_type[finding.type] = Condition(finding, since, observed_generation)
    return tuple(by_type[kind] for kind in Type if kind in by_type)


def find(stored: Iterable[Condition], kind: Type) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in stored if condition.finding.type is kind), None)


def from_mapping(values: Mapping[str, object]) -> Condition | None:
    """Read the `metav1.Condition` form back; None for what this version does not know, since it is only a report."""
    try:
        finding = Finding(
            Type(str(values["type"])), Status(str(values["status"])), str(values["reason"]), str(values["message"])
        )
        since = datetime.fromisoformat(str(values["lastTransitionTime"])).timestamp()
        return Condition(finding, since, int(str(values.get("observedGeneration", 0))))
    except (KeyError, ValueError):
        return None


def timestamp(wall: float) -> str:
    """Return a moment as RFC 3339 in UTC with whole seconds, the only form that `metav1.Time` keeps."""
    return datetime.fromtimestamp(int(wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def one_line(text: str) -> str:
    """Return text as one line of at most `MAX_MESSAGE` characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"
