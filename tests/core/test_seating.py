"""Seating: one story per rule of the module's theory, told to one machine with looks and a clock by hand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from lbg.core import seating
from lbg.core.membership import GroupView, Membership, Seat, Standing, Summary
from lbg.core.seating import Holder, Seating

ME, OTHER = Holder("me_uid", "n1"), Holder("other_uid", "n1")
REPORT = Summary(connected=True, bound={0: Standing(1, 1, 1)})


def seat(ordinal: int, holder: Holder | str | None = None, **fields: int | bool) -> Seat:
    return Seat(ordinal, "1", None if holder is None else str(holder), **fields)  # type: ignore[arg-type]


def look(*seats: Seat, desired: int = 0, effective: int | None = None, generation: int = 1) -> Membership:
    """A look at the store; by default all of its seats are wanted and served."""
    desired = desired or len(seats)
    return Membership(GroupView("g", "", desired, desired if effective is None else effective, generation), seats)


def seated(ordinal: int = 0, seats: int = 2) -> Seating:
    """A machine that claimed a seat at 0 and said everything that it has to say."""
    machine = Seating(ME)
    machine.report(REPORT, urgent=True)
    machine.observed(look(*(seat(n, ME if n == ordinal else OTHER) for n in range(seats))), 0.0)
    write = machine.next_write(0.0)
    assert write is not None
    machine.written(write, 0.0)
    assert machine.next_write(0.0) is None
    return machine


# Claiming.


def test_nothing_is_written_before_the_first_look() -> None:
    """Who knows nothing claims nothing."""
    assert Seating(ME).next_write(0.0) is None


def test_the_lowest_free_seat_is_claimed_with_a_higher_term_and_an_empty_report() -> None:
    """What was bound under another seat says nothing about this one; being connected does."""
    machine = Seating(ME)
    machine.report(REPORT, urgent=True)
    machine.observed(look(seat(0, OTHER), seat(1, term=4, generation=3), seat(2)), 0.0)
    write = machine.next_write(0.0)
    assert write is not None
    assert (write.ordinal, write.holder, write.term, write.generation) == (1, str(ME), 5, 3)
    assert write.summary == Summary(connected=True)


def test_an_offered_seat_is_free_and_its_offer_ends_with_the_claim() -> None:
    """The holder still serves; the claimant becomes the primary that it hands over to."""
    machine = Seating(ME)
    machine.observed(look(seat(0, OTHER, offered=True, term=2)), 0.0)
    write = machine.next_write(0.0)
    assert write is not None
    assert (write.ordinal, write.term, write.offered) == (0, 3, False)


def test_a_seat_beyond_what_is_wanted_is_not_claimed() -> None:
    """Desired CC falls before its seats are gone."""
    machine = Seating(ME)
    machine.observed(look(seat(0, OTHER), seat(1), desired=1), 0.0)
    assert machine.next_write(0.0) is None


def test_the_seat_of_an_earlier_life_is_taken_at_once() -> None:
    """A container restart must not cost thirty seconds, and the lowest vacant seat would move queues for nothing."""
    machine = Seating(ME)
    machine.observed(look(seat(0), seat(1, Holder("me_uid", "n0"), term=6)), 0.0)
    write = machine.next_write(0.0)
    assert write is not None
    assert (write.ordinal, write.holder, write.term) == (1, str(ME), 7)


def test_a_second_seat_of_an_earlier_life_is_cleared() -> None:
    """It died while it moved from one seat to another; nobody else should wait for the second to expire."""
    machine = Seating(ME)
    before = Holder("me_uid", "n0")
    machine.observed(look(seat(0, before), seat(1, before)), 0.0)
    claim = machine.next_write(0.0)
    assert claim is not None
    machine.written(claim, 0.0)
    clear = machine.next_write(0.0)
    assert clear is not None
    assert (claim.ordinal, clear.ordinal, clear.holder) == (0, 1, None)


def test_losing_a_race_means_looking_again() -> None:
    """Two claimants at once: the store refused ours, the next look shows who has it, and the next seat is free."""
    machine = Seating(ME)
    machine.observed(look(seat(0), seat(1)), 0.0)
    assert machine.next_write(0.0) is not None
    machine.observed(look(seat(0, OTHER, term=1), seat(1)), 0.1)
    write = machine.next_write(0.1)
    assert write is not None
    assert write.ordinal == 1


# Expiry.


def expires_at(looks: list[float], unreadable: Collection[float] = ()) -> float | None:
    """When a waiting machine claims the seat of a holder that never renews, for looks at these times."""
    machine = Seating(ME)
    for now in looks:
        if now in unreadable:
            machine.unreadable()
            continue
        machine.observed(look(seat(0, OTHER)), now)
        if machine.next_write(now) is not None:
            return now
    return None


def test_a_seat_expires_thirty_seconds_after_its_last_observed_change() -> None:
    """Counted from the first look that shows the record as it is: clocks of two machines are never compared."""
    assert expires_at([float(now) for now in range(100, 200)]) == 131.0


def test_a_holder_that_renews_never_expires() -> None:
    """Each renewal is a change of the record."""
    machine = Seating(ME)
    for now in range(200):
        machine.observed(look(seat(0, OTHER, renewals=now // 10)), float(now))
        assert machine.next_write(float(now)) is None


def test_time_in_which_the_store_could_not_be_read_does_not_count() -> None:
    """Twenty seconds, an outage of a thousand, and it takes another eleven."""
    looks = [*range(21), 25, *range(1000, 1100)]
    assert expires_at([float(now) for now in looks], {25.0}) == 1011.0


def test_time_in_which_this_process_was_paused_does_not_count_in_full() -> None:
    """A process that slept for an hour does not wake up to find everybody's seat free."""
    assert expires_at([float(now) for now in [*range(11), *range(3600, 3700)]]) == 3611.0


