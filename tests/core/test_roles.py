"""Roles: what one look at the membership tells each consumer, and that everybody is told the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbg.core import assignment, roles
from lbg.core.assignment import ALL
from lbg.core.membership import GroupView, Membership, Seat, Standing, Summary
from lbg.core.roles import Direction, Role

GENERATION = 4
OLD, NEW = Standing(3, 1, 1), Standing(4, 1, 1)


def group(
    *seats: Seat, queues: int = 6, effective: int | None = None, suspended: bool = False
) -> tuple[Membership, assignment.Table]:
    """A look at these seats, and the table of its effective CC, with every standby."""
    effective = len(seats) if effective is None else effective
    view = GroupView("g", "", effective, effective, GENERATION, suspended=suspended)
    return Membership(view, seats), assignment.assign(queues, effective, "g", standbys=ALL)


def owned(ordinal: int, consumers: int = 3) -> int:
    """A queue that an ordinal of a group of this size should serve."""
    return assignment.assign(6, consumers, "g").queues_of(ordinal)[0]


CONNECTED = Summary(connected=True)


def seat(ordinal: int, says: Summary = CONNECTED, holder: str | None = None) -> Seat:
    """A holder's seat that has seen the generation."""
    return Seat(ordinal, "1", holder or f"pod-{ordinal}", term=10 + ordinal, generation=GENERATION, summary=says)


def bound(queue: int, standing: Standing) -> Summary:
    return replace(CONNECTED, bound={queue: standing})


def active(queue: int, standing: Standing | None = None) -> Summary:
    return replace(CONNECTED, bound={} if standing is None else {queue: standing}, epochs={queue: 3})


def told(looks: tuple[Membership, assignment.Table], holder: str, queue: int) -> Direction:
    return roles.directions(*looks, holder)[queue]


# Who does what.


@given(queues=st.integers(1, 12), consumers=st.integers(1, 6), depth=st.sampled_from([0, 1, 2, ALL]), data=st.data())
@settings(max_examples=60)
def test_each_queue_has_one_primary_and_its_standbys_in_rank(
    queues: int, consumers: int, depth: assignment.Standbys, data: st.DataObject
) -> None:
    """Everybody computes alone, and together they have each part of the table exactly once."""
    consumers = min(consumers, queues)
    table = assignment.assign(queues, consumers, "g", standbys=depth)
    vacant = data.draw(st.sets(st.integers(0, consumers - 1)))
    seats = tuple(Seat(n, "1") if n in vacant else seat(n) for n in range(consumers))
    seen = Membership(GroupView("g", "", consumers, consumers, GENERATION), seats)
    parts = {n: roles.directions(seen, table, f"pod-{n}") for n in range(consumers) if n not in vacant}
    for queue in range(queues):
        primaries = [n for n, part in parts.items() if part[queue].role is Role.PRIMARY]
        standbys = {n: part[queue].rank for n, part in parts.items() if part[queue].role is Role.STANDBY}
        assert primaries == [n for n in [table.owner(queue)] if n not in vacant]
        assert standbys == {n: rank for rank, n in enumerate(table.standbys(queue)) if n not in vacant}


@given(standings=st.dictionaries(st.integers(0, 5), st.builds(Standing, *[st.integers(0, 9)] * 3)))
def test_directions_are_a_pure_function_of_what_was_seen(standings: dict[int, Standing]) -> None:
    """The same look gives the same directions, and is left as it was."""
    look = group(seat(0, replace(CONNECTED, bound=standings)), seat(1), seat(2))
    before = replace(look[0])
    assert roles.directions(*look, "pod-1") == roles.directions(*look, "pod-1")
    assert look[0] == before


def test_a_consumer_without_a_seat_has_no_part() -> None:
    """It binds nothing; it still learns who is bound, for a queue that it holds from before."""
    queue = owned(0)
    direction = told(group(seat(0, bound(queue, NEW)), seat(1), seat(2)), "pod-9", queue)
    assert (direction.role, direction.primary) == (Role.NONE, NEW)


