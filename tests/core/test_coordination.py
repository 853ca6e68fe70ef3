"""Effective CC, the generation, the seats and who may go: each rule on its own."""

from __future__ import annotations

from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st

from lbg.core import assignment, coordination, staffing
from lbg.core.actions import ClearSeat, CreateSeat, DeleteSeat, Resize
from lbg.core.membership import Seat, Standing, Summary
from lbg.core.observed import Basis, Consumer, GroupRecord, QueueLook

BASIS = Basis(12, assignment.Policy.BALANCED, 1)


def seat(ordinal: int, name: str | None = None, *, connected: bool = True, offered: bool = False) -> Seat:
    """Build a seat, held by the process of a consumer if a name is given."""
    holder = None if name is None else f"{name}_u_n"
    return Seat(ordinal, "1", holder, term=1, offered=offered, summary=Summary(connected=connected))


def seats(*names: str | None) -> tuple[Seat, ...]:
    """Build seats 0.. with these holders."""
    return tuple(seat(ordinal, name) for ordinal, name in enumerate(names))


def consumer(name: str, started: float = 0.0, *, ready: bool = True, **more: bool) -> Consumer:
    """Build a consumer."""
    return Consumer(name, f"{name}_u", started, ready, **more)


def looked(
    record: GroupRecord, *looks: tuple[float, tuple[Seat, ...] | None], memory: coordination.Memory | None = None
) -> coordination.Memory:
    """Return the memory after looks at given times."""
    memory = memory or coordination.Memory()
    for now, seen in looks:
        memory = coordination.look(memory, record, seen, now)
    return memory


FRESH = coordination.Memory()


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        ((), 0),
        (seats("a", "b", "c"), 3),
        (seats("a", None, "c"), 1),
        ((seat(0, "a"), seat(1, "b", connected=False)), 1),
        ((seat(0, "a", offered=True), seat(1, "b")), 0),
        (seats("a", "b", "a"), 2),
        ((seat(0, "a"), seat(2, "c")), 1),
    ],
    ids=["none", "all", "vacant", "not connected", "offered", "on the move with two seats", "missing"],
)
def test_the_prefix_counts_seats_whose_holders_are_there(seen: tuple[Seat, ...], want: int) -> None:
    """Held, connected, not leaving, each holder once, without a hole."""
    assert coordination.serving_prefix(seen, None, FRESH) == want


def test_a_holder_that_is_gone_does_not_count_and_an_unknown_one_does() -> None:
    """Only a list of consumers can say that somebody is gone."""
    seen = seats("a", "b")
    assert coordination.serving_prefix(seen, (consumer("a"),), FRESH) == 1
    assert coordination.serving_prefix(seen, None, FRESH) == 2


@pytest.mark.parametrize(
    ("effective", "target", "prefix", "want"),
    [(0, 4, 2, 2), (2, 4, 4, 4), (2, 4, 9, 4), (3, 4, 1, 3), (4, 2, 4, 2), (3, 0, 3, 0), (0, 0, 3, 0)],
    ids=["first start", "rise", "never beyond desired", "vacancy", "fall", "suspend", "nobody wanted"],
)
def test_effective_rises_with_the_prefix_and_falls_with_the_target(
    effective: int, target: int, prefix: int, want: int
) -> None:
    """Up as far as consumers are there, down at once."""
    assert coordination.next_effective(effective, target, prefix, FRESH) == want


def test_five_minutes_of_vacancy_take_one_and_the_next_takes_five_more() -> None:
    """Each fall starts the patience again, and the last consumer's place is kept."""
    record = GroupRecord("g", effective=3)
    vacant = seats(None, None, None)
    memory = looked(record, (0, vacant), (299, vacant))
    assert coordination.next_effective(3, 3, 0, memory) == 3
    memory = looked(record, (300, vacant), memory=memory)
    assert coordination.next_effective(3, 3, 0, memory) == 2
    memory = looked(replace(record, effective=2), (301, vacant), memory=memory)
    assert coordination.next_effective(2, 3, 0, memory) == 2
    memory = looked(replace(record, effective=2), (601, vacant), memory=memory)
    assert coordination.next_effective(2, 3, 0, memory) == 1
    memory = looked(replace(record, effective=1), (602, vacant), (2000, vacant), memory=memory)
    assert coordination.next_effective(1, 3, 0, memory) == 1


