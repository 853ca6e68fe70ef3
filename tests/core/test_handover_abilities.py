"""Handover by what the broker can do: one story per rule of each ability, told to one machine by hand."""

from __future__ import annotations

import pytest

from lbg.core import handover
from lbg.core.handover import Ability, Bind, Drain, Handover, Release
from lbg.core.membership import NOWHERE, Standing
from lbg.core.roles import Direction, Role
from tests.core.worlds.machines import (
    FIRST,
    NOBODY,
    PRIMARY,
    SECOND,
    STANDBY,
    THIRD,
    TIMING,
    active,
    asked,
    behind,
    release,
    waiting,
)

OTHERS = [Ability.COOPERATIVE, Ability.BROKER]  # the abilities in which a second link may wait


# Cooperative release.


def test_cooperative_the_holder_drains_once_the_primary_is_bound_and_registers_behind_it() -> None:
    """The planned move, from the holder's side."""
    machine = active(PRIMARY)
    assert machine.direct(behind(THIRD), 0.0) == [Drain()]
    assert machine.emptied() == [Release(clean=True)]
    assert machine.released(0.1) == [Bind(0)]
    machine.bound(0.2)
    assert machine.reports.bound == THIRD
    assert machine.tick(3600.0) == []


def test_cooperative_a_standby_ahead_of_the_primary_steps_aside() -> None:
    """It leaves, binds again, and reports that it stands behind now."""
    machine = waiting(behind(FIRST))
    assert machine.direct(behind(THIRD), 0.0) == [Release(clean=False)]
    assert machine.reports.bound == FIRST, "until the release is taken it may still be registered ahead"
    assert machine.released(0.1) == [Bind(0)]
    machine.bound(0.2)
    assert machine.reports.bound == THIRD


def test_cooperative_the_holder_waits_for_others_to_step_aside_but_not_for_ever() -> None:
    """Within the limit the primary is the first in line; beyond it the wrong standby costs one more move."""
    machine = active(PRIMARY)
    crowded = behind(THIRD, aside=False)
    assert machine.direct(crowded, 0.0) == []
    assert machine.wake_at == TIMING.aside_limit
    assert machine.direct(crowded, 1.0) == []
    assert machine.tick(TIMING.aside_limit) == [Drain()]


def test_cooperative_the_limit_begins_anew_when_the_primary_registers_anew() -> None:
    """Others need time to step behind its new place."""
    machine = active(PRIMARY)
    machine.direct(behind(Standing(2, 1, 1), aside=False), 0.0)
    assert machine.direct(behind(Standing(2, 1, 2), aside=False), 1.5) == []
    assert machine.tick(2.5) == []
    assert machine.tick(3.5) == [Drain()]


def test_cooperative_the_wrong_standby_hands_over_in_turn() -> None:
    """It was activated because it was registered ahead; the primary's bind is news to it."""
    machine = waiting(STANDBY)
    machine.delivered()
    machine.activated(0.0)
    assert machine.direct(behind(FIRST), 0.1) == [Drain()]


@pytest.mark.parametrize("ability", OTHERS)
def test_a_standby_waits_for_the_primary_to_bind_first(ability: Ability) -> None:
    """Ahead of it, it would be activated in its place; it waits as long as the primary may be on its way."""
    machine = Handover(ability)
    assert machine.direct(STANDBY, 0.0) == []
    assert machine.wake_at == TIMING.grace
    assert machine.direct(behind(FIRST), 0.2) == [Bind(0)]
    late = Handover(ability)
    late.direct(STANDBY, 0.0)
    assert late.tick(TIMING.grace) == [Bind(0)]


def test_a_standby_does_not_wait_for_a_primary_that_is_not_there() -> None:
    """A vacant seat, or a holder without a connection: the standby is all there is."""
    machine = Handover(Ability.COOPERATIVE)
    assert machine.direct(Direction(Role.STANDBY, generation=1), 0.0) == [Bind(0)]


# Only news counts.


