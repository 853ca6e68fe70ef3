"""What one look at the world saw: the records that `observe` fills on every substrate and that `plan` decides from.

Records only. Reading a broker, a cluster or a process table is the substrate's part, deciding is `plan`'s. Two rules
for whoever fills them:

* *Unknown is None*, never 0 and never an empty tuple. `queues=None` says that the broker did not answer; `queues=()`
  would say that it has no queues.
* *Order of reading*: the group first, then the seats, then the consumers. A holder that is in the seats and not among
  the consumers read after them is gone. Read the other way round, a consumer that started in between would look gone
  and lose the seat that it has just claimed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo

from lbg.core import assignment
from lbg.core.conditions import Condition
from lbg.core.contract import Contract
from lbg.core.membership import Request, Seat, Summary


@dataclass(frozen=True, slots=True)
class Basis:
    """What an assignment generation was made for, besides the effective CC. Stored with it."""

    queues: int  # QC
    policy: assignment.Policy
    table_version: int = assignment.TABLE_VERSION


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """What is stored about the group itself: its view, its status, and what somebody asks of it now."""

    name: str  # namespace/name or name: the assignment's hash input
    requested: int | None = None  # CC that `/scale` (or another terminal) asks for now, unchecked; None: the YAML's own
    desired: int | None = None  # CC granted so far; None before the first plan
    effective: int = 0
    generation: int = 0  # assignment generation
    basis: Basis | None = None  # of that generation
    suspended: bool = False  # as the view says
    spec_generation: int = 1  # metadata.generation of the spec at hand
    adopted_generation: int = 0  # metadata.generation of the spec that the view describes
    replicas: int | None = None  # what a Deployment is told to run; None where processes are started one by one
    deleting: bool = False
    requests: tuple[Request, ...] = ()
    conditions: tuple[Condition, ...] = ()  # as last written
    last_plan: Mapping[str, object] | None = None  # as last written to the status


class Presence(enum.StrEnum):
    """What stands on the broker under the group's names."""

    UNKNOWN = "unknown"  # the broker does not answer
    ABSENT = "absent"
    OURS = "ours"
    CONFLICT = "conflict"  # a name is in use by somebody else


@dataclass(frozen=True, slots=True)
class TopologyLook:
    """One look at the group's objects on the broker."""

    presence: Presence
    contract: Contract | None = None  # as stored on the broker, where ours
    complete: bool = True  # False: an object that the spec asks for is missing, declare again
    names: tuple[str, ...] = ()  # in use by others, each with its owner where known
    reason: str = ""  # why the broker does not answer, one line without credentials


@dataclass(frozen=True, slots=True)
class QueueLook:
    """One look at a queue, with the fields of the broker contract's `QueueState`. None is unknown."""

    queue: int
    ready: int | None = None
    unacknowledged: int | None = None
    links: int | None = None
    active: str | None = None  # name its active link was bound under
    published: int | None = None  # messages accepted since declaration, monotonic
    hot_shard: int | None = None  # shard with most of the backlog, where a broker or consumer can tell

    @property
    def backlog(self) -> int | None:
        """Return ready plus unacknowledged, or None when either is unknown."""
        if self.ready is None or self.unacknowledged is None:
            return None
        return self.ready + self.unacknowledged


@dataclass(frozen=True, slots=True)
class Consumer:
    """One living consumer: a pod that is not gone, or a process. A dead one is not listed."""

    name: str
    identity: str  # the holder string without its last part, the per-process nonce: name _ UID
    started_at: float  # grows with later starts; only compared with each other
    ready: bool = False
    leaving: bool = False  # told to go (SIGTERM sent, pod terminating), still handing over
    outdated: bool = False  # to be replaced by a rollout of processes; a Deployment replaces pods itself: leave False
    cpu: float | None = None  # percent of its CPU request

    def is_holder(self, holder: str | None) -> bool:
        """Return whether a holder string (or the name of a link) is this consumer's."""
        return holder is not None and self.identity in (holder, holder.rpartition("_")[0])


@dataclass(frozen=True, slots=True)
class Observed:
    """One look at everything. `None` for a whole part says that it could not be read."""

    group: GroupRecord
    topology: TopologyLook
    queues: tuple[QueueLook, ...] | None  # by index
    seats: tuple[Seat, ...] | None  # by ordinal
    consumers: tuple[Consumer, ...] | None
    wall: float  # seconds since the Unix epoch: for people, schedules and transition times, never for durations
    zones: Mapping[str, tzinfo] = field(default_factory=dict)  # by IANA name, for `schedules`

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """Return what the holders of seats say, none when the seats could not be read."""
        return tuple(seat.summary for seat in self.seats or () if seat.holder is not None)
