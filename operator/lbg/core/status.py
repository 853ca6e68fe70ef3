"""The status of a group: what a person asks first, and the shape that tools read.

The same shape is the object's `status` on Kubernetes and what `lbg status -o json` prints, kept stable: fields are
added, never changed. Its size is bounded however large the group is: at most `QUEUES_SHOWN` queues, those with the
deepest backlog, and `STANDBYS_SHOWN` standbys of each; the totals always count all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from lbg.core import assignment, findings
from lbg.core.conditions import Condition
from lbg.core.membership import Seat
from lbg.core.observed import Observed, QueueLook
from lbg.core.spec.group import LoadBalancedGroup

QUEUES_SHOWN: Final = 64
"""About 10 kB of status; etcd takes 1.5 MB, but every watcher is sent every change."""
STANDBYS_SHOWN: Final = 4
GROUP_LABEL: Final = "lbg.dev/group"
"""Label that selects a group's consumers; its value is the group's name without namespace."""


_table = lru_cache(maxsize=256)(assignment.assign)  # the same few tables are asked for with every look


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Who serves a queue. None is unknown, or nobody."""

    queue: int
    owner: str | None  # name of the consumer that is active
    ordinal: int | None  # of the consumer that should be
    standby: tuple[str, ...]  # names by rank; a seat without holder is left out
    epoch: int | None
    backlog: int | None

    def to_mapping(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "queue": self.queue,
            "owner": self.owner,
            "ordinal": self.ordinal,
            "standby": list(self.standby),
            "epoch": self.epoch,
            "backlog": self.backlog,
        }


@dataclass(frozen=True, slots=True)
class Status:
    """The whole status."""

    observed_generation: int
    desired: int
    effective: int
    replicas: int | None  # consumers that run, leaving ones included
    ready: int | None  # consumers that are seated and connected
    selector: str
    generation: int  # assignment generation
    table_version: int
    backlog: int | None  # of all queues together; None as soon as one is unknown
    queue_count: int
    queues: tuple[QueueStatus, ...]
    violations: Mapping[str, int] = field(default_factory=dict)  # order findings by kind
    last_plan: Mapping[str, object] | None = None  # {"at", "actions"}
    conditions: tuple[Condition, ...] = ()

    def to_mapping(self) -> dict[str, object]:
        """Return the JSON form with Kubernetes field names."""
        return {
            "observedGeneration": self.observed_generation,
            "desired": self.desired,
            "effective": self.effective,
            "replicas": self.replicas,
            "ready": self.ready,
            "selector": self.selector,
            "generation": self.generation,
            "tableVersion": self.table_version,
            "backlog": self.backlog,
            "queueCount": self.queue_count,
            "queues": [queue.to_mapping() for queue in self.queues],
            "violations": dict(self.violations),
            "lastPlan": None if self.last_plan is None else dict(self.last_plan),
            "conditions": [condition.to_mapping() for condition in self.conditions],
        }


def status_of(
    group: LoadBalancedGroup,
    seen: Observed,
    *,
    desired: int,
    effective: int,
    generation: int,
    last_plan: Mapping[str, object] | None,
    conditions: tuple[Condition, ...],
) -> Status:
    """Return the status after a look, with what was planned for the group's own numbers."""
    looks = {look.queue: look for look in seen.queues or ()}
    backlogs = [look.backlog for look in looks.values() if look.backlog is not None]
    is_complete = len(backlogs) == group.spec.queues.count
    held = [seat for seat in seen.seats or () if seat.holder is not None]
    return Status(
        observed_generation=seen.group.spec_generation,
        desired=desired,
        effective=effective,
        replicas=None if seen.consumers is None else len(seen.consumers),
        ready=None if seen.seats is None else len({seat.holder for seat in held if seat.summary.connected}),
        selector=f"{GROUP_LABEL}={group.metadata.name}",
        generation=generation,
        table_version=assignment.TABLE_VERSION,
        backlog=sum(backlogs) if is_complete else None,
        queue_count=group.spec.queues.count,
        queues=_queues(group, seen, looks, held, effective),
        violations=findings.violations_of(seen),
        last_plan=last_plan,
        conditions=conditions,
    )


def _queues(
    group: LoadBalancedGroup, seen: Observed, looks: Mapping[int, QueueLook], held: Sequence[Seat], effective: int
) -> tuple[QueueStatus, ...]:
    spec = group.spec
    count = spec.queues.count
    shown: Sequence[int] = range(count)
    if count > QUEUES_SHOWN:
        # Unknown first: a queue that cannot be looked at is worth a look.
        deepest = sorted(shown, key=lambda queue: (-_depth(looks.get(queue)), queue))
        shown = sorted(deepest[:QUEUES_SHOWN])
    table = _table(count, min(effective, count), seen.group.name, spec.assignment.policy, spec.assignment.standbys)
    names = {seat.ordinal: name_of(seat.holder, seen) for seat in held if seat.holder is not None}
    active: dict[int, Seat] = {}
    for seat in held:
        for queue, epoch in seat.summary.epochs.items():
            # Reports may be one renewal old, so two may claim a queue: the higher epoch is the later one.
            if queue not in active or active[queue].summary.epochs[queue] < epoch:
                active[queue] = seat
    rows = []
    for queue in shown:
        serving, look = active.get(queue), looks.get(queue)
        # The broker knows who is active where no report says it, but only by the name of the link.
        told = look.active if look is not None else None
        owner = serving.holder if serving is not None else told
        standbys = [names[ordinal] for ordinal in table.standbys(queue) if ordinal in names]
        rows.append(
            QueueStatus(
                queue=queue,
                owner=None if owner is None else name_of(owner, seen),
                ordinal=table.owner(queue),
                standby=tuple(standbys[:STANDBYS_SHOWN]),
                epoch=serving.summary.epochs[queue] if serving is not None else None,
                backlog=look.backlog if look is not None else None,
            )
        )
    return tuple(rows)


def _depth(look: QueueLook | None) -> float:
    backlog = look.backlog if look is not None else None
    return float("inf") if backlog is None else float(backlog)


def name_of(holder: str, seen: Observed) -> str:
    """Return the name of the consumer behind a holder string or a link's name."""
    for consumer in seen.consumers or ():
        if consumer.is_holder(holder):
            return consumer.name
    # name _ UID _ nonce, see `seating.Holder`
    return holder.rsplit("_", 2)[0]
