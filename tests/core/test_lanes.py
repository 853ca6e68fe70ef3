"""Lanes: the stories behind the laws, one rule of the module's theory each."""

from __future__ import annotations

import pytest

from lbg.core.lanes import Lanes, Slot

A, B, C = Slot(0, 0), Slot(0, 1), Slot(1, 0)


def started(lanes: Lanes[str]) -> list[str]:
    """Start everything that may start now."""
    items = []
    while (taken := lanes.take()) is not None:
        items.append(taken[1])
    return items


def test_shards_run_beside_each_other_and_one_shard_runs_in_order() -> None:
    """Two shards, three lanes: the second event of a shard waits for the first, not for a lane."""
    lanes: Lanes[str] = Lanes(3)
    for slot, item in [(A, "a1"), (A, "a2"), (B, "b1")]:
        lanes.offer(slot, item)
    assert started(lanes) == ["a1", "b1"]
    lanes.finish(A)
    assert started(lanes) == ["a2"]


def test_a_busy_shard_lines_up_again_behind_the_others() -> None:
    """One lane, two shards with two events each: they take turns."""
    lanes: Lanes[str] = Lanes(1)
    for slot, item in [(A, "a1"), (A, "a2"), (B, "b1"), (B, "b2")]:
        lanes.offer(slot, item)
    order = []
    for slot in (A, B, A, B):
        order += started(lanes)
        lanes.finish(slot)
    assert order == ["a1", "b1", "a2", "b2"]


def test_an_event_that_must_run_alone_waits_for_the_lanes_to_empty_and_is_not_overtaken() -> None:
    """Nothing behind it starts while it waits at the front, and nothing beside it while it runs."""
    lanes: Lanes[str] = Lanes(2)
    lanes.offer(A, "a1")
    lanes.offer(B, "suspect", alone=True)
    lanes.offer(C, "c1")
    assert started(lanes) == ["a1"]
    lanes.finish(A)
    assert started(lanes) == ["suspect"]
    lanes.finish(B)
    assert started(lanes) == ["c1"]


def test_a_held_event_keeps_its_shard_and_frees_its_lane() -> None:
    """A backoff stops its own shard only; the held event is buffered, not in hand, and comes first afterwards."""
    lanes: Lanes[str] = Lanes(1)
    for slot, item in [(A, "a1"), (A, "a2"), (B, "b1")]:
        lanes.offer(slot, item)
    assert started(lanes) == ["a1"]
    lanes.hold(A, "a1")
    assert (lanes.in_hand(0), lanes.buffered(0)) == (0, 3)
    assert started(lanes) == ["b1"]
    lanes.finish(B)
    assert started(lanes) == []
    lanes.resume(A)
    assert started(lanes) == ["a1"]


def test_a_settling_event_frees_its_lane_and_keeps_its_shard() -> None:
    """While an output is confirmed another shard runs, and the event still counts as in hand."""
    lanes: Lanes[str] = Lanes(1)
    for slot, item in [(A, "a1"), (A, "a2"), (B, "b1")]:
        lanes.offer(slot, item)
    started(lanes)
    lanes.settle(A)
    assert started(lanes) == ["b1"]
    assert (lanes.running, lanes.in_hand(0)) == (1, 2)
    lanes.finish(B)
    assert started(lanes) == []
    lanes.finish(A)
    assert started(lanes) == ["a2"]


def test_never_more_than_twice_the_lanes_are_in_hand() -> None:
    """Confirms that do not come stop the handlers: what a kill can repeat stays bounded, and the count is true."""
    lanes: Lanes[str] = Lanes(2)
    slots = [Slot(0, shard) for shard in range(6)]
    for slot in slots:
        lanes.offer(slot, f"{slot.shard}")
    for _ in range(2):
        for name in started(lanes):
            lanes.settle(slots[int(name)])
    assert (lanes.running, lanes.in_hand(), lanes.in_hand(0)) == (0, 4, 4)
    assert started(lanes) == []
    lanes.finish(slots[0])
    assert started(lanes) == ["4"]
    assert lanes.in_hand() == 4


def test_a_paused_queue_finishes_and_starts_nothing_while_others_go_on() -> None:
    """Draining: what is buffered stays buffered until the queue goes on or is dropped."""
    lanes: Lanes[str] = Lanes(4)
    for slot, item in [(A, "a1"), (A, "a2"), (C, "c1")]:
        lanes.offer(slot, item)
    lanes.pause(0)
    assert started(lanes) == ["c1"]
    assert (lanes.in_hand(0), lanes.buffered(0)) == (0, 2)
    lanes.unpause(0)
    assert started(lanes) == ["a1"]


def test_a_call_behind_a_lost_queue_keeps_its_shard_until_it_returns() -> None:
    """Bound again meanwhile, the shard waits; other shards of the queue do not, and every count is right throughout."""
    lanes: Lanes[str] = Lanes(4)
    lanes.offer(A, "a1")
    lanes.offer(A, "a2")
    assert started(lanes) == ["a1"]
    assert lanes.drop(0) == 1
    for slot, item in [(A, "a1 again"), (B, "b1")]:
        lanes.offer(slot, item)
    assert started(lanes) == ["b1"]
    assert (lanes.running, lanes.in_hand(0), lanes.buffered(0)) == (2, 2, 1)
    lanes.finish(A)
    assert started(lanes) == ["a1 again"]
    assert (lanes.running, lanes.in_hand(0), lanes.buffered(0)) == (2, 2, 0)


def test_a_shard_bound_again_gets_one_turn_a_round() -> None:
    """A place in line from before the drop does not count."""
    lanes: Lanes[str] = Lanes(1)
    for slot in (A, C):
        lanes.offer(slot, "before")
    lanes.drop(0)
    for item in ("1", "2", "3"):
        lanes.offer(A, f"a{item}")
        lanes.offer(C, f"c{item}")
    order = []
    for _ in range(4):
        slot, item, _ = lanes.take() or pytest.fail("a lane is free and work waits")
        order.append(item)
        lanes.finish(slot)
    assert order == ["before", "a1", "c1", "a2"]


@pytest.mark.parametrize("move", [Lanes.finish, Lanes.settle, lambda lanes, slot: lanes.hold(slot, "a1")])
def test_ending_a_call_that_does_not_run_is_a_programming_error(move) -> None:  # type: ignore[no-untyped-def]
    """Counting it would free somebody else's lane."""
    lanes: Lanes[str] = Lanes(2)
    lanes.offer(A, "a1")
    with pytest.raises(AssertionError, match="queue 0 shard 0"):
        move(lanes, A)
    assert started(lanes) == ["a1"]
    lanes.finish(A)
    with pytest.raises(AssertionError, match="queue 0 shard 0"):
        move(lanes, A)


def test_a_consumer_has_at_least_one_lane() -> None:
    """Zero lanes would handle nothing, silently."""
    with pytest.raises(ValueError, match="lanes 0: need at least 1"):
        Lanes(0)