# Renewing and giving up.


def test_a_holder_renews_every_ten_seconds() -> None:
    """Not earlier, when there is nothing urgent to say; each renewal changes the record."""
    machine = seated()
    assert machine.next_write(9.9) is None
    write = machine.next_write(10.0)
    assert write is not None
    assert machine.seat is not None
    assert (write.renewals, write.summary) == (machine.seat.renewals + 1, REPORT)


def test_an_urgent_report_and_a_new_generation_are_written_at_once() -> None:
    """What is bound decides about moves, and the generation says that older reports are not about another role."""
    machine = seated()
    machine.report(replace(REPORT, handled=5), urgent=False)
    assert machine.next_write(1.0) is None
    machine.report(replace(REPORT, bound={}), urgent=True)
    write = machine.next_write(1.0)
    assert write is not None
    machine.written(write, 1.0)
    machine.observed(look(write, seat(1, OTHER), generation=2), 2.0)
    write = machine.next_write(2.0)
    assert write is not None
    assert write.generation == 2


def test_a_holder_gives_up_twenty_seconds_after_its_last_renewal() -> None:
    """It keeps the record in mind: when the store is back and nobody took the seat, it renews as before."""
    machine = seated()
    machine.unreadable()
    assert (machine.is_seated(20.0), machine.is_seated(20.1)) == (True, False)
    assert machine.seat is not None
    machine.observed(look(machine.seat, seat(1, OTHER)), 500.0)
    write = machine.next_write(500.0)
    assert write is not None
    assert (write.ordinal, write.term) == (0, machine.seat.term)


def test_a_seat_that_somebody_else_took_is_gone() -> None:
    """The store says who holds it; the next free one is claimed instead."""
    machine = seated()
    machine.observed(look(seat(0, OTHER, term=9), seat(1)), 40.0)
    assert machine.ordinal is None
    write = machine.next_write(40.0)
    assert write is not None
    assert write.ordinal == 1


# Moving into the lower seats.


