"""A running broker against a model, over its socket: a plain list per queue, with deaths of both sides in between."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lbg.brokers import base
from lbg.brokers.base import HandoverAbility
from lbg.testing.contract import BrokerUnderTest, Scene, Taker

if TYPE_CHECKING:
    from tests.brokers.embedded.conftest import BrokerOf

Result = TypeVar("Result")

QUEUES: Final = 2
STEP_LIMIT: Final = 30.0
"""Seconds for what the model expects to come true; only a failure reaches it."""


class Bound:
    """A taker with its session, and what the model expects it to have got."""

    def __init__(self, taker: Taker, session: base.Session, window: int, priority: int) -> None:
        self.taker = taker
        self.session = session
        self.window = window
        self.priority = priority
        self.want: list[str] = []
        self.held: list[str] = []
        self.checked = 0  # deliveries whose marks were looked at


def shows_links(count: int) -> Callable[[base.QueueState], bool]:
    return lambda state: state.links == count


class BrokerAgainstLists(RuleBasedStateMachine):
    """Each step is played on the broker and on the lists, and then everything must agree."""

    links = Bundle("links")
    broker: BrokerUnderTest  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.bodies = (f"m{number}" for number in itertools.count())
        self.pending: list[list[str]] = [[] for _ in range(QUEUES)]
        self.bound: list[list[Bound]] = [[] for _ in range(QUEUES)]
        self.active: list[Bound | None] = [None] * QUEUES
        self.delivered: set[str] = set()
        self.doubtful: set[str] = set()  # waited when the broker was killed, perhaps under an announced mark
        self.ledgers: list[tuple[int, int]] = [(-1, -1)] * QUEUES  # below any that can be written
        self.run(self.open())

    def run(self, step: Awaitable[Result]) -> Result:
        async def limited() -> Result:
            async with asyncio.timeout(STEP_LIMIT):
                return await step

        return self.runner.run(limited())

    async def open(self) -> None:
        admin = await self.broker.adapter.open_admin(self.broker.url)
        self.scene = Scene(self.broker, admin)
        await self.scene.declare(queues=QUEUES)
        self.ability = admin.abilities.handover
        self.publisher = await self.scene.session("publisher")
        self.kills = 0

    def teardown(self) -> None:
        self.run(self.scene.tidy())
        self.runner.close()

    # Steps.

    @rule(queue=st.integers(0, QUEUES - 1), count=st.integers(1, 8))
    def publish(self, queue: int, count: int) -> None:
        bodies = list(itertools.islice(self.bodies, count))
        self.run(self.scene.publish(*bodies, queue=queue, session=self.publisher))
        self.pending[queue] += bodies
        self.agree()

    @rule(target=links, queue=st.integers(0, QUEUES - 1), window=st.integers(1, 5), priority=st.integers(0, 2))
    def bind(self, queue: int, window: int, priority: int) -> object:
        refused = self.ability is HandoverAbility.EXCLUSIVE and bool(self.bound[queue])
        session = self.run(self.scene.session())
        try:
            taker = self.run(self.scene.bind(queue, session=session, window=window, priority=priority))
        except base.BindRefused:
            assert refused
            return multiple()
        assert not refused
        bound = Bound(taker, session, window, priority)
        self.bound[queue].append(bound)
        self.agree()
        return (queue, bound)

    @rule(link=links, choices=st.data())
    def acknowledge(self, link: tuple[int, Bound], choices: st.DataObject) -> None:
        queue, bound = link
        if bound not in self.bound[queue]:
            return
        some = choices.draw(st.lists(st.sampled_from(bound.held), unique=True) if bound.held else st.just([]))
        bound.taker.ack(*some)
        for body in some:
            bound.held.remove(body)
            self.pending[queue].remove(body)
        self.agree()

    @rule(link=consumes(links), way=st.sampled_from(["release", "close", "cut"]))
    def end(self, link: tuple[int, Bound], way: str) -> None:
        queue, bound = link
        if bound not in self.bound[queue]:
            return
        if way == "release":
            self.run(bound.taker.bound.release())
        elif way == "close":
            self.run(bound.session.close())
        else:
            self.run(self.scene.broker.cut(bound.session))
        self.forget(queue, bound)
        self.agree()

    @rule(link=links, epoch=st.integers(0, 3), version=st.integers(0, 3))
    def write_ledger(self, link: tuple[int, Bound], epoch: int, version: int) -> None:
        queue, bound = link
        allowed = bound is self.active[queue] and bound.want and (epoch, version) > self.ledgers[queue]
        entry = base.LedgerEntry(epoch, version, f"{epoch}.{version}".encode())
        try:
            self.run(bound.taker.bound.write_ledger(entry))
        except base.LinkLost:
            assert not allowed
        else:
            assert allowed
            self.ledgers[queue] = (epoch, version)
            assert self.run(self.broker.ledger(self.scene.prefix, queue)) == entry.data

    @precondition(lambda self: self.kills < 2)  # each takes as long as all other steps
    @rule()
    def kill_the_broker(self) -> None:
        # The model has no acknowledgement that may be lost: `agree` waited until each of them was stored.
        self.run(self.scene.broker.restart())
        self.kills += 1
        self.doubtful.update(*self.pending)
        for queue in range(QUEUES):
            for bound in tuple(self.bound[queue]):
                self.run(bound.taker.until_lost())
                self.forget(queue, bound)
        self.run(self.scene.reopen_admin())
        self.publisher = self.run(self.scene.session("publisher"))
        self.agree()

    # The model.

    def forget(self, queue: int, bound: Bound) -> None:
        self.bound[queue].remove(bound)
        if self.active[queue] is bound:
            self.active[queue] = None

    def expect(self, queue: int) -> None:
        """Work out who is active and what it must have got by now."""
        links, active = self.bound[queue], self.active[queue]
        best = max((bound.priority for bound in links), default=0)
        by_priority = self.ability is HandoverAbility.BROKER
        if active is None or (by_priority and active.priority < best and not active.held):
            candidates = [bound for bound in links if bound.priority == best] if by_priority else links
            active = self.active[queue] = candidates[0] if candidates else None
        if active is None or (by_priority and active.priority < best):
            return
        free = [body for body in self.pending[queue] if body not in active.held]
        new = free[: active.window - len(active.held)]
        active.want += new
        active.held += new

    def agree(self) -> None:
        for queue in range(QUEUES):
            self.expect(queue)
        self.run(self.compare())

    async def compare(self) -> None:
        for queue in range(QUEUES):
            await self.scene.until_count(len(self.pending[queue]), queue)
            for bound in self.bound[queue]:
                assert await bound.taker.until(len(bound.want)) == bound.want
                self.check_marks(bound)
            # The broker learns from its socket that a connection was cut, a moment later.
            state = await self.scene.until_state(shows_links(len(self.bound[queue])), queue)
            active = self.active[queue]
            held = len(active.held) if active else 0
            assert (state.backlog, state.unacknowledged) == (len(self.pending[queue]), held)
            assert (state.active is None) == (active is None)

    def check_marks(self, bound: Bound) -> None:
        """Each delivery is marked exactly if its message had been delivered before, doubtful ones at least then."""
        for delivery in bound.taker.deliveries[bound.checked :]:
            body = delivery.message.body.decode()
            if body in self.delivered or body not in self.doubtful:
                assert delivery.redelivered == (body in self.delivered)
            self.delivered.add(body)
        bound.checked = len(bound.taker.deliveries)


@pytest.mark.parametrize("ability", list(HandoverAbility))
def test_a_broker_does_what_lists_would_do(broker_of: BrokerOf, ability: HandoverAbility) -> None:
    """Agrees with the model on deliveries, marks, figures, refusals, ledgers and the file, in any order of steps."""

    class OnThisBroker(BrokerAgainstLists):
        broker = broker_of[ability]

    # Each example talks to processes, so there are few of them; the machine of one queue is tested with many.
    run_state_machine_as_test(
        OnThisBroker,
        settings=settings(max_examples=10, stateful_step_count=25, suppress_health_check=list(HealthCheck)),
    )