@pytest.mark.parametrize("ability", OTHERS)
def test_who_is_activated_in_spite_of_the_primary_knows_that_it_is_gone(ability: Ability) -> None:
    """The dead still report `bound`: the survivor serves on, and hands over to the next that binds."""
    machine = active(behind(FIRST), ability)
    assert machine.direct(behind(FIRST), 0.0) + machine.tick(25.0) == []
    assert machine.direct(STANDBY, 30.0) == []
    assert machine.direct(behind(Standing(1, 2, 1)), 31.0) == [Drain()]


def test_an_exclusive_queue_is_let_go_once_per_asking() -> None:
    """Who did not take it while it was free is gone; whoever is alive asks anew."""
    machine = active(STANDBY, Ability.EXCLUSIVE)
    assert machine.direct(asked(FIRST), 0.0) == [Drain()]
    release(machine, 0.1)
    now = machine.wake_at or 0.0
    assert [type(action) for action in machine.tick(now)] == [Bind]
    machine.bound(now)
    machine.delivered()
    machine.activated(now)
    assert machine.direct(asked(FIRST), now) + machine.tick(now + 60.0) == []
    assert machine.direct(asked(SECOND), now + 61.0) == [Drain()]


def test_a_link_on_its_way_out_does_not_stand() -> None:
    """Made the primary while it lets go, it reports nothing until it is bound again: nobody drains towards it."""
    machine = active(PRIMARY)
    machine.direct(behind(THIRD), 0.0)
    machine.emptied()
    machine.direct(Direction(Role.PRIMARY, generation=3, term=1), 0.1)
    assert machine.reports.bound is None
    assert machine.released(0.2) == [Bind(0)]
    machine.bound(0.3)
    assert machine.reports.bound == Standing(3, 1, 2)


# Handover by the broker.


def test_broker_the_primary_outbids_every_earlier_one_and_standbys_bid_nothing() -> None:
    """Equal priorities never switch, so generation and term are packed into one number that only grows."""
    priorities = [handover.priority_of(*point) for point in [(0, 1), (1, 1), (1, 2), (1, 1 << 30), (2, 1)]]
    assert priorities == sorted(set(priorities))
    machine = Handover(Ability.BROKER)
    assert machine.direct(PRIMARY, 0.0) == [Bind(handover.priority_of(1, 1))]
    assert Handover(Ability.BROKER).direct(Direction(Role.STANDBY), 0.0) == [Bind(0)]


def test_broker_the_primary_waits_until_the_holder_knows() -> None:
    """So that its ledger is clean before the broker switches; a holder that learns nothing is not waited for."""
    machine = Handover(Ability.BROKER)
    unaware = Direction(Role.PRIMARY, generation=2, term=1, aware=False)
    assert machine.direct(unaware, 0.0) == []
    assert machine.wake_at == TIMING.grace
    assert len(machine.direct(Direction(Role.PRIMARY, generation=2, term=1, aware=True), 0.5)) == 1
    late = Handover(Ability.BROKER)
    late.direct(unaware, 0.0)
    assert len(late.tick(TIMING.grace)) == 1


def test_broker_a_holder_that_may_be_switched_away_guards_its_last_acknowledgement() -> None:
    """As soon as somebody else should serve, or it is asked to end; a primary among its own need not."""
    assert not active(PRIMARY, Ability.BROKER).guards_last_ack
    machine = active(PRIMARY, Ability.BROKER)
    machine.direct(STANDBY, 0.0)
    assert machine.guards_last_ack
    stopping = active(PRIMARY, Ability.BROKER)
    stopping.stop(0.0)
    assert stopping.guards_last_ack
    for ability in (Ability.COOPERATIVE, Ability.EXCLUSIVE):
        other = active(PRIMARY, ability)
        other.direct(STANDBY, 0.0)
        assert not other.guards_last_ack


def test_broker_a_waiting_link_with_the_priority_of_another_role_binds_again() -> None:
    """Up when it becomes the primary, down when it no longer is: its number is all that the broker goes by."""
    machine = waiting(behind(FIRST), Ability.BROKER)
    assert machine.direct(Direction(Role.PRIMARY, generation=2, term=1), 0.0) == [Release(clean=False)]
    assert machine.released(0.1) == [Bind(handover.priority_of(2, 1))]
    machine.bound(0.2)
    assert machine.direct(Direction(Role.STANDBY, generation=3, primary_absent=True), 0.3) == [Release(clean=False)]
    assert machine.released(0.4) == [Bind(0)]


