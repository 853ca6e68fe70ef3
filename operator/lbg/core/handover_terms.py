"""The words of the handover machine: states, events, what it asks to be done, its limits and what it reports.

Only vocabulary: what may happen when, and why, stands in `lbg.core.handover`, which passes these names on.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from lbg.core.membership import Standing


class State(enum.StrEnum):
    """Where a consumer stands with one queue."""

    DETACHED = "detached"
    BINDING = "binding"
    WAITING = "waiting"  # bound; nothing was delivered yet
    ACTIVATING = "activating"  # first delivery seen, ledger being read and raised
    ACTIVE = "active"
    DRAINING = "draining"  # starts nothing, waits for what is in hand
    RELEASING = "releasing"


class Event(enum.StrEnum):
    """What can happen to the machine, besides time and new directions."""

    BIND = "bind"
    BOUND = "bound"
    REFUSED = "refused"
    DELIVERED = "first delivery"
    ACTIVATED = "ledger raised"
    HAND_OVER = "hand over"
    EMPTIED = "empty-handed"
    LEAVE = "leave"
    FORCE = "budget exceeded"
    RELEASED = "released"
    LOST = "lost"


class Ability(enum.StrEnum):
    """How queues move on this broker; same names as the adapters' declaration."""

    COOPERATIVE = "cooperative"
    BROKER = "broker"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a link, with a priority that only BROKER looks at."""

    priority: int


@dataclass(frozen=True, slots=True)
class Activate:
    """Read the ledger, raise its epoch, then call `activated`."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Start no handler of this queue any more; call `emptied` once nothing is in hand."""


@dataclass(frozen=True, slots=True)
class Release:
    """Let the link go, then call `released`. `clean`: write the ledger clean first."""

    clean: bool


Action: TypeAlias = Bind | Activate | Drain | Release


@dataclass(frozen=True, slots=True)
class Timing:
    """Limits in seconds. The defaults are for real brokers; tests and the simulation pass their own."""

    grace: float = 1.0  # how long others are waited for before going on without them
    aside_limit: float = 2.0
    primary_retry: float = 0.02
    standby_retry: float = 0.3  # times rank + 1
    ask_again: float = 5.0  # exclusive bind: how often a primary that is still refused asks anew
    lost_retry: float = 0.05
    offer_limit: float = 5.0  # how long an offered queue waits for its next primary on SIGTERM
    drain_budget: float = 30.0
    force: bool = False  # onBudgetExceeded: Force


@dataclass(slots=True)
class Reports:
    """What goes onto the seat about this queue."""

    bound: Standing | None = None
    asks: Standing | None = None
    stalled: bool = False
