"""A rollout in a group that shrinks meanwhile comes to its end, whoever the scale-down took away."""

from __future__ import annotations

from lbg.core import staffing
from lbg.core.actions import Resize
from lbg.core.membership import Seat, Summary
from lbg.core.observed import Consumer, QueueLook


def consumer(name: str, born: float, *, outdated: bool) -> Consumer:
    """Return a connected consumer."""
    return Consumer(name, f"{name}_uid", born, ready=True, outdated=outdated)


def seat(ordinal: int, holder: str, queues: int) -> Seat:
    """Return a seat whose holder is active on so many queues."""
    said = Summary(connected=True, epochs=dict.fromkeys(range(queues), 1))
    return Seat(ordinal, "1", holder=f"{holder}_uid_nonce", term=1, summary=said)


def step(consumers: tuple[Consumer, ...], seats: tuple[Seat, ...], target: int) -> Resize | None:
    """Return what the staff does next in a group whose table is down to the target already."""
    queues = tuple(QueueLook(n, 0, 0, 1, "a_uid_nonce") for n in range(4))
    seen = staffing.Staff(consumers, seats, queues)
    memory = staffing.Memory()
    resize, _ = staffing.staff(seen, target, effective=target, replicas=None, drain_budget=30.0, memory=memory, now=1.0)
    return resize


def test_an_outdated_consumer_beyond_the_target_goes_when_no_fresh_one_is_left() -> None:
    """Both are outdated, the fresh one went with the scale-down: the seat beyond goes first, then a fresh one comes."""
    a, b = consumer("a", 1.0, outdated=True), consumer("b", 2.0, outdated=True)
    assert step((a, b), (seat(0, "a", 4), seat(1, "b", 0)), target=1) == Resize(1, remove=("b",))
    assert step((a,), (seat(0, "a", 4),), target=1) == Resize(2, add=1)
    fresh = consumer("c", 3.0, outdated=False)
    assert step((a, fresh), (seat(0, "a", 4),), target=1) == Resize(1, remove=("a",))


def test_an_outdated_consumer_beyond_the_target_that_still_holds_queues_is_waited_for() -> None:
    """Making room must not cut a handover short."""
    a, b = consumer("a", 1.0, outdated=True), consumer("b", 2.0, outdated=True)
    assert step((a, b), (seat(0, "a", 2), seat(1, "b", 2)), target=1) is None


def test_a_fresh_consumer_on_a_seat_beyond_the_target_replaces_an_outdated_one() -> None:
    """It had been seated before the group shrank: once the outdated one has gone, it moves to the lower seat."""
    old, fresh = consumer("a", 1.0, outdated=True), consumer("c", 3.0, outdated=False)
    assert step((old, fresh), (seat(0, "a", 4), seat(1, "c", 0)), target=1) == Resize(1, remove=("a",))
