"""The live view: it fits every terminal, and gives way in the order that its module states."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lbg.local import frames, view
from lbg.local.frames import ConsumerRow, Frame, QueueRow


def frame(queues: int = 12, consumers: int = 4, events: int = 9, trouble: str | None = None, shown: int = 64) -> Frame:
    """Return a frame of a busy group; of many queues it holds `shown`, as the status does."""
    rows = [
        QueueRow(n, f"consumer-{n % consumers + 1}" if n != 3 else None, f"consumer-{n % 3 + 5}", n, n * 977 % 5_000)
        for n in range(queues)
    ]
    return Frame(
        group="orders",
        broker="the embedded broker",
        shards=256,
        queue_count=queues,
        folder=".lbg/runs/orders-20261127T080000Z",
        seconds=4_321,
        mode="Operator",
        desired=consumers,
        effective=consumers,
        ready=consumers,
        backlog=sum(row.backlog or 0 for row in rows),
        rate_in=1_234.5,
        rate_out=1_190.2,
        history=[n * n % 977 for n in range(200)],
        queues=rows[:shown],
        consumers=[ConsumerRow(f"consumer-{n + 1}", n, "ready", 301.2, 0.87) for n in range(consumers)],
        events=[(f"08:00:{n:02}", f"replicas {n} -> {n + 1}: " + "a long reason " * 9) for n in range(events)],
        trouble=trouble,
    )


def drawn(shown: Frame, width: int, height: int) -> list[str]:
    """Return the lines that a terminal of this size gets."""
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(view.picture(shown, width, height))
    return captured.get().splitlines()


@given(
    width=st.integers(40, 200),
    height=st.integers(12, 70),
    queues=st.integers(1, 300),
    consumers=st.integers(1, 40),
    events=st.integers(0, 40),
    trouble=st.none() | st.just("the broker does not start: " + "no space " * 20),
)
def test_it_fits_every_terminal(
    width: int, height: int, queues: int, consumers: int, events: int, trouble: str | None
) -> None:
    """No line is wider and no frame higher than the terminal, however large the group."""
    lines = drawn(frame(queues, consumers, events, trouble), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_on_a_common_terminal_twelve_queues_are_all_there_with_their_owners() -> None:
    """80 x 24 shows every queue, every consumer and the last events."""
    lines = drawn(frame(), 80, 24)
    queues = [line for line in lines if line[:5].strip().isdigit()]
    assert [int(line[:5]) for line in queues] == list(range(12))
    assert "consumer-1" in queues[0]
    assert "nobody" in queues[3]
    assert sum(line.startswith("08:00:") for line in lines) >= 4
    assert sum("301/s" in line for line in lines) == 4


def test_of_many_queues_those_with_the_largest_backlog_are_shown_and_the_rest_is_summed_up() -> None:
    """The line below says how many are left out and what waits in them."""
    shown = frame(queues=200)
    lines = drawn(shown, 80, 24)
    visible = [int(line[:5]) for line in lines if line[:5].strip().isdigit()]
    backlogs = sorted((row.backlog or 0 for row in shown.queues), reverse=True)
    assert sorted((shown.queues[n].backlog or 0 for n in visible), reverse=True) == backlogs[: len(visible)]
    rest = (shown.backlog or 0) - sum(shown.queues[n].backlog or 0 for n in visible)
    assert f"{200 - len(visible)} more queues, backlog {frames.count(rest)}" in lines


def test_trouble_stands_at_the_top() -> None:
    """What a person should know first comes before everything that scrolls."""
    assert "consumers die at once" in drawn(frame(trouble="consumers die at once: no module shop"), 80, 24)[3]


@pytest.mark.parametrize(
    ("value", "want"),
    [(None, "?"), (0, "0"), (999, "999"), (9_999, "9999"), (12_345, "12.3k"), (999_900, "1000k"), (1_234_567, "1.23M")],
)
def test_counts_are_short(value: float | None, want: str) -> None:
    """Unknown is not 0, and nothing is longer than five characters."""
    assert frames.count(value) == want


@given(st.lists(st.none() | st.integers(0, 10**6), max_size=50), st.integers(0, 60))
def test_a_sparkline_has_a_character_per_value(values: list[int | None], width: int) -> None:
    """Unknown is a blank, 0 a dot, the highest value the highest bar."""
    line = frames.sparkline(values, width)
    shown = values[len(values) - min(width, len(values)) :]
    assert len(line) == len(shown)
    assert [char == " " for char in line] == [value is None for value in shown]
    assert [char == "." for char in line] == [value == 0 for value in shown]
    top = max((value for value in shown if value), default=None)
    assert all((char == "█") >= (value == top) for char, value in zip(line, shown, strict=True) if top)


def test_the_plain_line_says_what_the_picture_says() -> None:
    """Scale, backlog, rates and trouble fit on one line."""
    line = frames.plain(frame(queues=2, trouble="the broker does not answer"))
    assert line == (
        "orders: 4 desired, 4 effective, 4 ready; backlog 977; 1234/s in, 1190/s out; the broker does not answer"
    )