def test_a_consumer_on_the_move_counts_as_its_lower_seat() -> None:
    """Its second seat is vacated in a moment, and says nothing about another consumer."""
    queue = owned(2)
    look = group(seat(0, holder="me"), seat(1), seat(2, active(queue, NEW), "me"))
    assert told(look, "me", owned(0)).role is Role.PRIMARY
    direction = told(look, "me", queue)
    assert (direction.role, direction.primary, direction.primary_absent) == (Role.STANDBY, None, True)


def test_a_primary_is_told_its_generation_and_the_term_of_its_seat() -> None:
    """Its standing is made of them."""
    assert told(group(seat(0), seat(1), seat(2)), "pod-1", owned(1)) == Direction(
        Role.PRIMARY, generation=GENERATION, term=11, primary_absent=False
    )


@pytest.mark.parametrize("look", [group(seat(0), effective=0), group(seat(0), suspended=True)])
def test_a_group_that_should_not_be_served_releases_everything(look: tuple[Membership, assignment.Table]) -> None:
    """CC 0 is an empty table; a suspended group keeps its table and serves nothing."""
    assert all(direction.must_release for direction in roles.directions(*look, "pod-0"))
    assert {direction.role for direction in roles.directions(*look, "pod-0")} == {Role.NONE}


# What is known about the primary.


@pytest.mark.parametrize(
    ("primary", "absent"),
    [
        (seat(0), False),
        (Seat(0, "1"), True),
        (replace(seat(0), summary=Summary(connected=False)), True),
    ],
)
def test_a_vacant_or_unconnected_primary_is_absent(primary: Seat, absent: bool) -> None:
    """Nobody waits for it."""
    assert told(group(primary, seat(1), seat(2)), "pod-1", owned(0)).primary_absent is absent


def test_a_report_from_before_this_generation_does_not_count() -> None:
    """It may be about another role: a holder that has not seen the generation says nothing about the new table."""
    queue = owned(0)
    current = seat(0, replace(CONNECTED, bound={queue: OLD}, asks={queue: OLD}))
    stale = replace(current, generation=GENERATION - 1)
    before = told(group(stale, seat(1), seat(2)), "pod-1", queue)
    after = told(group(current, seat(1), seat(2)), "pod-1", queue)
    assert (before.primary, before.primary_asks) == (None, None)
    assert (after.primary, after.primary_asks) == (OLD, OLD)


# Who has stepped aside, and who knows.


@pytest.mark.parametrize(
    ("says", "aside"),
    [
        (CONNECTED, True),  # not bound
        (bound(owned(0), OLD), False),  # bound before the primary
        (bound(owned(0), NEW), True),  # bound behind it
        (active(owned(0), OLD), True),  # not waiting: it is the one that is active
        (bound(owned(1), OLD), True),  # another queue
    ],
)
def test_a_waiting_link_is_aside_once_it_says_so(says: Summary, aside: bool) -> None:
    """With every other consumer a standby: one that may be registered ahead of the primary is enough to wait."""
    look = group(seat(0, bound(owned(0), NEW)), seat(1, says), seat(2, bound(owned(0), NEW)))
    assert told(look, "pod-3", owned(0)).aside is aside


def test_the_one_that_asks_does_not_stand_in_its_own_way() -> None:
    """The holder looks at the others."""
    queue = owned(0)
    look = group(seat(0, bound(queue, NEW)), seat(1, bound(queue, OLD)), seat(2))
    assert told(look, "pod-1", queue).aside
    assert not told(look, "pod-2", queue).aside


@pytest.mark.parametrize("says", [bound(owned(0), OLD), active(owned(0))])
def test_the_primary_knows_whether_the_bound_have_seen_its_generation(says: Summary) -> None:
    """Whoever is bound may be active without having said so yet; who is not bound does not matter."""
    late = replace(seat(1, says), generation=GENERATION - 1)
    assert not told(group(seat(0), late, seat(2)), "pod-0", owned(0)).aware
    assert told(group(seat(0), seat(1, says), seat(2)), "pod-0", owned(0)).aware
    elsewhere = replace(seat(1), generation=GENERATION - 1)
    assert told(group(seat(0), elsewhere, seat(2)), "pod-0", owned(0)).aware
