"""The table that a person reads: aligned, honest about what is unknown, and safe to print."""

from __future__ import annotations

from collections.abc import Callable

from lbg import validator
from lbg.core.outputs import OutputRecord
from lbg.validator import Options

Record = Callable[..., OutputRecord]


def test_last_line_says_whether_it_is_ok(record: Record, unsequenced: OutputRecord) -> None:
    """Good, bad and unknown end differently, and each fault is named with its count."""
    endings = [
        validator.render_text(validator.verify(rows)).splitlines()[-1]
        for rows in ([record(0)], [record(1), record(0), record(3)], [record(0), unsequenced], [])
    ]
    assert endings[0].startswith("ok: ")
    assert endings[1] == "NOT OK: order errors: 1; gaps: 1"
    assert all(ending.startswith("NOT OK: unknown: ") for ending in endings[2:])


def test_counts_stand_in_one_column(record: Record) -> None:
    """Numbers end in the same column, whatever their size and whichever rows are shown."""
    rows = [record(0), record(5_000), record(-2), record(1, outcome="skipped", key="x")]
    lines = validator.render_text(validator.verify(rows)).splitlines()
    table = lines[: lines.index("")]
    counts = [line for line in table if not line.startswith(("handover", "failover"))]
    assert {len(line[:32].rstrip()) for line in counts} == {32}
    assert {"skipped", "damaged"} <= {line.split()[0] for line in counts}


def test_moves_are_told_apart(record: Record) -> None:
    """The row of the moves says how many were planned, which of those look wrong, and who says so."""
    rows = [record(0, at=1000.0), record(1, consumer="b", epoch=2, at=900.0, clean=False)]
    verdicts = validator.verify(rows, log=[]), validator.verify(rows)
    shown = [validator.render_text(verdict).splitlines() for verdict in verdicts]
    remarks = [next(line for line in lines if line.startswith("moves"))[34:] for lines in shown]
    assert remarks == [
        "1 planned (1 found unclean, 1 overlapping), 0 unplanned, by the run's log",
        "0 planned, 1 unplanned, by the records, for want of a log",
    ]


def test_nothing_measured_is_not_shown_as_zero(record: Record) -> None:
    """Without a move there is no handover time, and the table shows a dash."""
    lines = validator.render_text(validator.verify([record(0)])).splitlines()
    shown = {line.split()[0]: line.split()[2] for line in lines if line.startswith(("handover", "failover"))}
    assert shown == {"handover": "-", "failover": "-"}


def test_names_from_the_input_cannot_steer_the_terminal(record: Record) -> None:
    """Control characters in keys, producers and consumers are replaced."""
    evil = "\x1b[2J\nok: all is well"
    rows = [record(n, key=evil, producer=evil, consumer=evil) for n in (1, 0)]
    text = validator.render_text(validator.verify(rows), held=True)
    assert "\x1b" not in text
    assert not any(line.startswith("ok:") for line in text.splitlines())


def test_ownership_is_shown_on_request(record: Record) -> None:
    """Who held which queue, in the order in which it began; what is left out is counted."""
    rows = [record(n, consumer=f"c{n}", epoch=n + 1, at=1_000.0 * n) for n in range(4)]
    verdict = validator.verify(rows, options=Options(held=3))
    lines = validator.render_text(verdict, held=True).splitlines()
    start = lines.index("held (1 earlier ones left out)")
    assert [line.split()[-1] for line in lines[start + 2 : start + 5]] == ["c1", "c2", "c3"]
    assert not any(line.startswith("held") for line in validator.render_text(verdict).splitlines())