@pytest.mark.parametrize(("desired", "effective"), [(1, 1), (1, 2), (2, 1)])
def test_a_holder_at_or_beyond_what_is_served_moves_down_and_holds_one_seat_in_the_end(
    desired: int, effective: int
) -> None:
    """It claims first and clears after; in between it counts as the lower one."""
    machine = seated(1)
    assert machine.seat is not None
    machine.observed(look(seat(0), machine.seat, desired=desired, effective=effective), 1.0)
    claim = machine.next_write(1.0)
    assert claim is not None
    assert (claim.ordinal, claim.holder) == (0, str(ME))
    machine.written(claim, 1.0)
    assert machine.ordinal == 0
    clear = machine.next_write(1.0)
    assert clear is not None
    assert (clear.ordinal, clear.holder) == (1, None)
    machine.written(clear, 1.0)
    assert (machine.ordinal, machine.next_write(1.0)) == (0, None)


def test_a_holder_within_what_is_served_stays_where_it_is() -> None:
    """A lower seat that falls vacant is for a new pod: moving into it would move queues."""
    machine = seated(1)
    assert machine.seat is not None
    machine.observed(look(seat(0), machine.seat), 1.0)
    assert machine.next_write(1.0) is None


def test_a_holder_beyond_what_is_wanted_keeps_its_seat_while_nothing_lower_is_free() -> None:
    """Its pod will be removed; until then it stands by."""
    machine = seated(1)
    assert machine.seat is not None
    machine.observed(look(seat(0, OTHER), machine.seat, desired=1), 1.0)
    assert (machine.ordinal, machine.next_write(1.0)) == (1, None)


# Leaving.


def test_a_stopping_process_offers_its_seat_and_goes_on_reporting() -> None:
    """It holds the seat until somebody claims it; urgent reports keep their offer."""
    machine = seated()
    machine.stop()
    offer = machine.next_write(1.0)
    assert offer is not None
    assert machine.seat is not None
    assert (offer.holder, offer.offered, offer.term) == (str(ME), True, machine.seat.term)
    machine.written(offer, 1.0)
    assert machine.next_write(100.0) is None
    machine.report(replace(REPORT, bound={}), urgent=True)
    write = machine.next_write(100.0)
    assert write is not None
    assert (write.offered, write.summary.bound) == (True, {})


def test_a_stopping_process_claims_nothing() -> None:
    """Not even when its seat was taken."""
    machine = seated()
    machine.stop()
    machine.observed(look(seat(0, OTHER, term=9), seat(1)), 1.0)
    assert machine.next_write(1.0) is None


def test_a_process_that_leaves_clears_every_seat_it_has() -> None:
    """Also when it is asked to end in the middle of a move."""
    machine = seated(1)
    assert machine.seat is not None
    machine.observed(look(seat(0), machine.seat, desired=1), 1.0)
    claim = machine.next_write(1.0)
    assert claim is not None
    machine.written(claim, 1.0)
    machine.stop()
    machine.leave()
    cleared = []
    while (write := machine.next_write(1.0)) is not None:
        cleared.append((write.ordinal, write.holder))
        machine.written(write, 1.0)
    assert sorted(cleared) == [(0, None), (1, None)]


def test_a_cleared_seat_keeps_term_and_generation() -> None:
    """The next claim must be newer than this one."""
    machine = seated()
    machine.leave()
    write = machine.next_write(1.0)
    assert write is not None
    assert machine.seat is not None
    assert (write.term, write.generation, write.summary) == (machine.seat.term, machine.seat.generation, Summary())


@pytest.mark.parametrize(
    ("identity", "is_earlier"),
    [
        ("me_uid_n0", True),
        ("me_uid_n1", False),
        ("other_uid_n0", False),
        ("me_uid2_n0", False),
        (None, False),
    ],
)
def test_an_earlier_life_is_the_same_pod_with_another_nonce(identity: str | None, is_earlier: bool) -> None:
    """A pod of the same name with another UID is somebody else."""
    assert ME.is_earlier_life_of(identity) == is_earlier


def test_default_timing_leaves_room_between_renewing_giving_up_and_expiring() -> None:
    """A holder gives up before anybody may take its seat."""
    timing = seating.Timing()
    assert timing.renew_every < timing.give_up_after < timing.duration
