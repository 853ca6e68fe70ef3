"""The publish window by example: each row of its tables, each refusal, each bound."""

import re
from collections.abc import Sequence

import pytest

from lbg.core import publish_line
from lbg.core.publish_line import Entry, LineState, Verdict
from lbg.core.publish_window import Confirm, Fail, Fate, PublishWindow, Resume, Submit

OK, LATER, UNKNOWN, NEVER = Verdict.ACCEPTED, Verdict.LATER, Verdict.UNKNOWN, Verdict.NEVER


class Driven:
    """A window with a connection and short names for what tests look at."""

    def __init__(self, *, ordered: bool = True, limited: bool = True, **bounds: int) -> None:
        self.window: PublishWindow[str] = PublishWindow(7, retry_delay=lambda attempt: 2.0**attempt, **bounds)
        self.ordered, self.limited = ordered, limited
        self.resumed: list[int] = []
        self.connect()

    def connect(self) -> None:
        self.window.connected(ordered_rejects=self.ordered, limited=self.limited)

    def publish(self, shard: int, events: str) -> None:
        for event in events:
            self.window.publish(shard, event)

    def submit(self, now: float = 0.0) -> list[tuple[int, str]]:
        batches = []
        for action in self.window.poll(now):
            if isinstance(action, Submit):
                batches.append((action.number, "".join(entry.event for entry in action.entries)))
            else:
                self.resumed.append(action.shard)
        return batches

    def answer(self, number: int, verdicts: Sequence[Verdict], now: float = 0.0) -> tuple[str, list[Fail[str]]]:
        confirmed, failed = "", []
        for action in self.window.answered(number, verdicts, now):
            if isinstance(action, Confirm):
                confirmed += "".join(entry.event for entry in action.entries)
            else:
                failed.append(action)
        return confirmed, failed


def test_header_table_is_the_table_in_the_code() -> None:
    """The states and transitions in the docstring are those that the machine follows."""
    assert publish_line.__doc__ is not None
    rows = re.findall(r"^    ([A-Z, ]+?)  .*?  ([A-Z_]+) +([A-Z]+)  ", publish_line.__doc__, re.MULTILINE)
    written = {(state, line_input): after for states, line_input, after in rows for state in states.split(", ")}
    coded = {(s.name, i.name): after.name for (s, i), after in publish_line.TRANSITIONS.items()}
    assert written == coded


def test_events_are_numbered_densely_per_shard() -> None:
    """Sequences start at 0 and count per shard, under the incarnation of the window."""
    window = Driven().window
    entries = [window.publish(shard, "x") for shard in (3, 5, 3, 3, 5)]
    assert [(e.shard, e.incarnation, e.sequence) for e in entries] == [
        (3, 7, 0),
        (5, 7, 0),
        (3, 7, 1),
        (3, 7, 2),
        (5, 7, 1),
    ]


def test_nothing_is_submitted_while_disconnected() -> None:
    """Before `connected`, events are held and poll is silent."""
    window: PublishWindow[str] = PublishWindow(7, retry_delay=lambda _: 1.0)
    window.publish(0, "a")
    assert window.poll(0.0) == []
    assert [entry.event for entry in window.held()] == ["a"]


def test_batches_and_flight_are_bounded() -> None:
    """No batch exceeds `batch`, and no more than `max_in_flight` events are unanswered."""
    driven = Driven(max_in_flight=5, batch=2)
    driven.publish(0, "abcdefgh")
    assert driven.submit() == [(0, "ab"), (1, "cd"), (2, "e")]
    assert driven.submit() == []
    assert driven.answer(0, [OK, OK]) == ("ab", [])
    assert driven.submit() == [(3, "fg")]
    assert (driven.window.in_flight, driven.window.unsent) == (5, 1)


def test_a_line_is_bounded_by_its_window() -> None:
    """One shard has at most `window` events in flight, while another goes on."""
    driven = Driven(window=2)
    driven.publish(0, "abc")
    driven.publish(1, "xyz")
    assert driven.submit() == [(0, "abxy")]


@pytest.mark.parametrize(
    ("ordered", "limited", "want"),
    [(True, True, "abc"), (True, False, "abc"), (False, False, "abc"), (False, True, "a")],
    ids=["blocks and may be full", "blocks", "cannot be full", "may be full and does not block"],
)
def test_one_in_flight_per_shard_where_a_later_event_could_overtake(ordered: bool, limited: bool, want: str) -> None:
    """The window of a shard is 1 only where the broker may refuse one event and accept the next."""
    driven = Driven(ordered=ordered, limited=limited)
    driven.publish(0, "abc")
    assert driven.submit() == [(0, want)]


def test_confirms_are_given_by_prefix() -> None:
    """An accepted event behind an unanswered one is confirmed together with it, in order."""
    driven = Driven(batch=1)
    driven.publish(0, "abc")
    driven.submit()
    assert driven.answer(1, [OK]) == ("", [])
    assert driven.answer(0, [OK]) == ("ab", [])
    assert driven.answer(2, [OK]) == ("c", [])


