"""`spec.consumers`: how many, which handler, and what happens to an event that fails."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, model_validator

from lbg.core import durations, striping
from lbg.core.spec.fields import Duration, Fields, HttpUrl, PythonPath, StreamName, Wanted, Whole, check_plain, lasting
from lbg.core.spec.problems import Problem, Unfit, unfit

GRACE_BEYOND_BUDGET: Final = 15
"""Seconds a pod needs beyond its drain budget: to offer its seat, close its links and exit."""


class OnPoison(StrEnum):
    """What becomes of an event that has failed maxAttempts times."""

    BLOCK = "Block"
    DEAD_LETTER = "DeadLetter"
    PARK_KEY = "ParkKey"


class OnBudgetExceeded(StrEnum):
    """What happens to a handover whose handlers outlive the drain budget."""

    WAIT = "Wait"
    FORCE = "Force"


class HttpHandler(Fields):
    """A handler behind HTTP, usually a sidecar of the consumer."""

    url: HttpUrl
    """Where each event is sent by POST; a 2xx answer means handled."""
    timeout: Duration = lasting("30s", "1ms", "24h")
    """How long to wait for the answer before the attempt counts as failed."""


class Republish(Fields):
    """A handler that passes each event on unchanged."""

    to: StreamName
    """Name of the output stream that receives the event's own body."""


class Output(Fields):
    """Where the runtime writes what a handler returned."""

    to: StreamName
    """Name of the append-only output stream; one record per handled event, written before its acknowledgement."""


class Handler(Fields):
    """What is done with each event: exactly one of python, http and republish."""

    python: PythonPath | None = None
    """A Python callable, sync or async, as package.module:function; it takes the event and a context."""
    http: HttpHandler | None = None
    """An HTTP endpoint that each event is posted to."""
    republish: Republish | None = None
    """Pass each event on to an output stream."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Handler:
        given = [kind for kind in ("python", "http", "republish") if getattr(self, kind) is not None]
        if not given:
            raise Unfit(Problem("", "", "names no handler", "give exactly one of python, http, republish"))
        if len(given) > 1:
            raise Unfit(Problem("", "", f"names {' and '.join(given)}", "keep exactly one of them"))
        return self


class Retry(Fields):
    """How often and how fast a failed event is tried again. Only its own shard waits meanwhile."""

    max_attempts: Whole = Field(default=5, ge=1, le=1_000_000)
    """Attempts per event, the first one included; then onPoison applies."""
    backoff: Duration = lasting("200ms", "0s", "24h")
    """Wait before the second attempt; it doubles with each further one."""
    max_backoff: Duration = Field(default_factory=lambda given: max(30.0, given.get("backoff", 0.0)), ge=0, le=86_400)
    """Longest wait between two attempts. Default: 30s, or backoff if that is longer."""

    @model_validator(mode="after")
    def _backoff_grows(self) -> Retry:
        if self.max_backoff < self.backoff:
            least = durations.text(self.backoff)
            raise unfit(
                durations.text(self.max_backoff),
                f"is less than retry.backoff {least}",
                f"use at least {least}",
                "maxBackoff",
            )
        return self


def _available(policy: OnPoison) -> OnPoison:
    if policy is OnPoison.PARK_KEY:
        raise unfit(policy.value, "is not available yet", "use Block or DeadLetter")
    return policy


class Consumers(Fields):
    """The consumers of a group."""

    min: Whole = Field(default=1, ge=0, le=striping.MAX_QUEUES)
    """Fewest consumers that scaling may leave; 0 lets an idle group sleep."""
    max: Whole | None = Field(default=None, ge=1, le=striping.MAX_QUEUES)
    """Most consumers that scaling may reach. Default: queues.count, since more could not be fed."""
    replicas: Whole = Field(default_factory=lambda given: given.get("min", 1), ge=0, le=striping.MAX_QUEUES)
    """Desired number of consumers; what `kubectl scale` and autoscalers write. Default: min."""
    window: Whole = Field(default=50, ge=1, le=10_000)
    """Unacknowledged events the broker may have out per queue."""
    lanes: Whole = Field(default=8, ge=1, le=1024)
    """Handlers that run at once in one consumer, each on another shard."""
    handler: Annotated[Handler, Wanted("exactly one of python, http, republish below it")]
    """What is done with each event."""
    output: Output | None = None
    """Where to write what the handler returned; handler.republish implies it."""
    retry: Retry = Retry()
    """How failed events are tried again."""
    on_poison: Annotated[OnPoison, AfterValidator(_available)] = OnPoison.BLOCK
    """After the last attempt: Block stops the event's shard and says so, DeadLetter sets the event aside."""
    drain_budget: Duration = lasting("30s", "0s", "24h")
    """How long handlers in hand may take when a queue is handed over."""
    on_budget_exceeded: OnBudgetExceeded = OnBudgetExceeded.WAIT
    """Wait reports and goes on waiting; Force closes the connection, so that events in hand are delivered again."""
    template: Annotated[dict[str, Any], Wanted("a mapping, as in a Deployment's template")] = Field(
        default_factory=dict
    )
    """Fragment of a PodTemplateSpec, merged into the one the operator writes."""

    @property
    def output_to(self) -> str | None:
        """Return the output stream written after each handled event, asked for or implied; None without one."""
        if self.handler.republish is not None:
            return self.handler.republish.to
        return self.output.to if self.output is not None else None

    @model_validator(mode="after")
    def _one_output(self) -> Consumers:
        republish = self.handler.republish
        if republish is not None and self.output is not None and self.output.to != republish.to:
            raise unfit(
                self.output.to,
                f"is not handler.republish.to, {republish.to}",
                "remove output, republish implies it",
                "output.to",
            )
        return self

    @model_validator(mode="after")
    def _enough_grace(self) -> Consumers:
        check_plain(self.template, "template")
        pod = self.template.get("spec")
        grace = pod.get("terminationGracePeriodSeconds") if isinstance(pod, dict) else None
        if grace is None:
            return self
        path = "template.spec.terminationGracePeriodSeconds"
        least = int(-(-self.drain_budget // 1)) + GRACE_BEYOND_BUDGET
        if not isinstance(grace, int) or isinstance(grace, bool):
            raise unfit(grace, "is not a whole number", f"write at least {least}, or remove the line", path)
        if grace < least:
            budget = f"drainBudget {durations.text(self.drain_budget)} plus {GRACE_BEYOND_BUDGET}s"
            raise unfit(grace, f"is less than {budget}", f"use at least {least}, or remove the line", path)
        return self