def test_broker_a_waiting_standby_need_not_step_aside() -> None:
    """It stands behind by priority, whichever of them registered first; its report says so."""
    machine = waiting(STANDBY, Ability.BROKER)
    assert machine.reports.bound == NOWHERE
    assert machine.direct(behind(FIRST), 0.0) == []
    assert machine.reports.bound == FIRST


# Exclusive bind.


def test_exclusive_a_refused_primary_asks_and_retries_quickly() -> None:
    """Until it is let in; then it no longer asks."""
    machine = Handover(Ability.EXCLUSIVE)
    machine.direct(PRIMARY, 0.0)
    assert machine.refused(0.1) == []
    assert machine.wake_at == pytest.approx(0.1 + TIMING.primary_retry)
    said = [(machine.reports.asks, machine.reports.bound)]
    assert machine.tick(0.2) == [Bind(0)]
    machine.bound(0.3)
    said.append((machine.reports.asks, machine.reports.bound))
    assert said == [(FIRST, None), (None, SECOND)]


def test_exclusive_asking_is_written_seldom() -> None:
    """Fifty refusals a second are no fifty writes to the seat; a new term asks at once."""
    machine = Handover(Ability.EXCLUSIVE)
    machine.direct(PRIMARY, 0.0)
    asks = set()
    now = 0.0
    while now < TIMING.ask_again:
        machine.refused(now)
        asks.add(machine.reports.asks)
        now += TIMING.primary_retry
        assert len(machine.tick(now)) == 1
    assert asks == {FIRST}
    machine.refused(now + TIMING.ask_again)
    assert machine.reports.asks is not None
    assert machine.reports.asks > FIRST
    machine.direct(Direction(Role.PRIMARY, generation=1, term=2), now + TIMING.ask_again)
    assert len(machine.tick(now + 2 * TIMING.ask_again)) == 1
    machine.refused(now + 2 * TIMING.ask_again)
    assert machine.reports.asks[:2] == (1, 2)


def test_exclusive_who_is_no_longer_the_primary_asks_no_longer() -> None:
    """Nobody should let go for it."""
    machine = Handover(Ability.EXCLUSIVE)
    machine.direct(PRIMARY, 0.0)
    machine.refused(0.1)
    machine.direct(NOBODY, 0.2)
    assert machine.reports.asks is None


def test_exclusive_standbys_retry_by_rank_and_give_way_to_a_primary_that_asks() -> None:
    """Failover needs no store: the one that asks may have died, so they go on trying, only slower."""
    paces = {}
    for rank in (0, 1):
        for direction in (Direction(Role.STANDBY, rank), asked(FIRST, rank=rank)):
            machine = Handover(Ability.EXCLUSIVE)
            machine.direct(direction, -60.0)
            machine.tick(0.0)
            machine.refused(0.0)
            paces[rank, direction.primary_asks is not None] = machine.wake_at or 0.0
    assert paces[0, False] == TIMING.standby_retry
    assert paces[1, False] == 2 * TIMING.standby_retry
    assert all(paces[rank, True] > paces[rank, False] + TIMING.primary_retry for rank in (0, 1))


def test_exclusive_who_let_go_does_not_bind_first() -> None:
    """However long the drain took: the primary that asked gets its turn before the old holder tries again."""
    machine = active(STANDBY, Ability.EXCLUSIVE)
    assert machine.direct(asked(FIRST), 0.0) == [Drain()]
    machine.emptied()
    assert machine.released(20.0) == []
    assert machine.wake_at is not None
    assert machine.wake_at > 20.0 + 2 * TIMING.primary_retry


def test_exclusive_a_waiting_link_leaves_when_the_primary_asks() -> None:
    """A queue without events is held all the same."""
    assert waiting(STANDBY, Ability.EXCLUSIVE).direct(asked(FIRST), 0.0) == [Release(clean=False)]