def test_a_holder_that_stops_renewing_is_vacant_after_its_thirty_seconds() -> None:
    """Expiry begins the vacancy; a renewal ends it."""
    record = GroupRecord("g", effective=2)
    held = seats("a", "b")
    memory = looked(record, (0, held), (30, held))
    assert not memory.is_expired(held[1])
    memory = looked(record, (31, held), (330, held), memory=memory)
    assert memory.is_expired(held[1])
    assert memory.vacant_for(1) == 299
    renewed = (replace(held[0], renewals=1), replace(held[1], renewals=1))
    memory = looked(record, (331, renewed), memory=memory)
    assert memory.vacant_for(1) == 0


def test_time_in_which_the_store_is_unreadable_does_not_count() -> None:
    """An hour without the store expires nobody and vacates nothing."""
    record = GroupRecord("g", effective=2)
    seen = seats("a", None)
    memory = looked(record, (0, seen), (10, seen), (11, None), (3600, None), (3601, seen))
    assert memory.vacant_for(1) == 10
    assert not memory.is_expired(seen[0])


@hypothesis.given(
    target=st.integers(0, 12), effective=st.integers(0, 12), prefix=st.integers(0, 12), vacant=st.booleans()
)
def test_effective_never_exceeds_target_and_moves_down_alone_by_one(
    target: int, effective: int, prefix: int, vacant: bool
) -> None:
    """Whatever was seen, the result lies between 0 and the target, and only the target lowers it by more than one."""
    memory = FRESH
    if vacant:
        empty = tuple(seat(ordinal) for ordinal in range(12))
        memory = looked(GroupRecord("g", effective=effective), (0, empty), (1000, empty))
    got = coordination.next_effective(effective, target, prefix, memory)
    assert 0 <= got <= target
    assert got >= min(effective, target) - 1
    assert got <= max(effective, prefix)


def test_the_generation_grows_with_what_it_stands_for_and_with_nothing_else() -> None:
    """The same basis and effective CC keep it; another effective CC, policy or table takes the next number."""
    record = GroupRecord("g", effective=3, generation=7, basis=BASIS)
    assert coordination.next_generation(record, (), 3, BASIS) == 7
    assert coordination.next_generation(record, (), 4, BASIS) == 8
    assert coordination.next_generation(record, (), 3, replace(BASIS, policy=assignment.Policy.MODULO)) == 8
    assert coordination.next_generation(record, (), 3, replace(BASIS, table_version=2)) == 8


def test_a_record_from_a_backup_does_not_take_the_generation_back() -> None:
    """Where a holder has seen a higher one, the next is higher still, since that one may stand for another table."""
    record = GroupRecord("g", effective=3, generation=2, basis=BASIS)
    seen = (replace(seat(0, "a"), generation=9),)
    assert coordination.next_generation(record, seen, 3, BASIS) == 10


def test_seats_are_kept_up() -> None:
    """A dead holder's seat is cleared, a missing one made, a vacant one beyond deleted, a held one beyond left."""
    seen = (seat(0, "a"), seat(2, "dead"), seat(4), seat(5, "b"))
    want = (ClearSeat(2, "dead_u_n"), CreateSeat(1), CreateSeat(3), DeleteSeat(4))
    assert coordination.keep_seats(seen, (consumer("a"), consumer("b")), 4) == want
    assert coordination.keep_seats(seen, None, 3) == (CreateSeat(1), DeleteSeat(4))


def test_a_container_restart_leaves_the_seat_to_the_same_pod() -> None:
    """The nonce changes and the pod does not: its seat is not cleared, it claims it by itself."""
    seen = (Seat(0, "1", "a_u_earlier", summary=Summary(connected=True)),)
    assert coordination.keep_seats(seen, (consumer("a"),), 1) == ()


def holding(held: Seat, *queues: int) -> Seat:
    """Return a seat whose holder reports queues as bound and active."""
    bound = {queue: Standing(1, 1, 0) for queue in queues}
    return replace(held, summary=Summary(connected=True, bound=bound, epochs=dict.fromkeys(queues, 1)))


