"""Who is there: seats, what their holders report, and the view of the group that everybody computes from.

Pure records, and the one seam (`Membership`) through which a consumer reads and writes them: Leases and the group's
status on Kubernetes, rows of a small SQLite file on one machine. Nothing here carries safety. With the store away,
consumers go on serving what they hold; the broker alone decides who is active.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol


class Standing(NamedTuple):
    """Where a bind stands in time: compared in field order, larger is newer.

    A primary reports its own standing. A standby reports the standing of the primary that it knows to be registered
    ahead of it, so that the active consumer can see when everybody has stepped aside.
    """

    generation: int  # assignment generation
    term: int  # of the primary's seat
    bind: int  # counts the primary's binds of this queue, since a lost link re-registers at the tail


NOWHERE = Standing(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A shard that `onPoison: Block` holds: reported for people, stored in the ledger."""

    queue: int
    shard: int
    message_id: str
    key: str
    error: str  # first error, bounded
    since_ms: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a seat's holder says about itself. Compact: it travels in an annotation of a Lease.

    `bound` and `asks` are written at once when they change; a new claim or a lost connection clears them. The rest is
    as old as the last renewal.
    """

    connected: bool = False
    bound: Mapping[int, Standing] = field(default_factory=dict)
    asks: Mapping[int, Standing] = field(default_factory=dict)
    epochs: Mapping[int, int] = field(default_factory=dict)  # queues that it is active on -> epoch
    rate: float = 0.0  # events handled per second, since the last renewal
    busy: float = 0.0  # share of lane time spent in handlers, 0..1
    in_hand: int = 0
    handled: int = 0  # since the process started
    p50_ms: float | None = None  # of handler times; None before the first event
    p99_ms: float | None = None
    violations: Mapping[str, int] = field(default_factory=dict)  # by kind, see lbg.core.ledger
    handovers_ms: tuple[float, ...] = ()  # last few: last handler end to release taken
    stalled: tuple[int, ...] = ()  # queues whose handover exceeds the drain budget
    blocked: tuple[Blocked, ...] = ()
    answered: Mapping[str, str] = field(default_factory=dict)  # request id -> what was done
    conditions: tuple[str, ...] = ()  # consumer-side conditions by reason, e.g. LedgerUnreadable

    def to_json(self) -> str:
        """Return compact JSON; default values are left out."""
        blank = Summary()
        said = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != getattr(blank, name)}
        if self.blocked:
            said["blocked"] = [[getattr(b, n) for n in Blocked.__slots__] for b in self.blocked]
        return json.dumps(said, separators=(",", ":"))


def summary_from_json(text: str) -> Summary:
    """Read a summary; unknown fields are ignored and damage gives an empty one, since it is only a report."""
    try:
        raw: Any = json.loads(text or "{}")
        return Summary(**{name: read(raw[name]) for name, read in _READERS.items() if name in raw})
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        return Summary()


def _standings(said: Any) -> Mapping[int, Standing]:
    return {int(queue): Standing(*map(int, standing)) for queue, standing in said.items()}


def _counts(said: Any) -> Mapping[str, int]:
    return {str(name): int(count) for name, count in said.items()}


def _optional_float(said: Any) -> float | None:
    return None if said is None else float(said)


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "connected": bool,
    "bound": _standings,
    "asks": _standings,
    "epochs": lambda said: {int(queue): int(epoch) for queue, epoch in said.items()},
    "rate": float,
    "busy": float,
    "in_hand": int,
    "handled": int,
    "p50_ms": _optional_float,
    "p99_ms": _optional_float,
    "violations": _counts,
    "handovers_ms": lambda said: tuple(map(float, said)),
    "stalled": lambda said: tuple(map(int, said)),
    "blocked": lambda said: tuple(
        Blocked(int(queue), int(shard), str(message_id), str(key), str(error), int(since))
        for queue, shard, message_id, key, error, since in said
    ),
    "answered": lambda said: {str(request): str(answer) for request, answer in said.items()},
    "conditions": lambda said: tuple(map(str, said)),
}
"""One reader per field, each refusing what would only fail later in somebody who reads the report."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The record through which a consumer claims an ordinal. `version` is the store's compare-and-swap token."""

    ordinal: int
    version: str
    holder: str | None = None  # pod name _ UID _ per-process nonce
    term: int = 0  # raised by each claim, never goes back
    renewals: int = 0  # raised by each renewal, so that an observer sees a change without comparing clocks
    generation: int = 0  # highest assignment generation its holders have seen
    offered: bool = False  # the holder is leaving and hands over to whoever claims
    summary: Summary = field(default_factory=Summary)

    @property
    def is_vacant(self) -> bool:
        """Return whether nobody holds the seat."""
        return self.holder is None

    def cleared(self) -> Seat:
        """Return the seat without holder and report; term and generation stay."""
        return replace(self, holder=None, offered=False, summary=Summary())


@dataclass(frozen=True, slots=True)
class Request:
    """Something a person asked for, done by the active consumer of a queue, e.g. skip a blocked message."""

    id: str
    kind: str  # "skip"
    target: str  # message id
    by: str  # who asked, for the record


@dataclass(frozen=True, slots=True)
class GroupView:
    """What every consumer computes its roles from; one writer (the coordinator), many readers."""

    group: str  # namespace/name or name; the assignment's hash input
    spec: str  # the group's YAML as applied
    desired: int  # desired CC
    effective: int  # effective CC, what the table is built from
    generation: int  # assignment generation, never goes back
    table_version: int = 1
    suspended: bool = False
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Membership:
    """One consistent look at the store."""

    view: GroupView
    seats: tuple[Seat, ...]  # by ordinal


class MembershipStore(Protocol):
    """The seam to wherever seats and the group's view live.

    Every method raises `StoreUnavailable` when the store cannot be read or written now. Time during which it could
    not be read never counts towards a seat's expiry.
    """

    async def observe(self) -> Membership:
        """Read the view and all seats."""
        ...

    async def replace(self, seat: Seat) -> Seat:
        """Write a seat if its `version` is still the stored one; return it with the new version.

        Raises:
            StaleSeat: somebody else wrote first; observe and decide again.
        """
        ...

    async def changed(self, at_most: float) -> None:
        """Return when something may have changed since the last `observe`, or after `at_most` seconds."""
        ...

    async def close(self) -> None:
        """Close. Idempotent."""
        ...


class StoreUnavailable(Exception):
    """The membership store does not answer; the message is one line for a person."""


class StaleSeat(Exception):
    """A compare-and-swap on a seat failed."""
