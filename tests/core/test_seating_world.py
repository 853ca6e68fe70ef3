"""Seats in a world of crashes, pauses, restarts and outages: who may claim what, and that everybody finds a seat."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from lbg.core import seating
from tests.core.worlds.seats import SeatWorld

MOST = 5  # seats
# Expiry, counted on a clock that may have stood still, and a few looks; compaction moves one holder after another.
PATIENCE = 4 * seating.DURATION
LONGEST = 70.0  # pause or outage


@dataclass(frozen=True)
class Step:
    """Something that happens, after a pause."""

    after: float
    kind: str
    which: int
    amount: float


STEPS = st.builds(
    Step,
    after=st.sampled_from([0.0, 0.02, 0.3, 2.0, 12.0, 29.0, 45.0]),
    kind=st.sampled_from(["start", "crash", "restart", "stop", "scale", "pause", "away", "lose an answer", "clear"]),
    which=st.integers(0, 9),
    amount=st.sampled_from([0.1, 1.0, 3.0, 11.0, 35.0, LONGEST]),
)


def do(world: SeatWorld, step: Step) -> None:
    """Let a step happen."""
    world.clock.run(world.clock.now + step.after)
    alive = world.alive()
    member = alive[step.which % len(alive)] if alive else None
    match step.kind:
        case "start":
            world.start()
        case "scale":
            world.scale(step.which % (MOST + 1))
        case "away":
            world.go_away(step.amount)
        case "lose an answer":
            world.store.answers_to_lose += 1
        case "clear":
            if not world.store.is_away and step.which in world.store.seats:
                world.store.clear(step.which)
        case "crash" if member is not None:
            member.kill()
        case "restart" if member is not None:
            member.kill()
            world.start(member.machine.me.pod)
        case "stop" if member is not None:
            world.stop(member, drain=min(step.amount, 11.0))
        case "pause" if member is not None:
            member.pause(step.amount)


def is_settled(world: SeatWorld) -> bool:
    """Whether as many consumers as are wanted hold a wanted seat, nobody holds two, and each knows its own."""
    alive, desired = world.alive(), world.store.view.desired
    held = {ordinal: holder for ordinal, holder in world.held().items() if holder in {m.name for m in alive}}
    known = all(held.get(m.machine.ordinal or 0) == m.name for m in alive if m.machine.seat is not None)
    wanted = [ordinal for ordinal in held if ordinal < desired]
    return known and len(set(held.values())) == len(held) and len(wanted) == min(len(alive), desired)


@given(
    seed=st.integers(0, 2**32),
    operator_clears=st.booleans(),
    consumers=st.integers(1, MOST),
    desired=st.integers(1, MOST),
    steps=st.lists(STEPS, max_size=14),
)
@settings(max_examples=150)
def test_consumers_find_distinct_seats_whatever_happened(
    seed: int, operator_clears: bool, consumers: int, desired: int, steps: list[Step]
) -> None:
    """No claim comes too early, terms and generations never go back, and after the last fault everybody is seated."""
    world = SeatWorld(seed, operator_clears=operator_clears)
    world.scale(desired)
    for _ in range(consumers):
        world.start()
    for step in steps:
        do(world, step)
    world.store.answers_to_lose = 0
    world.clock.run(world.clock.now + LONGEST)  # until the last pause and the last outage are over
    world.settle(PATIENCE, lambda: is_settled(world))
    assert is_settled(world), (world.held(), [m.name for m in world.alive()], world.store.view)
    # And then it stays so: nobody moves, and everybody writes at the pace of renewals only.
    world.clock.run(world.clock.now + 2.0)
    assert is_settled(world)
    begin, claims, calm = world.clock.now, len(world.claims), 30.0
    world.clock.run(begin + calm)
    assert is_settled(world)
    assert len(world.claims) == claims
    for member in world.alive():
        written = sum(1 for at, holder in world.writes if at > begin and holder == member.name)
        assert written <= math.ceil(calm / seating.RENEW_EVERY) + 1


@given(seed=st.integers(0, 2**32), consumers=st.integers(2, MOST))
@settings(max_examples=20)
def test_claimants_at_once_are_seated_within_seconds(seed: int, consumers: int) -> None:
    """All want the lowest free seat at the same moment: the store decides, and the others take the next."""
    world = SeatWorld(seed, operator_clears=True)
    world.scale(consumers)
    for _ in range(consumers):
        world.start()
    assert world.settle(3.0, lambda: is_settled(world)) < 3.0
    assert sorted(world.held()) == list(range(consumers))


@given(seed=st.integers(0, 2**32), victims=st.permutations(range(4)))
@settings(max_examples=30)
def test_a_smaller_group_closes_its_ranks_whichever_pod_was_removed(seed: int, victims: list[int]) -> None:
    """4 -> 2: the two pods that are left hold seats 0 and 1, and nobody else holds anything."""
    world = SeatWorld(seed, operator_clears=True)
    world.scale(4)
    members = [world.start() for _ in range(4)]
    world.settle(5.0, lambda: is_settled(world))
    world.scale(2)
    world.clock.run(world.clock.now + 1.0)
    for victim in victims[:2]:
        world.stop(members[victim], drain=1.0)
    world.settle(8.0, lambda: is_settled(world) and len(world.held()) == 2)
    assert world.held().keys() == {0, 1}
    assert set(world.held().values()) == {members[index].name for index in victims[2:]}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_process_that_slept_through_an_outage_takes_nobodys_seat(seed: int) -> None:
    """It did not see that nobody could renew; when it wakes first, the silent holders are as alive as before."""
    world = SeatWorld(seed, operator_clears=True)
    world.scale(2)
    for _ in range(2):
        world.start()
    world.settle(5.0, lambda: is_settled(world))
    waiting = world.start()
    world.clock.run(world.clock.now + 3.0)
    claims = len(world.claims)
    world.go_away(60.0)
    waiting.pause(60.001)
    world.clock.run(world.clock.now + 80.0)
    assert len(world.claims) == claims
