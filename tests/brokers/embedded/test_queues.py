"""The queue machine alone: turns, windows, what is given back, marks, pages."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lbg.brokers.base import HandoverAbility
from lbg.brokers.embedded import queues
from lbg.brokers.embedded.queues import BoundLink, Entry, ExclusiveQueue, Push


def entries_for(positions: Iterable[int]) -> list[Entry]:
    return [(position, b"%d" % position) for position in positions]


def publish(queue: ExclusiveQueue, count: int) -> None:
    entries = [(queue.admit(), b"x") for _ in range(count)]
    announced = queue.next_announcement()
    queue.commit(entries)
    queue.announced = announced


def pump_all(queue: ExclusiveQueue) -> list[Push]:
    pushes = []
    while push := queue.pump(1_000_000):
        pushes.append(push)
    return pushes


def positions(pushes: list[Push]) -> list[int]:
    return [position for push in pushes for position, _ in push.entries]


@pytest.fixture
def queue() -> ExclusiveQueue:
    return ExclusiveQueue(HandoverAbility.COOPERATIVE)


def test_nothing_is_delivered_before_it_is_committed(queue: ExclusiveQueue) -> None:
    """Holds an admitted message back until the store has it."""
    queue.bind(BoundLink("a", 10))
    position = queue.admit()
    assert queue.pump(100) is None
    queue.announced = queue.next_announcement()
    queue.commit([(position, b"x")])
    assert positions(pump_all(queue)) == [1]


def test_nothing_is_delivered_before_its_mark_is_announced(queue: ExclusiveQueue) -> None:
    """Asks for an announcement where a bound link meets messages that were published without one."""
    publish(queue, 3)
    queue.bind(BoundLink("a", 10))
    assert queue.pump(100) is None
    assert queue.wants_announcement
    queue.announced = queue.next_announcement()
    assert positions(pump_all(queue)) == [1, 2, 3]


def test_an_announcement_covers_what_may_be_delivered_before_the_next_one(queue: ExclusiveQueue) -> None:
    """Runs ahead of deliveries by a bounded number, at least two windows, and never beyond what was admitted."""
    queue.bind(BoundLink("a", 1))
    for _ in range(3):
        queue.admit()
    assert queue.next_announcement() == 3
    for _ in range(5 * queues.ANNOUNCE_AHEAD):
        queue.admit()
    assert queue.next_announcement() == queues.ANNOUNCE_AHEAD
    wide = ExclusiveQueue(HandoverAbility.COOPERATIVE, published=10**6)
    wide.bind(BoundLink("a", 10_000))
    assert wide.next_announcement() == 20_000


def test_after_a_crash_everything_up_to_the_announced_mark_is_called_redelivered() -> None:
    """Takes the stored mark for the real one: never calls a repeated delivery a first one."""
    queue = ExclusiveQueue(HandoverAbility.COOPERATIVE, published=5, acked=1, announced=3)
    queue.bind(BoundLink("a", 10))
    queue.load(entries_for([2, 3, 4, 5]), 5)
    queue.announced = queue.next_announcement()
    (push,) = pump_all(queue)
    assert positions([push]) == [2, 3, 4, 5]
    assert push.redelivered == 2


def test_a_push_is_cut_at_the_size_asked_for_and_never_empty(queue: ExclusiveQueue) -> None:
    """Delivers one message however large, and no more than the bytes allow beside it."""
    queue.bind(BoundLink("a", 10))
    sizes = [50, 60, 30, 10, 200]
    stored = [(queue.admit(), b"x" * size) for size in sizes]
    queue.announced = queue.next_announcement()
    queue.commit(stored)
    pushes = [queue.pump(100) for _ in range(4)]
    assert [[len(data) for _, data in push.entries] for push in pushes if push] == [[50], [60, 30, 10], [200]]
    assert [push.first_tag for push in pushes if push] == [1, 2, 5]


def test_the_limit_counts_what_is_admitted_and_not_acknowledged() -> None:
    """Is full with messages that are still on their way to the store, and has room after acknowledgements."""
    queue = ExclusiveQueue(HandoverAbility.COOPERATIVE, limit=2)
    link = BoundLink("a", 10)
    queue.bind(link)
    publish(queue, 2)
    assert queue.is_full
    pump_all(queue)
    assert queue.is_full
    queue.ack(link, [1])
    assert not queue.is_full


def test_a_backlog_beyond_the_bounds_stays_in_the_store(queue: ExclusiveQueue) -> None:
    """Keeps a bounded number in memory, and asks for the next page, in order, when a consumer has eaten into it."""
    publish(queue, 3 * queues.KEEP_MESSAGES)
    assert queue.missing() is None
    link = BoundLink("a", queues.KEEP_MESSAGES)
    queue.bind(link)
    queue.announced = queue.next_announcement()
    got = positions(pump_all(queue))
    assert got == list(range(1, queues.KEEP_MESSAGES + 1))
    assert queue.missing() == queues.KEEP_MESSAGES
    publish(queue, 1)  # newer than what is missing, so it must not be taken before it
    queue.load(entries_for(range(queues.KEEP_MESSAGES + 1, queue.published + 1)), queue.published)
    assert queue.missing() is None
    queue.ack(link, range(1, queues.KEEP_MESSAGES + 1))
    queue.announced = queue.next_announcement()
    assert positions(pump_all(queue))[0] == queues.KEEP_MESSAGES + 1


def test_a_retired_queue_delivers_nothing_and_names_the_exact_mark(queue: ExclusiveQueue) -> None:
    """Lets a clean stop store what was delivered, not what might have been."""
    queue.bind(BoundLink("a", 2))
    publish(queue, 5)
    pump_all(queue)
    assert queue.announced == 5
    queue.is_retired = True
    assert queue.next_announcement() == 2
    assert queue.pump(100) is None


def test_unbinding_twice_changes_nothing(queue: ExclusiveQueue) -> None:
    """Takes what a link held back once."""
    link = BoundLink("a", 2)
    queue.bind(link)
    publish(queue, 3)
    pump_all(queue)
    queue.unbind(link)
    queue.unbind(link)
    other = BoundLink("b", 10)
    queue.bind(other)
    assert positions(pump_all(queue)) == [1, 2, 3]
