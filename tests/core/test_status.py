"""The status: its shape, its bound, and that unknown stays unknown."""

from __future__ import annotations

import json
from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st

from lbg.core import assignment, conditions, status
from lbg.core.conditions import Condition, Finding, Status, Type
from lbg.core.membership import Seat, Summary
from lbg.core.observed import Consumer, GroupRecord, Observed, Presence, QueueLook, TopologyLook
from lbg.core.spec import loading
from lbg.core.spec.group import LoadBalancedGroup


def group(queues: int) -> LoadBalancedGroup:
    """Build a group."""
    spec = {"queues": {"count": queues}, "hashing": {"count": 4096}, "consumers": {"handler": {"python": "a:b"}}}
    metadata = {"name": "orders", "namespace": "shop"}
    document = {"apiVersion": "lbg.dev/v1alpha1", "kind": "LoadBalancedGroup", "metadata": metadata, "spec": spec}
    return loading.parse(document, "orders.yaml")


def look(*backlogs: int | None, epochs: tuple[dict[int, int], ...] = ({}, {})) -> Observed:
    """Build a look at queues with these backlogs and two consumers that report these epochs."""
    seats = tuple(
        Seat(n, "1", f"pod-{n}_uid_nonce", summary=Summary(connected=True, epochs=epochs[n])) for n in range(2)
    )
    queues = tuple(QueueLook(q, b, None if b is None else 0, 1, "pod-1_uid_nonce") for q, b in enumerate(backlogs))
    consumers = tuple(Consumer(f"pod-{n}", f"pod-{n}_uid", float(n)) for n in range(2))
    return Observed(GroupRecord("shop/orders"), TopologyLook(Presence.OURS), queues, seats, consumers, 1e9)


def said(seen: Observed, queues: int) -> status.Status:
    """Return the status of a group that runs with two consumers."""
    return status.status_of(group(queues), seen, desired=2, effective=2, generation=5, last_plan=None, conditions=())


def test_the_shape_is_what_tools_read() -> None:
    """The JSON form has these fields and no other, and is plain JSON."""
    mapping = said(look(3, 4, 0), 3).to_mapping()
    assert json.loads(json.dumps(mapping)) == mapping
    assert set(mapping) == {
        "observedGeneration", "desired", "effective", "replicas", "ready", "selector", "generation", "tableVersion",
        "backlog", "queueCount", "queues", "violations", "lastPlan", "conditions",
    }  # fmt: skip
    assert mapping["selector"] == "lbg.dev/group=orders"
    assert mapping["backlog"] == 7
    assert (mapping["replicas"], mapping["ready"]) == (2, 2)


def test_a_queue_names_who_serves_it_and_who_should() -> None:
    """The owner is who reports it active, with its epoch; ordinal and standby come from the table."""
    got = said(look(3, 4, 0, epochs=({0: 7, 1: 9}, {0: 6})), 3).queues
    table = assignment.assign(3, 2, "shop/orders")
    assert [(row.owner, row.epoch) for row in got] == [("pod-0", 7), ("pod-0", 9), ("pod-1", None)]
    assert [row.ordinal for row in got] == list(table.owners)
    assert [row.standby for row in got] == [(f"pod-{table.standby(queue, 0)}",) for queue in range(3)]


def test_of_two_that_report_a_queue_the_higher_epoch_owns_it() -> None:
    """Reports may be one renewal old, whichever seat comes first."""
    assert said(look(0, epochs=({0: 3}, {0: 4})), 1).queues[0].owner == "pod-1"
    assert said(look(0, epochs=({0: 4}, {0: 3})), 1).queues[0].owner == "pod-0"


def test_unknown_is_never_zero() -> None:
    """One unknown backlog makes the total unknown, and what could not be read is null."""
    mixed = said(look(3, None), 2)
    assert mixed.backlog is None
    assert [row.backlog for row in mixed.queues] == [3, None]
    blind = replace(look(3), queues=None, seats=None, consumers=None)
    got = said(blind, 1)
    assert (got.backlog, got.ready, got.replicas) == (None, None, None)
    assert got.queues == (status.QueueStatus(0, None, 0, (), None, None),)


def test_missing_queues_make_the_total_unknown() -> None:
    """A broker that lists fewer queues than there are does not shorten the backlog."""
    assert said(look(3, 4), 3).backlog is None


@hypothesis.given(backlogs=st.lists(st.none() | st.integers(0, 9), min_size=65, max_size=200))
@hypothesis.settings(max_examples=30)
def test_of_a_large_group_the_deepest_queues_are_shown_and_the_total_counts_all(backlogs: list[int | None]) -> None:
    """At most 64 rows in order of the queues; none that is left out is deeper or unknown while a shown one is not."""
    got = said(look(*backlogs), len(backlogs))
    shown = [row.queue for row in got.queues]
    depth = [float("inf") if backlog is None else backlog for backlog in backlogs]
    hidden = set(range(len(backlogs))) - set(shown)
    assert len(shown) == status.QUEUES_SHOWN
    assert shown == sorted(shown)
    assert max(depth[queue] for queue in hidden) <= min(depth[queue] for queue in shown)
    known = [backlog for backlog in backlogs if backlog is not None]
    assert got.backlog == (sum(known) if len(known) == len(backlogs) else None)
    assert got.queue_count == len(backlogs)


def test_the_status_of_a_large_group_stays_small() -> None:
    """A thousand queues with long names stay below 20 kB."""
    assert len(json.dumps(said(look(*range(1000)), 1000).to_mapping())) < 20_000


@pytest.mark.parametrize("kind", list(Type))
def test_a_condition_reads_back_as_it_was_written(kind: Type) -> None:
    """The stored form loses nothing but fractions of a second."""
    condition = Condition(Finding(kind, Status.UNKNOWN, "SomeReason", "a message"), 1_790_000_000.0, 4)
    assert conditions.from_mapping(condition.to_mapping()) == condition


def test_a_condition_that_this_version_does_not_know_is_left_out() -> None:
    """A status of another version is a report, not an error."""
    stored = {"type": "Levitating", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "x"}
    assert conditions.from_mapping(stored) is None


@hypothesis.given(st.text(max_size=2000))
def test_a_message_is_one_bounded_line(text: str) -> None:
    """Whatever a handler's error says, the status stays readable and small."""
    message = Finding(Type.READY, Status.TRUE, "Serving", text).message
    assert len(message) <= conditions.MAX_MESSAGE
    assert len(message.splitlines()) <= 1


def test_a_reason_that_is_not_pascal_case_is_refused() -> None:
    """Tools match reasons; a sentence there is a mistake of ours."""
    with pytest.raises(ValueError, match="not PascalCase"):
        Finding(Type.READY, Status.TRUE, "not ready", "")