def test_a_full_queue_holds_only_its_own_shard() -> None:
    """A refused shard waits out its delay, probes with one event and then opens again; others never wait."""
    driven = Driven()
    driven.publish(0, "abc")
    driven.publish(1, "x")
    driven.submit()
    assert driven.answer(0, [OK, LATER, LATER, OK], now=10.0) == ("ax", [])
    assert driven.window.refused_now() == (0,)
    assert driven.window.wakes_at == pytest.approx(11.0)
    driven.publish(0, "d")
    driven.publish(1, "y")
    assert driven.submit(10.5) == [(1, "y")]
    assert driven.submit(11.0) == [(2, "b")]
    assert driven.resumed == [0]
    assert driven.answer(2, [LATER], now=11.0) == ("", [])
    assert driven.window.wakes_at == pytest.approx(13.0)
    assert driven.submit(13.0) == [(3, "b")]
    assert driven.answer(3, [OK]) == ("b", [])
    assert driven.window.refused_now() == ()
    assert driven.window.wakes_at is None
    assert driven.submit() == [(4, "cd")]


def test_a_refused_line_waits_for_all_its_answers() -> None:
    """Nothing of a shard is sent again while an older submission of it is unanswered."""
    driven = Driven(batch=1)
    driven.publish(0, "ab")
    driven.submit()
    driven.answer(0, [LATER])
    assert driven.window.wakes_at is None
    assert driven.submit(100.0) == []
    driven.answer(1, [LATER], now=100.0)
    assert driven.submit(101.0) == [(2, "a")]


def test_an_unanswered_event_is_sent_again_with_what_was_accepted_behind_it() -> None:
    """Never one event alone behind later ones: the accepted suffix is repeated too."""
    driven = Driven()
    driven.publish(0, "abc")
    driven.submit()
    assert driven.answer(0, [OK, UNKNOWN, OK]) == ("a", [])
    assert driven.submit(1.0) == [(1, "b")]
    driven.answer(1, [OK])
    assert driven.submit(1.0) == [(2, "c")]


def test_a_lost_connection_sends_everything_unconfirmed_again_in_order() -> None:
    """After a loss each shard starts from its first unconfirmed event, under the same identities."""
    driven = Driven(batch=2)
    driven.publish(0, "abcde")
    driven.submit()
    driven.answer(0, [OK, OK])
    before = [(entry.event, entry.sequence) for entry in driven.window.held()]
    driven.window.lost()
    driven.window.lost()
    assert (driven.window.in_flight, driven.window.unsent) == (0, 3)
    assert driven.answer(1, [OK, OK]) == ("", [])  # too late: it is sent again
    driven.connect()
    assert driven.submit() == [(3, "cd"), (4, "e")]
    assert [(entry.event, entry.sequence) for entry in driven.window.held()] == before == [("c", 2), ("d", 3), ("e", 4)]
    assert driven.window.resent == 3


@pytest.mark.parametrize("state", [LineState.SETTLING, LineState.WAITING, LineState.PROBING])
def test_a_line_in_trouble_probes_after_a_reconnect(state: LineState) -> None:
    """What a shard had met may still be there: it starts with one event, without waiting."""
    driven = Driven(batch=1)
    driven.publish(0, "ab")
    driven.submit()
    driven.answer(0, [LATER])
    if state is not LineState.SETTLING:
        driven.answer(1, [LATER])
    if state is LineState.PROBING:
        driven.submit(1.0)
    assert driven.window.state_of(0) is state
    driven.window.lost()
    driven.connect()
    assert [events for _, events in driven.submit(1.0)] == ["a"]


def test_a_refused_event_stops_its_shard_and_fails_everything_behind_it() -> None:
    """The refused event and all behind it fail; what was accepted before and beside it is confirmed."""
    driven = Driven()
    driven.publish(0, "abcd")
    driven.publish(1, "x")
    driven.submit()
    driven.publish(0, "e")
    confirmed, failed = driven.answer(0, [OK, NEVER, UNKNOWN, LATER, OK])
    assert confirmed == "ax"
    assert [(f.entry.event, f.fate, f.entry.is_uncertain, f.cause.event) for f in failed] == [
        ("b", Fate.REFUSED, False, "b"),
        ("c", Fate.BEHIND, True, "b"),
        ("d", Fate.BEHIND, False, "b"),
        ("e", Fate.BEHIND, False, "b"),
    ]
    assert driven.window.held() == []
    assert {shard: entry.event for shard, entry in driven.window.stopped().items()} == {0: "b"}


def test_an_event_accepted_behind_a_refused_one_is_not_denied() -> None:
    """Where the broker does not block, the later event is durable, and is confirmed."""
    driven = Driven(ordered=False, limited=False)
    driven.publish(0, "ab")
    driven.submit()
    confirmed, failed = driven.answer(0, [NEVER, OK])
    assert (confirmed, [f.entry.event for f in failed]) == ("b", ["a"])


