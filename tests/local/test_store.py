"""The state file of a run: compare-and-swap over seats, the view, and what happens when the file is not usable."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from lbg.core.membership import GroupView, Request, StaleSeat, Standing, StoreUnavailable, Summary
from lbg.local import store

VIEW = GroupView(group="orders", spec="spec: {}", desired=2, effective=1, generation=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def state(path: Path) -> Iterator[store.State]:
    with contextlib.closing(store.create(path)) as opened:
        opened.write_view(VIEW)
        yield opened


def test_a_seat_is_read_back_as_it_was_written(state: store.State) -> None:
    """Every field of a seat and of its summary survives the store."""
    state.create_seat(0)
    (seat,) = state.membership().seats
    said = Summary(connected=True, bound={3: Standing(1, 2, 3)}, epochs={3: 7}, rate=12.5)
    written = state.replace_seat(replace(seat, holder="a_b_c", term=4, renewals=9, offered=True, summary=said))
    assert state.membership().seats == (written,)
    assert written.version != seat.version


def test_of_two_writers_that_saw_the_same_seat_one_is_refused(path: Path, state: store.State) -> None:
    """Compare-and-swap holds across connections."""
    state.create_seat(0)
    with contextlib.closing(store.open_existing(path)) as other:
        (mine,), (theirs,) = state.membership().seats, other.membership().seats
        other.replace_seat(replace(theirs, holder="theirs"))
        with pytest.raises(StaleSeat):
            state.replace_seat(replace(mine, holder="mine"))
    assert state.membership().seats[0].holder == "theirs"


def test_a_seat_that_was_deleted_cannot_be_written_and_comes_back_with_its_term(state: store.State) -> None:
    """Term and generation never go back, and a version from before the deletion never matches again."""
    state.create_seat(0)
    held = state.replace_seat(replace(state.membership().seats[0], holder="a", term=5, generation=3))
    left = state.replace_seat(held.cleared())
    state.delete_seat(0)
    assert state.membership().seats == ()
    state.create_seat(0)
    with pytest.raises(StaleSeat):
        state.replace_seat(replace(left, holder="late"))
    (seat,) = state.membership().seats
    assert (seat.holder, seat.term, seat.generation, seat.summary) == (None, 5, 3, Summary())


def test_a_seat_that_was_claimed_meanwhile_is_not_deleted(state: store.State) -> None:
    """The coordinator's look may be older than a claim."""
    state.create_seat(0)
    held = state.replace_seat(replace(state.membership().seats[0], holder="a"))
    state.delete_seat(0)
    assert state.membership().seats == (held,)


def test_creating_a_seat_that_is_held_leaves_it_alone(state: store.State) -> None:
    """A coordinator that repeats itself disturbs nobody."""
    state.create_seat(0)
    held = state.replace_seat(replace(state.membership().seats[0], holder="a"))
    state.create_seat(0)
    assert state.membership().seats == (held,)


def test_the_view_is_read_back_with_its_requests(state: store.State) -> None:
    """Consumers see exactly what the coordinator wrote."""
    want = replace(VIEW, generation=4, suspended=True, requests=(Request("1", "skip", "p:1:2:3", "me"),))
    state.write_view(want)
    assert state.membership().view == want


def test_the_assignment_generation_never_goes_back(state: store.State) -> None:
    """A view with an older generation is refused and the stored one stays."""
    with pytest.raises(ValueError, match="generation 2 is older"):
        state.write_view(replace(VIEW, generation=2))
    assert state.membership().view == VIEW


def test_orders_are_answered_once_and_leave_the_list(state: store.State) -> None:
    """What another terminal files stays open until the supervisor has answered."""
    number = state.file_order("scale", {"replicas": 3}, "me", 17)
    (order,) = state.orders()
    assert (order.id, order.kind, order.arguments, order.by) == (number, "scale", {"replicas": 3}, "me")
    state.answer_order(number, "no", refused=True)
    assert state.orders() == ()
    assert (state.order(number).refused, state.order(number).answer) == (True, "no")


def test_changed_returns_at_once_when_another_process_has_written(path: Path, state: store.State) -> None:
    """A commit between `observe` and `changed` is not missed, and own commits do not count."""

    async def scenario() -> None:
        seats = store.SqliteMembership(store.open_existing(path))
        await seats.observe()
        state.create_seat(0)
        async with asyncio.timeout(10):
            await seats.changed(at_most=1_000)
        observed = await seats.observe()
        await seats.replace(replace(observed.seats[0], holder="me"))
        waiting = asyncio.create_task(seats.changed(at_most=1_000))
        await asyncio.wait([waiting], timeout=4 * store.POLL_SECONDS)
        assert not waiting.done()
        state.create_seat(1)
        async with asyncio.timeout(10):
            await waiting
        await seats.close()

    asyncio.run(scenario())


