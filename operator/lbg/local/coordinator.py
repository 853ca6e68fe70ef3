"""Observe, plan, apply for a group of processes: the same plan as on Kubernetes, on another substrate.

Here lives what the operator's reconciler does there, and nothing is decided here. One pass is one look at the broker,
the state file and the processes, one call of `plan`, and its actions in order. Every pass starts from what is, so one
that fails is made good by the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final, NamedTuple

from lbg.brokers import base
from lbg.core import actions, conditions, plan, run_log, spec
from lbg.core.actions import Action
from lbg.core.membership import GroupView, Request, StaleSeat
from lbg.core.observed import GroupRecord, Observed, Presence, QueueLook, TopologyLook
from lbg.core.run_log import RunEvent
from lbg.local import journal, records
from lbg.local.crew import Crew
from lbg.local.journal import Journal
from lbg.local.store import State

BROKER_SECONDS: Final = 1.0
"""How long a look at the broker may take before its figures count as unknown; a stopped broker never answers."""
TOPOLOGY_SECONDS: Final = 5.0  # between two looks at what is declared


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the group's queues are, and under which mark."""

    adapter: base.Adapter
    url: str
    topology: base.Topology


class Look(NamedTuple):
    """What one pass saw and what it made of it."""

    seen: Observed
    plan: plan.Plan


