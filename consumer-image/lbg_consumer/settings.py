"""What a consumer process is told: who it is, and what the group's object says about consuming."""

from __future__ import annotations

from dataclasses import dataclass, field

from lbg.core import handover, seating, spec
from lbg.core.assignment import Policy, Standbys
from lbg.core.contract import Contract


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is, given by whoever started it."""

    name: str  # pod name
    uid: str  # of the pod; a container restart keeps it
    nonce: str  # of the process

    @property
    def holder(self) -> seating.Holder:
        """Return the identity under which seats are claimed."""
        return seating.Holder(f"{self.name}_{self.uid}", self.nonce)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how soon a failing event is tried again. Times in seconds."""

    max_attempts: int = 5
    backoff: float = 0.2
    max_backoff: float = 30.0

    def delay(self, attempts: int) -> float:
        """Return the pause after the given number of attempts, doubling from `backoff` up to `max_backoff`."""
        return min(self.max_backoff, self.backoff * 2.0 ** min(attempts - 1, 30))


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """Exactly one of the three is set."""

    python: str | None = None  # "package.module:callable"
    http: str | None = None  # URL
    http_timeout: float = 30.0
    republish: str | None = None  # output name


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the runtime takes from the group's object. Times in seconds."""

    group: str
    contract: Contract
    handler: HandlerSpec
    policy: Policy = Policy.BALANCED
    standbys: Standbys = 1
    window: int = 50
    lanes: int = 8
    retry: Retry = field(default_factory=Retry)
    on_poison: str = "Block"  # or DeadLetter
    output: str | None = None
    timing: handover.Timing = field(default_factory=handover.Timing)


def from_group(group: spec.LoadBalancedGroup, name: str) -> Settings:
    """Read the settings of a group's object; `name` is what the assignment hashes, namespace included."""
    consumers = group.spec.consumers
    handler = consumers.handler
    return Settings(
        group=name,
        contract=spec.contract(group),
        handler=HandlerSpec(
            python=handler.python,
            http=handler.http.url if handler.http else None,
            http_timeout=handler.http.timeout if handler.http else 30.0,
            republish=handler.republish.to if handler.republish else None,
        ),
        policy=group.spec.assignment.policy,
        standbys=group.spec.assignment.standbys,
        window=consumers.window,
        lanes=consumers.lanes,
        retry=Retry(consumers.retry.max_attempts, consumers.retry.backoff, consumers.retry.max_backoff),
        on_poison=consumers.on_poison.value,
        output=consumers.output_to,
        timing=handover.Timing(
            drain_budget=consumers.drain_budget, force=consumers.on_budget_exceeded is spec.OnBudgetExceeded.FORCE
        ),
    )