def test_changed_returns_after_its_time(path: Path, state: store.State) -> None:
    """Without a commit the wait is bounded."""

    async def scenario() -> None:
        seats = store.SqliteMembership(store.open_existing(path))
        await seats.observe()
        async with asyncio.timeout(10):
            await seats.changed(at_most=0.01)
        await seats.close()

    asyncio.run(scenario())


_RENEW_MANY = """
import contextlib, dataclasses, pathlib, sys
from lbg.core.membership import StoreUnavailable
from lbg.local import store

path, ordinal, done = pathlib.Path(sys.argv[1]), int(sys.argv[2]), 0
state = store.open_existing(path)
while done < 200:
    with contextlib.suppress(StoreUnavailable):
        seat = state.membership().seats[ordinal]
        state.replace_seat(dataclasses.replace(seat, renewals=seat.renewals + 1))
        done += 1
"""


def test_processes_that_write_at_once_lose_no_write(path: Path, state: store.State) -> None:
    """Four processes renew their own seats without a pause; every renewal is there in the end."""
    for ordinal in range(4):
        state.create_seat(ordinal)
    writers = [subprocess.Popen([sys.executable, "-c", _RENEW_MANY, path, str(ordinal)]) for ordinal in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert [seat.renewals for seat in state.membership().seats] == [200] * 4


def test_a_locked_file_is_unavailable_and_available_again(path: Path, state: store.State) -> None:
    """A writer that holds the lock makes the store unavailable for as long as it holds it."""
    state.create_seat(0)
    (seat,) = state.membership().seats
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="locked"):
            state.replace_seat(seat)
        other.execute("ROLLBACK")
    assert state.replace_seat(seat).version != seat.version


def test_a_file_that_was_removed_is_unavailable(path: Path, state: store.State) -> None:
    """An open connection does not go on with a file that nobody else can see."""
    path.unlink()
    with pytest.raises(StoreUnavailable, match="is gone"):
        state.membership()


def test_a_file_that_is_absent_is_unavailable(path: Path) -> None:
    """Opening does not create what only the supervisor may create."""
    with pytest.raises(StoreUnavailable, match="no such file"):
        store.open_existing(path)
    assert not path.exists()


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    """Damage is one line that names the file and the remedy."""
    path.write_bytes(b"something else" * 100)
    with pytest.raises(StoreUnavailable, match=r"state\.db: damaged: it is not a state file; start a new run"):
        store.open_existing(path)


def test_another_schema_version_is_refused(path: Path, state: store.State) -> None:
    """A file of another version is neither read nor changed."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreUnavailable, match="schema version 99, this program reads 1"):
        store.open_existing(path)


def test_a_folder_that_is_absent_is_one_line(tmp_path: Path) -> None:
    """A state file cannot be created where there is no folder."""
    with pytest.raises(StoreUnavailable, match="cannot be opened") as caught:
        store.create(tmp_path / "absent" / "state.db")
    assert os.linesep not in str(caught.value)


def test_before_the_view_is_written_the_store_is_unavailable(path: Path) -> None:
    """A consumer that is faster than the supervisor waits instead of seeing an empty group."""
    with contextlib.closing(store.create(path)) as state, pytest.raises(StoreUnavailable, match="not described"):
        state.membership()


_STANDINGS = st.builds(Standing, *[st.integers(0, 2**40)] * 3)
_SUMMARIES = st.builds(
    Summary,
    connected=st.booleans(),
    bound=st.dictionaries(st.integers(0, 99), _STANDINGS, max_size=4),
    asks=st.dictionaries(st.integers(0, 99), _STANDINGS, max_size=4),
    rate=st.floats(0, 1e9),
    conditions=st.lists(st.text(max_size=9), max_size=3).map(tuple),
)


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    said=_SUMMARIES,
    holder=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
    term=st.integers(0, 2**50),
)
def test_any_seat_survives_the_store(
    tmp_path_factory: pytest.TempPathFactory, said: Summary, holder: str | None, term: int
) -> None:
    """Reading gives what was written, for every holder, term and report."""
    with contextlib.closing(store.create(tmp_path_factory.mktemp("store") / "state.db")) as state:
        state.write_view(VIEW)
        state.create_seat(0)
        written = state.replace_seat(replace(state.membership().seats[0], holder=holder, term=term, summary=said))
        assert state.membership().seats == (written,)


def test_a_lost_connection_is_reported_once_with_its_time(state: store.State) -> None:
    """Who is connected is known at any time; each loss is taken once, for the log."""
    state.report_connected("consumer-1")
    state.report_connected("consumer-2")
    state.report_lost("consumer-1", 17.5)
    assert state.connected() == {"consumer-2"}
    assert state.take_lost() == (("consumer-1", 17.5),)
    assert state.take_lost() == ()