class Coordinator:
    """One group's plan, made and applied again and again."""

    def __init__(
        self, group: spec.LoadBalancedGroup, text: str, broker: Broker, state: State, crew: Crew, notes: Journal
    ) -> None:
        self.group = group
        self._text = text
        self._broker = broker
        self._state = state
        self._crew = crew
        self._journal = notes
        self._admin: base.Admin | None = None
        self._memory = plan.Memory()
        self._topology = TopologyLook(Presence.UNKNOWN)
        self._topology_at = float("-inf")
        self._record = records.load(state, group.name, text)
        self._zones = _zones(group)

    @property
    def record(self) -> GroupRecord:
        """Return what is stored about the group."""
        return self._record

    async def close(self) -> None:
        """Close the connection to the broker. Idempotent."""
        if self._admin is not None:
            await self._admin.close()
            self._admin = None

    async def step(self) -> Look:
        """Make one pass.

        Raises:
            StoreUnavailable: the state file cannot be read or written now; try again.
        """
        seen = await self._observe()
        made = plan.plan(self.group, seen, self._memory, time.monotonic())
        self._memory = made.memory
        self._record = replace(self._record, conditions=made.conditions, last_plan=made.status.last_plan)
        await self._apply(made.actions, seen)
        records.save(self._state, self._record)
        return Look(seen, made)

    def request(self, replicas: int) -> None:
        """Ask for a number of consumers, as `/scale` does."""
        self._record = replace(self._record, requested=replicas)

    def ask_consumers(self, request: Request) -> None:
        """Put a request into the view; the active consumer of the queue carries it out."""
        self._record = replace(self._record, requests=(*self._record.requests, request))
        self._write_view(())

    def withdraw(self, request_id: str) -> None:
        """Take a request out of the view again. Idempotent."""
        remaining = tuple(request for request in self._record.requests if request.id != request_id)
        self._record = replace(self._record, requests=remaining)
        self._write_view(())

    def suspend(self) -> None:
        """Have the consumers hand over and go, as `spec.suspend` does; the run is ending."""
        self.group = self.group.model_copy(update={"spec": self.group.spec.model_copy(update={"suspend": True})})

    async def _observe(self) -> Observed:
        # The order matters: seats before consumers, see `lbg.core.observed`.
        topology, queues = await self._look_at_broker()
        seats = self._state.seats()
        for name, at_ms in self._state.take_lost():
            self._journal.write(RunEvent(at_ms, run_log.CONNECTION_LOST, name))
        self._crew.show_connected(self._state.connected())
        return Observed(self._record, topology, queues, seats, self._crew.look(), wall=time.time(), zones=self._zones)

    async def _look_at_broker(self) -> tuple[TopologyLook, tuple[QueueLook, ...] | None]:
        try:
            async with asyncio.timeout(BROKER_SECONDS):
                if self._admin is None:
                    self._admin = await self._broker.adapter.open_admin(self._broker.url)
                if time.monotonic() - self._topology_at > TOPOLOGY_SECONDS:
                    self._topology = _topology_look(self._broker.topology, await self._find(self._admin))
                    self._topology_at = time.monotonic()
                if self._topology.presence is not Presence.OURS:
                    return self._topology, None
                states = await self._admin.observe(self.group.prefix)
        except (base.BrokerError, TimeoutError) as away:
            await self._forget_broker()
            return TopologyLook(Presence.UNKNOWN, reason=str(away) or "the broker does not answer"), None
        return self._topology, tuple(map(_queue_look, states))

    async def _find(self, admin: base.Admin) -> base.Topology | None:
        return await admin.find(self.group.prefix)

    async def _forget_broker(self) -> None:
        self._topology_at = float("-inf")
        admin, self._admin = self._admin, None
        if admin is not None:
            with contextlib.suppress(base.BrokerError, TimeoutError):
                async with asyncio.timeout(BROKER_SECONDS):
                    await admin.close()

    async def _apply(self, wanted: tuple[Action, ...], seen: Observed) -> None:
        for action in wanted:
            match action:
                case actions.DeclareTopology():
                    await self._declare()
                case actions.SetDesired():
                    self._set_desired(action)
                case actions.SetView():
                    self._set_view(action)
                case actions.AnswerRequest():
                    self._answer(action)
                case actions.Report():
                    self._report(action)
                case actions.Resize():
                    self._write_view(wanted)
                    await self._crew.add(action.add)
                    for name in action.remove:
                        self._crew.remove(name)
                case _:
                    self._keep_seat(action, seen)
        self._write_view(wanted)

    async def _declare(self) -> None:
        if self._admin is not None:
            with contextlib.suppress(base.Conflict):  # the next look names it
                await self._admin.declare(self._broker.topology)
            self._topology_at = float("-inf")

    def _set_desired(self, action: actions.SetDesired) -> None:
        before = self._record.desired
        requested = action.replicas if action.write_back else self._record.requested
        self._record = replace(self._record, desired=action.replicas, requested=requested)
        if before != action.replicas:
            detail: dict[str, object] = {"from": before or 0, "to": action.replicas, "why": action.reason}
            self._journal.note(run_log.SCALED, **detail)

    def _set_view(self, action: actions.SetView) -> None:
        self._record = replace(
            self._record,
            effective=action.effective,
            generation=action.generation,
            basis=records.basis_of(self.group, action.table_version),
            suspended=action.suspended,
            adopted_generation=action.spec_generation,
        )
        self._journal.note(run_log.EFFECTIVE, generation=action.generation, cc=action.effective)

    def _answer(self, action: actions.AnswerRequest) -> None:
        self.withdraw(action.id)
        with contextlib.suppress(ValueError):  # a request of an earlier supervisor may have another kind of number
            self._state.answer_order(int(action.id), action.answer)

    def _report(self, action: actions.Report) -> None:
        if action.reason == "ScaleOverridden":
            self._journal.note(journal.OVERRIDDEN, message=action.message)
        elif action.reason != "Scaled":  # noted with its numbers by `_set_desired`
            self._journal.note(journal.NOTE, reason=action.reason, message=action.message)

    def _keep_seat(self, action: Action, seen: Observed) -> None:
        match action:
            case actions.CreateSeat(ordinal=ordinal):
                self._state.create_seat(ordinal)
            case actions.DeleteSeat(ordinal=ordinal):
                self._state.delete_seat(ordinal)
            case actions.ClearSeat(ordinal=ordinal, holder=holder):
                seat = next((s for s in seen.seats or () if s.ordinal == ordinal and s.holder == holder), None)
                if seat is not None:
                    with contextlib.suppress(StaleSeat):  # the next look shows who has it now
                        self._state.replace_seat(seat.cleared())
            case _:
                raise AssertionError(f"a run has no use for {action!r}")

    def _write_view(self, wanted: tuple[Action, ...]) -> None:
        """Write the view if it differs from what consumers see; one write for all actions of a plan."""
        record = self._record
        if record.basis is None:
            return
        stored = self._state.view()
        # A paused or refused spec never reaches the consumers: its text enters with a SetView only.
        adopts = stored is None or any(isinstance(action, actions.SetView) for action in wanted)
        view = GroupView(
            group=record.name,
            spec=self._text if adopts or stored is None else stored.spec,
            desired=record.desired or 0,
            effective=record.effective,
            generation=record.generation,
            table_version=record.basis.table_version,
            suspended=record.suspended,
            requests=record.requests,
        )
        if view != stored:
            self._state.write_view(view)


def _topology_look(wanted: base.Topology, found: base.Topology | None) -> TopologyLook:
    if found is None:
        return TopologyLook(Presence.ABSENT)
    if found.owner != wanted.owner:
        return TopologyLook(Presence.CONFLICT, names=(f"{found.contract.prefix} (of {found.owner})",))
    return TopologyLook(Presence.OURS, found.contract, complete=set(wanted.outputs) <= set(found.outputs))


def _queue_look(state: base.QueueState) -> QueueLook:
    return QueueLook(state.queue, state.ready, state.unacknowledged, state.links, state.active, state.published)


def _zones(group: spec.LoadBalancedGroup) -> Mapping[str, tzinfo]:
    zones: dict[str, tzinfo] = {}
    for schedule in group.spec.autoscaling.schedules:
        with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError, ValueError):
            zones[schedule.time_zone] = zoneinfo.ZoneInfo(schedule.time_zone)
    return zones


def refusal(made: plan.Plan) -> str | None:
    """Return why the group's spec is not acted on at all, or None: a name in use, a change that would lose events."""
    found = conditions.find(made.conditions, conditions.Type.QUEUES_PROVISIONED)
    if found is None or found.finding.status is not conditions.Status.FALSE or found.finding.reason == "Declaring":
        return None
    return found.finding.message