def test_an_event_accepted_before_a_loss_is_not_denied_after_it() -> None:
    """Accepted behind an unanswered event, put back by a loss, then behind a refusal: it is durable, and confirmed."""
    driven = Driven(ordered=False, limited=False, batch=2)
    driven.publish(0, "abc")
    driven.submit()
    assert driven.answer(0, [NEVER, OK]) == ("", [])  # the answer on "c" is still out
    driven.window.lost()
    driven.connect()
    driven.submit()
    confirmed, failed = driven.answer(2, [NEVER])
    assert (confirmed, [(f.entry.event, f.entry.is_uncertain) for f in failed]) == ("b", [("a", False), ("c", True)])


def test_an_event_in_flight_may_be_at_the_broker() -> None:
    """What is sent and not answered is uncertain; what was not sent, or was refused for now, is not."""
    driven = Driven(batch=1, window=2)
    driven.publish(0, "abc")
    driven.submit()
    assert [e.is_uncertain for e in driven.window.held()] == [True, True, False]
    driven.answer(0, [LATER])
    assert [e.is_uncertain for e in driven.window.held()] == [False, True, False]
    driven.window.lost()
    assert [e.is_uncertain for e in driven.window.held()] == [False, True, False]


def test_a_refusal_behind_an_unanswered_event_is_not_believed() -> None:
    """The first event that was not accepted decides: the refused one behind it is tried again in its turn."""
    driven = Driven()
    driven.publish(0, "ab")
    driven.submit()
    assert driven.answer(0, [UNKNOWN, NEVER]) == ("", [])
    assert driven.submit(1.0) == [(1, "a")]
    driven.answer(1, [OK])
    assert driven.submit(1.0) == [(2, "b")]
    assert [f.entry.event for f in driven.answer(2, [NEVER])[1]] == ["b"]


def test_a_stopped_shard_takes_nothing_until_it_is_restarted() -> None:
    """Publishing raises; a restart resumes the broker's block and counts from 0 under the new incarnation."""
    driven = Driven()
    driven.publish(0, "a")
    driven.submit()
    driven.answer(0, [NEVER])
    with pytest.raises(Exception, match="shard 0 is stopped"):
        driven.window.publish(0, "b")
    with pytest.raises(ValueError, match="must exceed 7"):
        driven.window.restart(0, 7)
    driven.window.restart(0, 8)
    entry = driven.window.publish(0, "b")
    assert (entry.incarnation, entry.sequence) == (8, 0)
    assert driven.submit() == [(1, "b")]
    assert driven.resumed == [0]
    assert driven.answer(1, [OK]) == ("b", [])
    assert driven.window.state_of(0) is LineState.OPEN


def test_restart_of_a_shard_that_is_not_stopped_is_refused() -> None:
    """A restart would break the numbering of a line that works."""
    with pytest.raises(ValueError, match="shard 4 is not stopped"):
        Driven().window.restart(4, 8)


def test_an_unannounced_limit_narrows_the_windows() -> None:
    """A broker that refuses for lack of room although it had no limit is trusted with one event per shard."""
    driven = Driven(ordered=False, limited=False)
    driven.publish(0, "a")
    driven.publish(1, "xyz")
    driven.submit()
    driven.answer(0, [LATER, OK, OK, OK])
    driven.publish(1, "uvw")
    assert driven.submit(0.0) == [(1, "u")]


def test_lines_take_turns() -> None:
    """A long line does not keep the others out of a batch."""
    driven = Driven(batch=20)
    driven.publish(0, "a" * 30)
    driven.publish(1, "b" * 3)
    assert driven.submit()[0] == (0, "a" * 16 + "bbb" + "a")


def test_bounds_below_one_are_refused() -> None:
    """A window of 0 would never send anything."""
    with pytest.raises(ValueError, match="at least 1"):
        Driven(batch=0)


def test_a_second_connection_without_a_loss_is_refused() -> None:
    """Two connections at once could accept the events of a shard in any order."""
    with pytest.raises(ValueError, match="report the loss first"):
        Driven().connect()


def test_a_wrong_number_of_verdicts_is_refused() -> None:
    """An adapter that answers too few events must not confirm others by accident; the batch stays unanswered."""
    driven = Driven()
    driven.publish(0, "ab")
    driven.submit()
    with pytest.raises(ValueError, match="1 verdicts for 2 events"):
        driven.answer(0, [OK])
    assert driven.window.in_flight == 2


def test_resume_comes_before_the_probe() -> None:
    """The block is lifted before the event that it would hold back."""
    driven = Driven()
    driven.publish(0, "a")
    driven.submit()
    driven.answer(0, [LATER])
    kinds = [type(action) for action in driven.window.poll(1.0)]
    assert kinds == [Resume, Submit]


def test_entries_compare_by_identity_of_the_object() -> None:
    """Two equal events are two entries: one confirm never stands for both."""
    assert Entry("a", 0, 7, 0) != Entry("a", 0, 7, 0)
