"""Laws of the parts that bound memory: sequences as runs, places with a cache, fingerprints in a file."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lbg.validator import Expected, Published
from lbg.validator.places import KeyCount, Places, pair, place
from lbg.validator.sequences import Seen

MARKS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=80)


@given(MARKS)
def test_runs_remember_what_a_table_would(marks: list[tuple[int, int]]) -> None:
    """For any marks: the answer is the tenure of the last mark, and the holes are what was never marked."""
    seen, table = Seen(), dict[int, int]()
    for sequence, tenure in marks:
        assert seen.mark(sequence, tenure) == table.get(sequence)
        table[sequence] = tenure
        assert {n: t for first, end, t in seen.runs() for n in range(first, end)} == table
    highest = max(table, default=-1)
    assert [n for first, end in seen.holes() for n in range(first, end)] == sorted(set(range(highest)) - set(table))
    for upto in (0, 7, 40):
        missing = [n for first, end in seen.holes(upto) for n in range(first, end)]
        assert missing == sorted(set(range(upto)) - set(table))


@given(MARKS)
def test_runs_are_as_few_as_can_be(marks: list[tuple[int, int]]) -> None:
    """Neighbours of one tenure are one run, so that an ordered stream costs one run per tenure."""
    seen = Seen()
    for sequence, tenure in marks:
        seen.mark(sequence, tenure)
    runs = list(seen.runs())
    assert all(first < end for first, end, _ in runs)
    for (_, end, tenure), (first, _, next_tenure) in pairwise(runs):
        assert end < first or (end == first and tenure != next_tenure)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_places_compare_as_their_pairs(incarnation: int, sequence: int, other: int, other_sequence: int) -> None:
    """One integer stands for (incarnation, sequence), in order and without loss."""
    assert pair(place(incarnation, sequence)) == (incarnation, sequence)
    smaller = place(incarnation, sequence) < place(other, other_sequence)
    assert smaller == ((incarnation, sequence) < (other, other_sequence))


WRITES = st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 2), st.text(max_size=2), st.booleans()), max_size=60)


@given(WRITES, st.integers(0, 5))
def test_places_survive_being_written_out(writes: list[tuple[str, int, str, bool]], limit: int) -> None:
    """Whatever the limit and whenever the cache is trimmed: the last place is found and keys and strays are counted."""
    places, table = Places(limit), dict[tuple[str, int, str], int]()
    lanes = {(producer, shard): places.lane(producer, shard) for producer in "pq" for shard in range(3)}
    for at, (producer, shard, key, trims) in enumerate(writes):
        assert places.find(producer, shard, key) == table.get((producer, shard, key))
        lanes[producer, shard][key] = table[producer, shard, key] = place(1, at)
        if trims:
            places.trim()
    streams = {(producer, key) for producer, _, key in table}
    assert places.count() == KeyCount(len({key for _, key in streams}), len(table) - len(streams))
    assert all(places.find(*where) == at for where, at in table.items())
    stray = {key for producer, key in streams if sum((producer, shard, key) in table for shard in range(3)) > 1}
    assert set(places.strays(100)) == stray
    places.close()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", "ключ"])), max_size=60))
def test_expectation_knows_each_key_and_no_more(rows: list[tuple[int, str]]) -> None:
    """Each published event is right under its own key and wrong under another; one more of a shard is invented."""
    dealt = [0] * 4
    entries = []
    for shard, key in rows:
        entries.append(Published(key, shard, dealt[shard]))
        dealt[shard] += 1
    expected = Expected(entries)
    for key, shard, sequence, *_ in entries:
        assert expected.fault("p", 1, shard, sequence, key) is None
        assert expected.fault("p", 1, shard, sequence, key + "?") == "wrong-key"
    assert [expected.fault("p", 1, shard, dealt[shard], "x") for shard in range(4)] == ["invented"] * 4
    assert {shard: count for _, shard, count in expected.lanes()} == {s: n for s, n in enumerate(dealt) if n}
    expected.close()
