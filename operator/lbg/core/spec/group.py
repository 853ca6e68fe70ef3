"""The LoadBalancedGroup object: the source of the field names, defaults and bounds, and of the generated CRD.

A field's own limits stand at the field. Rules between fields stand in `GroupSpec` and `LoadBalancedGroup`, and their
messages name both fields. Reading YAML is `loading`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from lbg.core import assignment, hashing, striping
from lbg.core.hashing import Algorithm
from lbg.core.spec.autoscaling import Autoscaling
from lbg.core.spec.consumers import Consumers
from lbg.core.spec.fields import DnsLabel, DnsSubdomain, Fields, Flag, StreamName, Wanted, Whole, check_plain
from lbg.core.spec.problems import Problem, Unfit, short, shown, unfit

API_VERSION = "lbg.dev/v1alpha1"
KIND = "LoadBalancedGroup"


class QueueType(StrEnum):
    """The kind of queue, on brokers that have several."""

    QUORUM = "quorum"
    CLASSIC = "classic"


class DeletionPolicy(StrEnum):
    """What happens to the queues when the group is deleted."""

    RETAIN = "Retain"
    DELETE_IF_EMPTY = "DeleteIfEmpty"
    DELETE = "Delete"


class Overflow(StrEnum):
    """What a full queue does. Dropping or dead-lettering its head would lose or reorder events, so both are missing."""

    REJECT = "Reject"


class BrokerKind(StrEnum):
    """The brokers with an adapter."""

    EMBEDDED = "embedded"
    RABBITMQ = "rabbitmq"
    LAVINMQ = "lavinmq"
    ARTEMIS = "artemis"
    SOLACE = "solace"
    BLAZINGMQ = "blazingmq"


class Metadata(Fields):
    """The object's metadata; fields that only the API server writes pass through."""

    model_config = ConfigDict(extra="allow")

    name: DnsLabel
    """Name of the group."""
    namespace: DnsLabel | None = None
    """Namespace of the group; none on one machine."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels, as on any object."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations, as on any object."""

    @model_validator(mode="after")
    def _rest_is_plain(self) -> Metadata:
        for name, value in (self.model_extra or {}).items():
            check_plain(value, short(name))
        return self


class Hashing(Fields):
    """Key -> shard. Immutable: another count or algorithm sends keys elsewhere while their events wait."""

    count: Whole = Field(default=256, ge=1, le=hashing.MAX_COUNT)
    """HC, the number of shards. Shards cost nothing; parallelism ends at their number."""
    algorithm: Algorithm = Algorithm.XXH64
    """Hash of the key; xxh64 equals Spark's pmod(xxhash64(key), count)."""


class Queues(Fields):
    """Shard -> queue."""

    count: Whole = Field(default=12, ge=1, le=striping.MAX_QUEUES)
    """QC, the number of exclusive queues; no more consumers than this can work. Immutable."""
    type: QueueType = QueueType.QUORUM
    """Kind of queue, on brokers that have several."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """What happens to the queues when the group is deleted."""
    size_limit: Whole | None = Field(default=None, ge=1, le=1_000_000_000)
    """Most events a queue may hold. Default: no limit."""
    overflow: Annotated[Overflow, Wanted("Reject; dropping the head would lose or reorder events")] = Overflow.REJECT
    """What a queue at its sizeLimit does: Reject refuses further events until there is room."""


class SecretRef(Fields):
    """A Secret in the group's namespace."""

    name: DnsSubdomain
    """Name of the Secret that holds the broker's URL and credentials."""


class Broker(Fields):
    """Where the queues live."""

    kind: BrokerKind = BrokerKind.EMBEDDED
    """Which broker; embedded needs no server and serves one machine."""
    secret_ref: SecretRef | None = None
    """Where the broker's URL and credentials are; they never stand in the group."""


class Stream(Fields):
    """How the group relates to the stream of its prefix."""

    join: Flag = False
    """Join a stream that another group owns; hashing must equal the owner's."""


def _standbys(value: Any) -> Any:
    if value == assignment.ALL or (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_STANDBYS
    ):
        return value
    raise unfit(value, "is not a number of standbys", f"write 0 to {_MOST_STANDBYS}, or {assignment.ALL}")


_MOST_STANDBYS = striping.MAX_QUEUES


