"""Handover in a world: several consumers and queues, seats, a broker of each ability, and everything that can happen.

Laws that the world itself checks at every moment: per shard no handler starts before everything earlier was handled; a
planned release leaves nothing behind that was started; whoever is asked to end is at rest within the offer limit, one
handler and a few messages; no seat is claimed too early.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbg.core import handover
from lbg.core.assignment import ALL, Standbys
from lbg.core.handover import Ability, Timing
from tests.core.worlds.consumers import Consumer
from tests.core.worlds.groups import GroupWorld, Pace

QUICK = Pace()
# Slower than the limits of the machine: others are waited for in vain.
PACES = [
    QUICK,
    Pace(handler=3.0, publish=6.0),
    Pace(notice=0.9),
    Pace(notice=4.0),
    Pace(network=0.2),
    Pace(store=0.5),
]
FORCEFUL = Timing(drain_budget=1.0, force=True)

ABILITIES = st.sampled_from(list(Ability))
SEEDS = st.integers(0, 2**32)
STANDBYS: st.SearchStrategy[Standbys] = st.sampled_from([0, 1, 2, ALL])
GAPS = st.sampled_from([0.0, 0.02, 0.1, 0.5, 2.0, 8.0, 20.0])
LENGTHS = st.sampled_from([0.5, 4.0, 12.0, 45.0])

SETTLING = 60.0  # seconds for a calm group to be as the table says
HEALING = 150.0  # with seats that expire, and queues that only the slow cycle finds


@dataclass(frozen=True)
class Step:
    """Something that happens, and the time that passes afterwards."""

    kind: str
    which: int
    length: float
    then: float


def steps(kinds: list[str], most: int) -> st.SearchStrategy[list[Step]]:
    one = st.builds(Step, kind=st.sampled_from(kinds), which=st.integers(0, 9), length=LENGTHS, then=GAPS)
    return st.lists(one, min_size=1, max_size=most)


PLANNED = ["scale", "scale", "scale", "roll out", "suspend"]
FAULTS = [
    "crash",
    "vanish",
    "restart",
    "freeze",
    "lose a link",
    "lose a session",
    "lose a session silently",
    "store away",
    "lose an answer",
    "clear a seat",
]


def do(world: GroupWorld, step: Step) -> None:
    """Let a step happen."""
    queues, serving = len(world.broker.queues), world.serving()
    match step.kind:
        case "scale":
            world.scale(1 + step.which % queues)
        case "roll out":
            world.roll_out()
        case "suspend":
            world.suspend(step.length)
        case "store away":
            world.go_away(step.length)
        case "lose an answer":
            world.store.answers_to_lose += 1
        case "clear a seat":
            world.lose_seat(step.which % len(world.store.seats))
        case _ if serving:
            strike(world, serving[step.which % len(serving)], step)
    world.run(step.then)


def strike(world: GroupWorld, consumer: Consumer, step: Step) -> None:
    """Let something happen to one consumer."""
    match step.kind:
        case "crash":
            world.crash(consumer)
        case "vanish":
            world.crash(consumer, silent=True)
        case "restart":
            world.crash(consumer, same_pod=True)
        case "freeze":
            world.freeze(consumer, step.length)
        case "lose a link":
            world.lose_link(consumer, step.which % len(world.broker.queues))
        case "lose a session":
            world.lose_session(consumer, step.length)
        case "lose a session silently":
            world.lose_session(consumer, step.length, silent=True)


def end(world: GroupWorld, patience: float) -> None:
    """Wait until all is as the table says; then nothing moves any more, and everything was handled."""
    world.run(2.0 + 2 * world.pace.notice + 4 * world.pace.store)  # until everybody knows of the last step
    world.settle_group(patience)
    epochs = world.epochs()
    world.run(15.0)
    assert not world.unsettled()
    assert world.epochs() == epochs
    world.check_moves()
    world.drain()


@given(
    ability=ABILITIES,
    seed=SEEDS,
    queues=st.integers(1, 4),
    standbys=STANDBYS,
    pace=st.sampled_from(PACES),
    story=steps(PLANNED, 6),
)
@settings(max_examples=60)
def test_planned_moves_repeat_nothing(
    ability: Ability, seed: int, queues: int, standbys: Standbys, pace: Pace, story: list[Step]
) -> None:
    """Any scaling, rollout and suspension, at any pace: each event is handled once, in order, every takeover is clean.

    Where the broker switches by itself, the ledger is clean in time only if messages are faster than looks at seats.
    """
    world = GroupWorld(seed, ability, queues=queues, standbys=standbys, pace=pace)
    world.scale(queues)
    world.settle_group(SETTLING)
    for step in story:
        do(world, step)
    end(world, SETTLING + 10 * len(story))
    assert world.duplicates == []
    if ability is not Ability.BROKER or pace is QUICK:
        assert [takeover for takeover in world.takeovers if not takeover.was_clean] == []


@given(ability=ABILITIES, seed=SEEDS, queues=st.integers(1, 5), standbys=STANDBYS, sizes=st.permutations(range(1, 6)))
@settings(max_examples=30)
def test_a_planned_move_moves_a_queue_once_and_no_other(
    ability: Ability, seed: int, queues: int, standbys: Standbys, sizes: list[int]
) -> None:
    """Step by step, each time settled: a queue is taken over exactly when somebody else should serve it."""
    world = GroupWorld(seed, ability, queues=queues, standbys=standbys)
    world.scale(1)
    world.settle_group(SETTLING)
    for size in sizes:
        epochs, changes = world.epochs(), list(world.owner_changes)
        world.scale(min(size, queues))
        world.settle_group(SETTLING)
        world.run(3.0)
        for queue, epoch in enumerate(world.epochs()):
            assert epoch - epochs[queue] <= world.owner_changes[queue] - changes[queue]
    world.drain()


@given(
    ability=ABILITIES,
    seed=SEEDS,
    queues=st.integers(1, 4),
    standbys=STANDBYS,
    pace=st.sampled_from(PACES),
    timing=st.sampled_from([Timing(), FORCEFUL]),
    operator_clears=st.booleans(),
    story=steps([*PLANNED, *FAULTS, *FAULTS], 9),
)
@settings(max_examples=60)
def test_whatever_fails_nothing_is_lost_or_reordered_and_the_group_heals(
    ability: Ability,
    seed: int,
    queues: int,
    standbys: Standbys,
    pace: Pace,
    timing: Timing,
    operator_clears: bool,
    story: list[Step],
) -> None:
    """Any faults in any order: afterwards every queue is where the table says, and moves no more."""
    world = GroupWorld(
        seed, ability, queues=queues, standbys=standbys, pace=pace, timing=timing, operator_clears=operator_clears
    )
    world.scale(queues)
    world.settle_group(SETTLING)
    for step in story:
        do(world, step)
    world.store.answers_to_lose = 0
    world.run(max(step.length for step in story))  # until the last outage is over
    end(world, HEALING)


def test_worlds_take_the_machine_through_every_transition() -> None:
    """What is never exercised is not proved: every line of the table happens in a handful of worlds."""
    taken: set[tuple[handover.State, handover.Event]] = set()
    for seed, ability in itertools.product(range(16), Ability):
        world = GroupWorld(seed, ability, pace=Pace(network=0.1, handler=2.0, publish=0.5), timing=FORCEFUL)
        for size in (1, 3, 2, 3):
            world.scale(size)
            world.run(0.3 + 0.07 * seed)  # the loss comes a little later in each world
            for consumer in world.serving():
                world.lose_session(consumer, 0.1)
            world.run(0.3 + 0.02 * seed)
            for consumer, queue in itertools.product(world.serving(), range(3)):
                world.lose_link(consumer, queue)
            world.run(4.0)
        taken |= world.transitions
    assert taken == set(handover.TRANSITIONS)


# Stories of failover: what the standby does, and what it leaves alone.


def served(ability: Ability, seed: int = 1, *, consumers: int = 2, **given_: bool | Pace | Timing) -> GroupWorld:
    """A settled group with one queue more than consumers."""
    world = GroupWorld(seed, ability, queues=consumers + 1, standbys=ALL, **given_)  # type: ignore[arg-type]
    world.scale(consumers)
    world.settle_group(SETTLING)
    return world


@pytest.mark.parametrize("ability", list(Ability))
def test_a_standby_serves_at_once_and_goes_on_while_the_seat_still_names_the_dead(ability: Ability) -> None:
    """The report of a consumer that was killed says `bound` until its seat expires: nobody hands over to it."""
    world = served(ability, operator_clears=False)
    victim = world.serving()[0]
    lost = [queue for queue in range(3) if world.active(queue) is victim]
    epochs = world.epochs()
    world.stop_deploying()
    world.crash(victim)
    world.run(1.0)
    assert all(world.active(queue) not in (None, victim) for queue in lost)
    world.run(25.0)
    assert [epoch - before for epoch, before in zip(world.epochs(), epochs, strict=True)] == [
        int(queue in lost) for queue in range(3)
    ]


@pytest.mark.parametrize("ability", list(Ability))
def test_queues_come_back_to_a_pod_that_restarts_in_place(ability: Ability) -> None:
    """It claims the seat of its earlier life within seconds; each of its queues moves away once and back once."""
    world = served(ability)
    victim = world.serving()[0]
    lost = [queue for queue in range(3) if world.active(queue) is victim]
    epochs = world.epochs()
    world.crash(victim, same_pod=True)
    world.run(1.0)
    world.settle_group(10.0)
    moved = [epoch - before for epoch, before in zip(world.epochs(), epochs, strict=True)]
    assert moved == [2 if queue in lost else 0 for queue in range(3)]


@pytest.mark.parametrize("ability", list(Ability))
def test_a_store_that_is_away_moves_nothing_and_a_crash_meanwhile_is_survived(ability: Ability) -> None:
    """Consumers serve on what they hold, standbys take over, and nobody releases anything."""
    world = served(ability)
    epochs = world.epochs()
    world.go_away(120.0)
    world.run(60.0)
    assert world.epochs() == epochs
    victim = world.serving()[0]
    world.crash(victim)
    world.run(5.0)
    assert all(world.active(queue) not in (None, victim) for queue in range(3))


@pytest.mark.parametrize("ability", list(Ability))
def test_a_rollout_moves_each_queue_once(ability: Ability) -> None:
    """The pod that waits claims the offered seat and stands ready before the old one lets go."""
    world = served(ability)
    epochs = world.epochs()
    world.roll_out()
    world.settle_group(30.0)
    changes = sum(world.owner_changes)
    assert sum(world.epochs()) - sum(epochs) == changes == 3
    assert world.duplicates == []


@pytest.mark.parametrize("ability", list(Ability))
def test_a_pod_without_a_successor_hands_over_to_its_standbys_after_the_offer_limit(ability: Ability) -> None:
    """Nobody claims the offered seat: after the limit the queues go to whoever stands by."""
    world = served(ability)
    world.stop_deploying()
    leaving = world.serving()[0]
    leaving.stop()
    world.run(4.5)
    assert not leaving.is_at_rest()
    world.run(2.0)
    assert leaving.is_at_rest()
    assert all(world.active(queue) not in (None, leaving) for queue in range(3))
    assert world.duplicates == []


def test_an_orphan_is_adopted_by_a_consumer_that_has_nothing_to_do_with_it() -> None:
    """No standbys, the owner dead, its seat still held: the slow cycle finds the queue and gives it back later."""
    world = GroupWorld(3, Ability.COOPERATIVE, queues=3, standbys=0, operator_clears=False)
    world.scale(3)
    world.settle_group(SETTLING)
    victim = world.serving()[0]
    lost = [queue for queue in range(3) if world.active(queue) is victim]
    world.stop_deploying()
    world.crash(victim)
    world.run(75.0)
    assert lost
    assert all(world.active(queue) not in (None, victim) for queue in lost)
    world.start()
    world.settle_group(60.0)


@pytest.mark.parametrize("ability", list(Ability))
def test_a_handler_over_the_budget_is_waited_for_and_reported(ability: Ability) -> None:
    """Nothing is repeated; the seat says which queue is stalled until the handler returns."""
    world = served(ability, consumers=1, pace=Pace(handler=8.0, publish=2.0), timing=Timing(drain_budget=0.5))
    stalled: set[int] = set()
    world.store.on_change.append(
        lambda: stalled.update(queue for seat in world.store.seats.values() for queue in seat.summary.stalled)
    )
    world.scale(2)
    world.settle_group(60.0)
    assert stalled
    assert not any(seat.summary.stalled for seat in world.store.seats.values())
    assert world.duplicates == []


@pytest.mark.parametrize("ability", list(Ability))
def test_a_forced_handover_does_not_wait_for_the_handler(ability: Ability) -> None:
    """The queue is served by its new owner while the old call still runs; what was in hand may be handled again."""
    world = served(ability, consumers=1, pace=Pace(handler=30.0, publish=2.0), timing=FORCEFUL)
    world.scale(2)
    began = world.clock.now
    world.settle_group(10.0)
    assert world.clock.now - began < 10.0
    assert any(not takeover.was_clean for takeover in world.takeovers)
