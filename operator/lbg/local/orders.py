"""What other terminals ask of a run, carried out by its supervisor: the other end of `lbg.local.control`.

Every order gets one answer. A rollout and a skip are answered when they are done, the others at once.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lbg.core import run_log
from lbg.core.membership import Request
from lbg.core.spec import Mode
from lbg.local import control, journal
from lbg.local.coordinator import Coordinator
from lbg.local.crew import Crew
from lbg.local.errors import LocalError
from lbg.local.journal import Journal
from lbg.local.store import Order, State

UNBLOCKED_SECONDS: Final = 3.0
"""For how long a message must not be reported as blocked before a skip of it is refused."""


@dataclass(frozen=True, slots=True)
class _Rollout:
    order: int
    count: int
    began: float


@dataclass(frozen=True, slots=True)
class _Skip:
    order: int
    message_id: str
    since: float


class Orders:
    """Takes orders from the state file before a pass, and answers after it."""

    def __init__(
        self, state: State, coordinator: Coordinator, crew: Crew, notes: Journal, stop: Callable[[], None]
    ) -> None:
        self._state = state
        self._coordinator = coordinator
        self._crew = crew
        self._journal = notes
        self._stop = stop
        self._taken: set[int] = set()
        self._scales: list[Order] = []
        self._rollouts: list[_Rollout] = []
        self._skips: list[_Skip] = []

    def refuse_left_overs(self) -> None:
        """Refuse what was asked of an earlier supervisor of this folder: whoever asked has been told that it ended."""
        for order in self._state.orders():
            self._state.answer_order(order.id, "the run ended before it did that", refused=True)
        for request in self._coordinator.record.requests:
            self._coordinator.withdraw(request.id)

    def take(self) -> None:
        """Carry out what was filed since the last call, as far as that can be done at once."""
        for order in self._state.orders():
            if order.id not in self._taken:
                self._taken.add(order.id)
                try:
                    self._take(order)
                except LocalError as refused:
                    self._state.answer_order(order.id, str(refused), refused=True)

    def answer(self) -> None:
        """Answer what the pass since `take` has settled."""
        for order in self._scales:
            self._state.answer_order(order.id, self._scaled(int(order.arguments["replicas"])))
        self._scales.clear()
        self._withdraw_skips()
        if self._rollouts and not any(member.outdated for member in self._crew.members):
            for rollout in self._rollouts:
                seconds = time.monotonic() - rollout.began
                self._journal.note(run_log.ROLLED_OUT, replaced=rollout.count, seconds=round(seconds, 1))
                replaced = f"{rollout.count} consumer{'' if rollout.count == 1 else 's'}"
                self._state.answer_order(rollout.order, f"replaced {replaced} in {seconds:.1f} s")
            self._rollouts.clear()

    def _take(self, order: Order) -> None:
        arguments = order.arguments
        match order.kind:
            case control.SCALE:
                self._coordinator.request(int(arguments["replicas"]))
                self._scales.append(order)
            case control.KILL:
                name, number = str(arguments["consumer"]), signal.Signals[str(arguments["signal"])]
                member = self._crew.member(name)
                self._crew.kill(name, number)
                self._state.answer_order(order.id, f"sent {number.name} to {name} (pid {member.child.pid})")
            case control.ROLLOUT:
                self._roll_out(order)
            case control.SKIP:
                self._skip(order)
            case control.STOP:
                self._state.answer_order(order.id, "stopping")
                self._stop()
            case _:
                raise LocalError(f"order {order.kind} is not known to this run: it was started by another version")

    def _roll_out(self, order: Order) -> None:
        count = self._crew.mark_outdated()
        if not count:
            raise LocalError("no consumer is running: there is nothing to replace")
        self._journal.note(journal.ROLLOUT_STARTED, consumers=count, by=order.by)
        self._rollouts.append(_Rollout(order.id, count, time.monotonic()))

    def _skip(self, order: Order) -> None:
        """File a request with the consumers: only the active one knows for sure what is blocked."""
        message_id = str(order.arguments["message_id"])
        self._journal.note(journal.NOTE, skip=message_id, by=order.by)
        self._coordinator.ask_consumers(Request(str(order.id), "skip", message_id, order.by))
        self._skips.append(_Skip(order.id, message_id, time.monotonic()))

    def _withdraw_skips(self) -> None:
        """Refuse skips of what nobody reports as blocked. Not at once: during a handover nobody reports anything."""
        if not self._skips:
            return
        asked = {request.id for request in self._coordinator.record.requests}
        self._skips = [skip for skip in self._skips if str(skip.order) in asked]
        blocked = {b.message_id for seat in self._state.seats() for b in seat.summary.blocked}
        for skip in self._skips:
            if skip.message_id not in blocked and time.monotonic() - skip.since > UNBLOCKED_SECONDS:
                self._coordinator.withdraw(str(skip.order))
                why = f"message {skip.message_id} is not blocked: `lbg blocked` lists those that are"
                self._state.answer_order(skip.order, why, refused=True)

    def _scaled(self, asked: int) -> str:
        desired = self._coordinator.record.desired
        if desired == asked:
            return f"replicas {asked}"
        spec = self._coordinator.group.spec
        if spec.autoscaling.mode is Mode.OPERATOR:
            return f"replicas {asked} overridden with {desired}: autoscaling.mode Operator decides"
        return f"replicas {desired}: {asked} were asked for, bounds are {spec.consumers.min} to {spec.max_consumers}"
