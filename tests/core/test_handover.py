"""Handover: one story per rule that holds for every broker, told to one machine by hand.

How the abilities differ is told in test_handover_abilities.py; how machines get on with each other, with seats and with
a broker in test_handover_world.py.
"""

from __future__ import annotations

import pytest

from lbg.core import handover
from lbg.core.handover import Ability, Bind, Drain, Event, Handover, Release, State, Timing
from lbg.core.membership import Standing
from lbg.core.roles import Direction, Role
from tests.core.worlds.machines import (
    FIRST,
    NOBODY,
    PRIMARY,
    RELEASE_ALL,
    SECOND,
    STANDBY,
    THIRD,
    TIMING,
    active,
    behind,
    release,
    waiting,
)

# The table.


def test_what_is_not_in_the_table_is_a_programming_error() -> None:
    """A driver that reports what cannot have happened is told so, by state and event."""
    with pytest.raises(AssertionError, match="bound cannot happen while detached"):
        Handover(Ability.COOPERATIVE).bound(0.0)
    with pytest.raises(AssertionError, match="first delivery cannot happen while active"):
        active(PRIMARY).delivered()


def test_every_state_but_rest_can_be_lost_and_none_is_a_dead_end() -> None:
    """A lost connection is lost ownership, whatever was going on."""
    for state in State:
        events = {event for start, event in handover.TRANSITIONS if start is state}
        assert events
        assert (Event.LOST in events) == (state is not State.DETACHED)
    ends = {end for (_, event), end in handover.TRANSITIONS.items() if event is Event.LOST}
    assert ends == {State.DETACHED}


@pytest.mark.parametrize("ability", list(Ability))
def test_nothing_happens_before_the_first_look(ability: Ability) -> None:
    """Who knows no role binds nothing and lets nothing go."""
    machine = Handover(ability)
    assert machine.tick(0.0) + machine.connect(True, 0.0) + machine.adopt(0.0) == []
    assert machine.is_at_rest


@pytest.mark.parametrize("ability", list(Ability))
def test_a_primary_binds_activates_and_reports_its_standing(ability: Ability) -> None:
    """Generation, term of its seat, and how often it bound."""
    machine = active(PRIMARY, ability)
    assert (machine.state, machine.reports.bound) == (State.ACTIVE, FIRST)


@pytest.mark.parametrize("ability", list(Ability))
def test_a_lost_link_is_bound_again_soon_and_its_new_place_has_a_new_standing(ability: Ability) -> None:
    """It registers at the tail now, so those who were behind it are ahead."""
    machine = active(PRIMARY, ability)
    assert machine.lost(0.0) == []
    assert (machine.reports.bound, machine.wake_at) == (None, TIMING.lost_retry)
    assert [type(action) for action in machine.tick(TIMING.lost_retry)] == [Bind]
    machine.bound(0.1)
    assert machine.reports.bound == SECOND


@pytest.mark.parametrize("ability", list(Ability))
def test_nothing_is_bound_while_the_session_is_away(ability: Ability) -> None:
    """It is bound as soon as the session is back."""
    machine = Handover(ability)
    machine.connect(False, 0.0)
    assert machine.direct(PRIMARY, 1.0) == []
    assert [type(action) for action in machine.connect(True, 2.0)] == [Bind]


# Standing still.


@pytest.mark.parametrize("ability", list(Ability))
def test_a_new_generation_that_changes_no_role_moves_nothing(ability: Ability) -> None:
    """Neither an active primary nor a waiting standby binds again; what they report stays true."""
    primary = active(PRIMARY, ability)
    assert primary.direct(Direction(Role.PRIMARY, generation=2, term=1), 0.0) == []
    assert primary.reports.bound == FIRST
    standby = waiting(behind(FIRST), ability)
    assert standby.direct(Direction(Role.STANDBY, generation=2, primary=FIRST, primary_absent=False), 0.0) == []
    assert standby.reports.bound == FIRST


@pytest.mark.parametrize("ability", list(Ability))
def test_an_active_standby_that_becomes_the_primary_keeps_its_link(ability: Ability) -> None:
    """It stands where the primary should; only its report changes."""
    machine = active(behind(FIRST), ability)
    assert machine.direct(Direction(Role.PRIMARY, generation=2, term=1), 0.0) == []
    assert (machine.state, machine.reports.bound) == (State.ACTIVE, THIRD)


@pytest.mark.parametrize("ability", list(Ability))
@pytest.mark.parametrize("direction", [NOBODY, STANDBY])
def test_a_holder_serves_on_until_somebody_stands_ready(ability: Ability, direction: Direction) -> None:
    """Losing the role, or the seat, is no reason to let go."""
    machine = active(PRIMARY, ability)
    assert machine.direct(direction, 0.0) + machine.tick(3600.0) == []


@pytest.mark.parametrize("ability", list(Ability))
def test_a_group_that_should_not_be_served_lets_go_of_everything(ability: Ability) -> None:
    """CC 0 or suspended: waiting links leave, active ones drain, and nothing is bound again."""
    assert waiting(behind(FIRST), ability).direct(RELEASE_ALL, 0.0) == [Release(clean=False)]
    machine = active(PRIMARY, ability)
    assert machine.direct(RELEASE_ALL, 0.0) == [Drain()]
    release(machine, 1.0)
    assert machine.tick(3600.0) + machine.adopt(3600.0) == []