def staff(
    consumers: tuple[Consumer, ...], seen: tuple[Seat, ...], target: int, **more: float | None
) -> tuple[Resize | None, staffing.Memory]:
    """Ask for the consumers, with queues that nobody is active on."""
    arguments = {"effective": target, "replicas": None, "drain_budget": 30.0, "now": 100.0, **more}
    looks = (QueueLook(0, 0, 0),)
    return staffing.staff(
        staffing.Staff(consumers, seen, looks),
        target,
        memory=staffing.Memory(),
        **arguments,  # type: ignore[arg-type]
    )


def test_the_seatless_go_first_then_the_highest_seat() -> None:
    """Not ready before ready, the latest before the earlier, and never more than the surplus."""
    crew = (
        consumer("a"),
        consumer("b"),
        consumer("c"),
        consumer("d", 4),
        consumer("e", 5),
        consumer("f", 1, ready=False),
    )
    seen = seats("a", "b", "c")
    assert staff(crew, seen, 5)[0] == Resize(5, remove=("f",))
    assert staff(crew, seen, 3)[0] == Resize(3, remove=("f", "e", "d"))
    assert staff(crew, seen, 1)[0] == Resize(1, remove=("f", "e", "d", "c", "b"))


def test_who_holds_queues_stays_until_they_are_handed_over_or_the_budget_is_spent() -> None:
    """The drain budget counts from when the consumer became surplus."""
    crew, seen = (consumer("a"), consumer("b")), (seat(0, "a"), holding(seat(1, "b"), 3))
    resize, memory = staff(crew, seen, 1)
    assert resize is None
    looks = staffing.Staff(crew, seen, ())
    ask = {"effective": 1, "replicas": None, "drain_budget": 30.0, "memory": memory}
    assert staffing.staff(looks, 1, now=129.0, **ask)[0] is None  # type: ignore[arg-type]
    assert staffing.staff(looks, 1, now=130.0, **ask)[0] == Resize(1, remove=("b",))  # type: ignore[arg-type]


def test_an_active_link_counts_as_holding_and_so_does_not_knowing() -> None:
    """Without a report the broker's word counts, and without the broker's word a seatless consumer is waited for."""
    crew, seen = (consumer("a"), consumer("b")), seats("a")
    for looks in ((QueueLook(0, 0, 0, 1, "b_u_n"),), (QueueLook(0, 0, 0, 1, "b"),), None):
        asked = staffing.Staff(crew, seen, looks)
        ask = {"effective": 1, "replicas": None, "drain_budget": 30.0, "memory": staffing.Memory(), "now": 0.0}
        assert staffing.staff(asked, 1, **ask)[0] is None  # type: ignore[arg-type]


def test_nobody_goes_before_effective_has_fallen() -> None:
    """The view that consumers see must not name who is told to go, even if that one holds nothing yet."""
    crew, seen = (consumer("a"), consumer("b")), seats("a", "b")
    assert staff(crew, seen, 1, effective=2)[0] is None
    assert staff(crew, seen, 1, effective=1)[0] == Resize(1, remove=("b",))


def test_a_deployment_is_told_once() -> None:
    """While its pods come and go the replicas stand, and a shrinking one is never told to grow again."""
    crew = (consumer("a"), consumer("b"), consumer("c"))
    assert staff(crew[:1], seats("a"), 3, replicas=3)[0] is None
    assert staff(crew[:1], seats("a"), 3, replicas=1)[0] == Resize(3, add=2)
    assert staff(crew, seats("a", "b"), 2, replicas=3)[0] == Resize(2, remove=("c",))
    held = (seat(0, "a"), seat(1, "b"), holding(seat(2, "c"), 1))
    assert staff(crew, held, 2, replicas=2)[0] is None


def test_a_rollout_needs_a_fresh_ready_consumer_before_an_old_one_goes() -> None:
    """One more comes first; once it waits, the highest outdated seat goes; and then the next one comes."""
    old = (consumer("a", outdated=True), consumer("b", outdated=True))
    seen = (holding(seat(0, "a"), 0), holding(seat(1, "b"), 1))
    assert staff(old, seen, 2)[0] == Resize(3, add=1)
    assert staff((*old, consumer("c", ready=False)), seen, 2)[0] is None
    assert staff((*old, consumer("c")), seen, 2)[0] == Resize(2, remove=("b",))
    going = (old[0], consumer("b", outdated=True, leaving=True), consumer("c"))
    assert staff(going, seen, 2)[0] == Resize(3, add=1)
