"""What a run remembers about its group between passes and between supervisors: kept in the state file as a document.

The view is stored on its own, since the consumers read it; this is the rest of the record that `plan` wants back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from lbg.core import assignment, conditions, spec
from lbg.core.observed import Basis, GroupRecord
from lbg.local.store import State

RECORD: Final = "record"


def load(state: State, name: str, text: str) -> GroupRecord:
    """Read the record of a group; a new one where the run is new.

    Args:
        state: the run's state file.
        name: the group's name, the hash input of its assignment.
        text: the YAML at hand. One that differs from what the consumers were given is a new generation of the spec.
    """
    stored: dict[str, Any] = state.document(RECORD) or {}
    view = state.view()
    adopted = int(stored.get("adopted_generation", 0))
    basis = stored.get("basis")
    record = GroupRecord(
        name=name,
        requested=stored.get("requested"),
        desired=stored.get("desired"),
        basis=None if basis is None else Basis(basis[0], assignment.Policy(basis[1]), basis[2]),
        spec_generation=adopted if view is not None and view.spec == text and adopted else adopted + 1,
        adopted_generation=adopted,
        conditions=tuple(c for raw in stored.get("conditions", ()) if (c := conditions.from_mapping(raw)) is not None),
        last_plan=stored.get("last_plan"),
    )
    if view is None:
        return record
    return replace(
        record,
        effective=view.effective,
        generation=view.generation,
        suspended=view.suspended,
        requests=view.requests,
    )


def save(state: State, record: GroupRecord) -> None:
    """Write the record if it differs from what is stored: every commit wakes the consumers."""
    basis = record.basis
    body = {
        "requested": record.requested,
        "desired": record.desired,
        "basis": None if basis is None else [basis.queues, basis.policy.value, basis.table_version],
        "adopted_generation": record.adopted_generation,
        "conditions": [condition.to_mapping() for condition in record.conditions],
        "last_plan": None if record.last_plan is None else dict(record.last_plan),
    }
    if body != state.document(RECORD):
        state.write_document(RECORD, body)


def basis_of(group: spec.LoadBalancedGroup, table_version: int) -> Basis:
    """Return what an assignment generation of this spec is made for."""
    return Basis(group.spec.queues.count, group.spec.assignment.policy, table_version)