# Draining.


def test_draining_ends_only_empty_handed() -> None:
    """Time alone does not end it: a handler over the budget is waited for, and reported until the link has ended."""
    machine = active(PRIMARY)
    machine.direct(behind(THIRD), 0.0)
    assert machine.wake_at == TIMING.drain_budget
    stalled = []
    for now in (TIMING.drain_budget - 0.1, TIMING.drain_budget, 3600.0):
        assert machine.tick(now) == []
        stalled.append(machine.reports.stalled)
    release(machine, 3601.0)
    assert [*stalled, machine.reports.stalled] == [False, True, True, False]


def test_a_forced_release_is_not_clean() -> None:
    """`onBudgetExceeded: Force`: the next owner sees a crash, which is what it is for the events in hand."""
    machine = active(PRIMARY, timing=Timing(drain_budget=3.0, force=True))
    machine.direct(behind(THIRD), 0.0)
    assert machine.tick(2.9) == []
    assert machine.tick(3.0) == [Release(clean=False)]


def test_a_queue_that_comes_back_while_it_drains_is_let_go_and_bound_again() -> None:
    """The primary may be waiting already; going on here would leave it in doubt who serves."""
    machine = active(PRIMARY)
    machine.direct(behind(THIRD), 0.0)
    assert machine.direct(Direction(Role.PRIMARY, generation=3, term=1), 0.1) == []
    assert machine.emptied() == [Release(clean=True)]
    assert machine.released(0.2) == [Bind(0)]


def test_being_empty_handed_matters_only_while_draining() -> None:
    """A consumer is idle often."""
    assert active(PRIMARY).emptied() == []


# SIGTERM.


@pytest.mark.parametrize("ability", list(Ability))
def test_a_stopping_consumer_leaves_waiting_links_at_once_and_binds_nothing(ability: Ability) -> None:
    """Others should find their place before the queues move."""
    machine = waiting(behind(FIRST), ability)
    assert machine.stop(0.0) == [Release(clean=False)]
    assert machine.released(0.1) + machine.direct(PRIMARY, 1.0) + machine.adopt(2.0) == []
    assert machine.is_at_rest


@pytest.mark.parametrize("ability", list(Ability))
def test_a_stopping_consumer_serves_until_its_successor_stands_ready(ability: Ability) -> None:
    """The seat is offered; whoever claims it binds (or asks), and the queue moves once."""
    machine = active(PRIMARY, ability)
    assert machine.stop(0.0) == []
    assert machine.wake_at == TIMING.offer_limit
    successor = Direction(Role.NONE, generation=1, primary=Standing(1, 2, 1), primary_asks=Standing(1, 2, 1))
    assert machine.direct(successor, 1.0) == [Drain()]
    release(machine, 1.1)
    assert machine.is_at_rest


@pytest.mark.parametrize("ability", list(Ability))
def test_a_stopping_consumer_hands_over_after_the_offer_limit_regardless(ability: Ability) -> None:
    """Standbys take over where nobody claimed the seat; a second SIGTERM does not begin anew."""
    machine = active(PRIMARY, ability)
    machine.stop(0.0)
    assert machine.stop(4.0) == []
    assert machine.tick(TIMING.offer_limit) == [Drain()]
    release(machine, 6.0)
    assert machine.is_at_rest


@pytest.mark.parametrize("ability", list(Ability))
def test_a_consumer_that_stops_while_it_activates_comes_to_rest(ability: Ability) -> None:
    """The ledger is raised first: what was begun is ended in order."""
    machine = waiting(PRIMARY, ability)
    machine.delivered()
    assert machine.stop(0.0) == []
    assert machine.activated(TIMING.offer_limit + 1.0) == [Drain()]


# Orphans.


@pytest.mark.parametrize("ability", list(Ability))
def test_an_orphan_is_adopted_whatever_the_dead_report_and_given_back(ability: Ability) -> None:
    """Nobody is bound, whoever says so; the adopter serves until the primary binds, or asks, anew."""
    ghost = Direction(Role.NONE, generation=1, primary=FIRST, primary_absent=False)
    machine = Handover(ability)
    assert machine.direct(ghost, 0.0) == []
    assert machine.adopt(60.0) == [Bind(0)]
    machine.bound(60.1)
    assert machine.direct(ghost, 61.0) == []
    machine.delivered()
    machine.activated(62.0)
    assert machine.direct(ghost, 63.0) == []
    back = Direction(Role.NONE, generation=1, primary=SECOND, primary_asks=SECOND, primary_absent=False)
    assert machine.direct(back, 64.0) == [Drain()]
    release(machine, 64.1)
    assert machine.tick(3600.0) == []


def test_an_adopted_queue_that_becomes_ones_own_is_kept() -> None:
    """The role that it was adopted without has come."""
    machine = Handover(Ability.COOPERATIVE)
    machine.direct(NOBODY, 0.0)
    machine.adopt(1.0)
    machine.bound(1.1)
    assert machine.direct(PRIMARY, 2.0) == []
    assert machine.reports.bound == FIRST


def test_a_link_that_is_there_is_not_adopted() -> None:
    """The slow cycle looked a moment too early."""
    machine = waiting(behind(FIRST))
    assert machine.adopt(0.0) == []
    assert machine.direct(NOBODY, 1.0) == [Release(clean=False)]
