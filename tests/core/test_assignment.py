"""The laws of the table: minimal movement, even holdings, standbys that spread a death, and a pinned version."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import assignment
from lbg.core.assignment import ALL, Move, Policy, Standbys, Table, assign

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "assignment-vectors.json").read_text("utf-8")
)

groups = st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=1, max_size=12)
policies = st.sampled_from(Policy)
depths: st.SearchStrategy[Standbys] = st.one_of(st.integers(0, 5), st.just(ALL))


@st.composite
def tables(draw: st.DrawFn, least: int = 1) -> Table:
    """Draw a table with at least `least` consumers, up to 256 queues and 64 consumers."""
    queues = draw(st.integers(least, 256))
    consumers = draw(st.integers(least, min(queues, 64)))
    return assign(queues, consumers, draw(groups), draw(policies), draw(depths))


def holdings(table: Table) -> list[int]:
    """Count the queues of each ordinal from the owners alone."""
    held = Counter(table.owners)
    return [held[ordinal] for ordinal in range(table.consumers)]


def test_one_more_consumer_moves_the_fewest_queues_and_all_of_them_to_it() -> None:
    """Exhaustive for all QC <= 256: n -> n + 1 moves exactly floor(QC / (n + 1)), none between survivors."""
    for queues in range(1, 257):
        before = assign(queues, 1, "orders").owners
        for consumers in range(2, queues + 1):
            after = assign(queues, consumers, "orders").owners
            moved = [target for source, target in zip(before, after, strict=True) if source != target]
            assert moved == [consumers - 1] * (queues // consumers), (queues, consumers)
            before = after


@given(st.integers(2, 256), groups, st.data())
def test_minimal_movement_holds_for_any_group(queues: int, group: str, data: st.DataObject) -> None:
    """The same law for other groups, through `moves`, and the bound that `lower_bound` states."""
    consumers = data.draw(st.integers(1, queues - 1))
    before, after = assign(queues, consumers, group), assign(queues, consumers + 1, group)
    moved = assignment.moves(before, after)
    assert len(moved) == queues // (consumers + 1) == assignment.lower_bound(queues, consumers, consumers + 1)
    assert {move.target for move in moved} <= {consumers}
    back = assignment.moves(after, before)
    assert back == tuple(Move(queue, target, source) for queue, source, target in moved)


@given(st.integers(1, 256), groups, st.data())
def test_growth_over_several_steps_moves_only_to_newcomers(queues: int, group: str, data: st.DataObject) -> None:
    """From any CC to any larger one no queue moves between survivors, and never fewer than the bound move."""
    few = data.draw(st.integers(0, queues))
    many = data.draw(st.integers(few, queues))
    moved = assignment.moves(assign(queues, few, group), assign(queues, many, group))
    assert all(move.target is not None and move.target >= few for move in moved)
    bound = assignment.lower_bound(queues, few, many)
    # Newcomers may hold the whole remainder of QC / CC where the best table would leave it with survivors.
    assert bound <= len(moved) <= bound + (queues % many if many else 0)


@given(tables())
def test_holdings_are_floor_or_ceil(table: Table) -> None:
    """Every consumer holds floor or ceil of QC / CC queues, and every queue has an owner below CC."""
    held = holdings(table)
    assert sum(held) == len(table.owners) == table.queues
    assert {*held} <= {table.queues // table.consumers, -(-table.queues // table.consumers)}


@given(tables())
def test_helpers_agree_with_the_owners(table: Table) -> None:
    """`owner`, `queues_of`, `standby`, `standbys` and `standing_by` are views of one table."""
    for queue in range(table.queues):
        owner = table.owner(queue)
        assert owner == table.owners[queue]
        assert queue in table.queues_of(owner)
    assert sorted(q for o in range(table.consumers) for q in table.queues_of(o)) == list(range(table.queues))
    behind = {(q, r): o for o in range(table.consumers) for q, r in table.standing_by(o).items()}
    assert behind == {(q, r): o for q in range(table.queues) for r, o in enumerate(table.standbys(q))}
    assert all(table.standby(queue, rank) == ordinal for (queue, rank), ordinal in behind.items())


@given(tables())
def test_standbys_are_other_consumers_and_distinct(table: Table) -> None:
    """A standby is never the primary, ranks of a queue differ, and as many stand by as asked for or possible."""
    survivors = table.consumers - 1
    want = survivors if table.depth == ALL else min(table.depth, survivors)
    for queue in range(table.queues):
        standbys = table.standbys(queue)
        assert len({*standbys, table.owners[queue]}) == want + 1
        assert all(0 <= ordinal < table.consumers for ordinal in standbys)
        assert table.standby(queue, want) is None
        assert table.standby(queue, -1) is None


@pytest.mark.parametrize(
    ("queues", "consumers", "group", "depth"),
    [(4, 3, "g208368", ALL), (4, 3, "g558070", 2), (6, 3, "g217979", 2), (6, 3, "g169001", 3)],
)
def test_an_ordinal_without_room_for_rank_0_still_gets_a_later_rank(
    queues: int, consumers: int, group: str, depth: Standbys
) -> None:
    """Groups in which hashing settles rank 0 last: their queues once had fewer standbys than configured."""
    table = assign(queues, consumers, group, standbys=depth)
    assert {len(table.standbys(queue)) for queue in range(queues)} == {consumers - 1}


@given(tables(least=2))
def test_a_dead_consumers_queues_spread_within_one_over_all_survivors(table: Table) -> None:
    """Whoever dies, its queues go to their first standbys in shares that differ by at most one."""
    table = assign(table.queues, table.consumers, table.group, table.policy)
    for dead in range(table.consumers):
        taken = Counter(table.standby(queue, 0) for queue in table.queues_of(dead))
        shares = [taken[ordinal] for ordinal in range(table.consumers) if ordinal != dead]
        assert max(shares) - min(shares) <= 1


@given(tables())
def test_a_table_is_a_pure_function_of_its_arguments(table: Table) -> None:
    """Equal arguments give equal tables with equal standbys, whatever was asked of them before."""
    again = assign(table.queues, table.consumers, table.group, table.policy, table.depth)
    assert again == table
    assert [again.standbys(q) for q in reversed(range(table.queues))][::-1] == [
        table.standbys(q) for q in range(table.queues)
    ]


@given(tables(least=2))
def test_more_standbys_leave_the_first_ranks_as_they_are(table: Table) -> None:
    """Configuring another standby per queue rebinds none of those that stand already."""
    one, two = (assign(table.queues, table.consumers, table.group, table.policy, depth) for depth in (1, 2))
    assert all(two.standbys(queue)[:1] == one.standbys(queue) for queue in range(table.queues))


@pytest.mark.parametrize(("queues", "consumers"), [(12, 6), (48, 7), (256, 15), (256, 60), (1000, 100)])
def test_most_standbys_stay_when_a_consumer_joins(queues: int, consumers: int) -> None:
    """Over ten groups, fewer than half of the queues that keep their primary change their standby."""
    kept = changed = 0
    for number in range(10):
        before, after = (assign(queues, cc, f"group-{number}") for cc in (consumers, consumers + 1))
        for queue in range(queues):
            if before.owner(queue) == after.owner(queue):
                kept += 1
                changed += before.standby(queue, 0) != after.standby(queue, 0)
    assert changed < kept / 2


def test_the_remainder_does_not_land_on_ordinal_0_in_every_group() -> None:
    """Over 200 groups of 14 queues and 4 consumers, no ordinal among the first three is the busiest always or never."""
    busiest: Counter[int] = Counter()
    for number in range(200):
        held = holdings(assign(14, 4, f"group-{number}"))
        busiest.update(ordinal for ordinal, count in enumerate(held) if count == max(held))
    assert all(40 < busiest[ordinal] < 190 for ordinal in range(3))


def test_modulo_is_the_rule_of_existing_clients() -> None:
    """Queue q belongs to ordinal q % CC; that moves far more than Balanced does."""
    assert assign(7, 3, "any", Policy.MODULO).owners == (0, 1, 2, 0, 1, 2, 0)
    step = [assign(12, cc, "any", Policy.MODULO) for cc in (3, 4)]
    assert len(assignment.moves(*step)) == 9
    assert assignment.lower_bound(12, 3, 4) == 3


@given(st.integers(1, 256), depths)
def test_no_consumers_is_an_empty_table(queues: int, depth: Standbys) -> None:
    """At CC 0 every queue has neither owner nor standby, and leaving 0 moves each queue from nobody."""
    table = assign(queues, 0, "orders", standbys=depth)
    assert table.owners == ()
    assert {table.owner(queue) for queue in range(queues)} == {None}
    assert {table.standbys(queue) for queue in range(queues)} == {()}
    assert table.queues_of(0) == ()
    assert table.standing_by(0) == {}
    first = assignment.moves(table, assign(queues, 1, "orders"))
    assert first == tuple(Move(queue, None, 0) for queue in range(queues))
    assert len(first) == assignment.lower_bound(queues, 0, 1)


@pytest.mark.parametrize(
    ("queues", "before", "after", "want"),
    [(12, 3, 4, 3), (12, 4, 3, 3), (48, 7, 8, 6), (10, 1, 3, 6), (12, 5, 5, 0), (12, 0, 5, 12), (5, 2, 5, 3)],
)
def test_lower_bound_by_hand(queues: int, before: int, after: int, want: int) -> None:
    """The bound for joins, leaves, jumps, no change and from zero."""
    assert assignment.lower_bound(queues, before, after) == want


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ((0, 0, "g"), "queues: 0 is out of bounds: use 1 to 10000"),
        ((10_001, 1, "g"), "queues: 10001 is out of bounds: use 1 to 10000"),
        ((4, 5, "g"), "consumers: 5 is out of bounds: use 0 to 4, the number of queues"),
        ((4, -1, "g"), "consumers: -1 is out of bounds: use 0 to 4, the number of queues"),
        ((4, 1, "g", Policy.BALANCED, -1), "standbys: -1 is negative: use 0 or more, or All"),
    ],
)
def test_assign_refuses_what_is_out_of_bounds(arguments: tuple[Any, ...], want: str) -> None:
    """The message names the argument and the bounds."""
    with pytest.raises(ValueError, match=f"^{want}$"):
        assign(*arguments)


def test_a_queue_that_is_not_there_is_refused() -> None:
    """A negative queue must not wrap around to the last one."""
    table = assign(4, 2, "orders")
    for queue in (-1, 4):
        with pytest.raises(ValueError, match=f"^queue: {queue} is out of bounds: use 0 to 3$"):
            table.owner(queue)
        with pytest.raises(ValueError, match=f"^queue: {queue} is out of bounds: use 0 to 3$"):
            table.standbys(queue)


def test_tables_of_other_queues_cannot_be_compared() -> None:
    """Another QC is another striping, not a list of moves."""
    with pytest.raises(ValueError, match="queues: 4 and 5 differ"):
        assignment.moves(assign(4, 2, "orders"), assign(5, 2, "orders"))


def test_the_vectors_are_of_this_version() -> None:
    """Changed rules need another version and other vectors, together."""
    assert VECTORS["version"] == assignment.TABLE_VERSION


@pytest.mark.parametrize(
    "vector", VECTORS["tables"], ids=lambda v: f"{v['group']}-{v['queues']}-{v['consumers']}-{v['policy']}"
)
def test_every_vector_is_reproduced(vector: dict[str, Any]) -> None:
    """Owners and standbys of this version never change: pods of two releases must agree on them."""
    table = assign(vector["queues"], vector["consumers"], vector["group"], Policy(vector["policy"]), vector["depth"])
    assert list(table.owners) == vector["owners"]
    assert [list(table.standbys(queue)) for queue in range(table.queues)] == vector["standbys"]