class Assignment(Fields):
    """Queue -> consumer."""

    policy: assignment.Policy = assignment.Policy.BALANCED
    """Balanced moves the fewest queues; Modulo is the rule of clients that compute queue % consumers themselves."""
    standbys: Annotated[
        int | Literal["All"],
        BeforeValidator(_standbys),
        WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
    ] = 1
    """Consumers that stand by for each queue, ready to take over: a number, or All."""


class Park(Fields):
    """Parked keys."""

    limit: Whole = Field(default=1000, ge=1, le=1_000_000)
    """Most keys that a queue may park; the next one blocks its shard."""


class GroupSpec(Fields):
    """What the author of a group asks for."""

    prefix: StreamName | None = None
    """HP, the name of the stream and the first level of its topics. Default: the group's name. Immutable."""
    hashing: Hashing = Hashing()
    """Key -> shard."""
    queues: Queues = Queues()
    """Shard -> queue."""
    broker: Broker = Broker()
    """Where the queues live."""
    stream: Stream = Stream()
    """Sharing a stream with other groups."""
    assignment: Assignment = Assignment()
    """Queue -> consumer."""
    consumers: Consumers
    """The consumers and their handler."""
    autoscaling: Autoscaling = Autoscaling()
    """How the number of consumers follows the load."""
    park: Park = Park()
    """Limits of parked keys."""
    paused: Flag = False
    """Change nothing, whatever else is asked; consumers go on with what they have."""
    suspend: Flag = False
    """Hand over and hold the consumers at 0, keep everything else."""

    @property
    def max_consumers(self) -> int:
        """Return consumers.max, or QC where it is not given."""
        return self.queues.count if self.consumers.max is None else self.consumers.max

    @model_validator(mode="after")
    def _bounds_hold(self) -> GroupSpec:
        problems = [*self._too_many(), *self._schedules_too_high()]
        if problems:
            raise Unfit(*problems)
        return self

    def _too_many(self) -> Iterator[Problem]:
        """Yield where HC >= QC >= max >= min or min <= replicas <= max is broken, each pair once."""
        shards, queues, consumers = self.hashing.count, self.queues.count, self.consumers
        most = self.max_consumers
        limit = self._limit()
        if queues > shards:
            written = str(queues) if "count" in self.queues.model_fields_set else f"{queues} (the default)"
            yield Problem("queues.count", written, f"is more than hashing.count {shards}", f"use at most {shards}")
        if most > queues:
            yield _above("consumers.max", most, f"queues.count {queues}", queues)
        if consumers.min > most:
            yield _above("consumers.min", consumers.min, limit, most)
        elif consumers.replicas > most:
            yield _above("consumers.replicas", consumers.replicas, limit, most)
        elif consumers.replicas < consumers.min:
            problem = f"is less than consumers.min {consumers.min}"
            yield Problem("consumers.replicas", str(consumers.replicas), problem, f"use {consumers.min} to {most}")

    def _schedules_too_high(self) -> Iterator[Problem]:
        most = self.max_consumers
        for index, schedule in enumerate(self.autoscaling.schedules):
            if schedule.min > most:
                yield _above(f"autoscaling.schedules[{index}].min", schedule.min, self._limit(), most)

    def _limit(self) -> str:
        """Return the field that limits the consumers, with its value, as messages name it."""
        given = self.consumers.max is not None
        return f"consumers.max {self.max_consumers}" if given else f"queues.count {self.max_consumers}"


def _above(path: str, value: int, limit: str, most: int) -> Problem:
    return Problem(path, shown(value), f"is more than {limit}", f"use at most {most}")


class LoadBalancedGroup(Fields):
    """A group: one hash space, its queues and its consumers."""

    api_version: Literal["lbg.dev/v1alpha1"] = "lbg.dev/v1alpha1"
    """Version of this schema."""
    kind: Literal["LoadBalancedGroup"] = "LoadBalancedGroup"
    """What the object is."""
    metadata: Metadata
    """Name, namespace, labels, annotations."""
    spec: GroupSpec
    """What the author asks for."""

    @property
    def name(self) -> str:
        """Return the name, qualified as namespace/name where there is a namespace."""
        namespace = self.metadata.namespace
        return f"{namespace}/{self.metadata.name}" if namespace else self.metadata.name

    @property
    def prefix(self) -> str:
        """Return the stream's name: spec.prefix, or the group's own name."""
        return self.metadata.name if self.spec.prefix is None else self.spec.prefix
