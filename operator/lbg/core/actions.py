"""What a plan can ask for: frozen actions that a Deployment and a set of processes can both apply.

Applying is the substrate's part and is level-triggered: an action may be repeated, and one that fails is planned again
from what is then observed. Apply in the order of the plan, and stop at the first failure. `view_after` folds those that
change the group's view, so that consumers see one change and not several.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from lbg.core.membership import GroupView


@dataclass(frozen=True, slots=True)
class DeclareTopology:
    """Create what is missing on the broker."""

    def __str__(self) -> str:
        return "declare the queues"


@dataclass(frozen=True, slots=True)
class DeleteTopology:
    """Delete the group's objects on the broker; with `only_if_empty` the broker refuses while messages remain."""

    only_if_empty: bool

    def __str__(self) -> str:
        return "delete the queues" + (" if they are empty" if self.only_if_empty else "")


@dataclass(frozen=True, slots=True)
class SetDesired:
    """Store the desired CC. With `write_back` it also replaces what `/scale` asks for (`GroupRecord.requested`)."""

    replicas: int
    reason: str  # one line for people
    write_back: bool

    def __str__(self) -> str:
        return f"set desired to {self.replicas}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SetView:
    """Store what consumers compute their roles from. The view then describes the spec of `spec_generation`."""

    effective: int
    generation: int
    table_version: int
    suspended: bool
    spec_generation: int

    def __str__(self) -> str:
        suspended = ", suspended" if self.suspended else ""
        return f"set effective to {self.effective}, generation {self.generation}{suspended}"


@dataclass(frozen=True, slots=True)
class CreateSeat:
    """Create a vacant seat; one that exists is left alone."""

    ordinal: int

    def __str__(self) -> str:
        return f"create seat {self.ordinal}"


@dataclass(frozen=True, slots=True)
class ClearSeat:
    """Vacate a seat by compare-and-swap, if this holder still has it: its process is gone."""

    ordinal: int
    holder: str

    def __str__(self) -> str:
        return f"clear seat {self.ordinal}: its holder is gone"


@dataclass(frozen=True, slots=True)
class DeleteSeat:
    """Delete a seat, if it is still vacant."""

    ordinal: int

    def __str__(self) -> str:
        return f"delete seat {self.ordinal}"


@dataclass(frozen=True, slots=True)
class Resize:
    """Run so many consumers.

    A Deployment gets `replicas`, after the pods in `remove` got the lowest deletion cost: it may still choose others,
    and the seats converge. Processes: start `add`, send SIGTERM to those in `remove`; do not wait.
    """

    replicas: int
    add: int = 0
    remove: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = [f"add {self.add}"] * (self.add > 0) + [f"remove {name}" for name in self.remove]
        return f"run {self.replicas} consumers" + (f" ({', '.join(steps)})" if steps else "")


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Take a request out of the view: a consumer has carried it out."""

    id: str
    answer: str

    def __str__(self) -> str:
        return f"request {self.id}: {self.answer}"


@dataclass(frozen=True, slots=True)
class Report:
    """Tell people: an Event on Kubernetes, a line in the run's log elsewhere."""

    reason: str  # PascalCase
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"report {self.reason}: {self.message}"


@dataclass(frozen=True, slots=True)
class Finish:
    """Let a group that is being deleted go: nothing of it needs us any more (the finalizer is removed)."""

    def __str__(self) -> str:
        return "let the group go"


Action: TypeAlias = (
    DeclareTopology
    | DeleteTopology
    | SetDesired
    | SetView
    | CreateSeat
    | ClearSeat
    | DeleteSeat
    | Resize
    | AnswerRequest
    | Report
    | Finish
)


def view_after(view: GroupView, spec: str, actions: Iterable[Action]) -> GroupView:
    """Return the group's view once the actions are applied; equal to `view` when none of them changes it.

    Args:
        spec: the YAML that was planned from. It enters the view only with a `SetView`, so a refused or paused spec
            never reaches the consumers.
    """
    for action in actions:
        match action:
            case SetDesired(replicas=replicas):
                view = replace(view, desired=replicas)
            case SetView():
                view = replace(
                    view,
                    spec=spec,
                    effective=action.effective,
                    generation=action.generation,
                    table_version=action.table_version,
                    suspended=action.suspended,
                )
            case AnswerRequest(id=done):
                view = replace(view, requests=tuple(request for request in view.requests if request.id != done))
            case _:
                pass
    return view
