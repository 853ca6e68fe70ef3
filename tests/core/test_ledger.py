"""Ledger: what a takeover makes of it, and that its stored form is either exact or refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbg.core import ledger, marks
from lbg.core.ledger import Attempt, Block, DamagedLedger, Ledger
from lbg.core.wire import Identity

COUNTS = st.integers(0, 2**40)
TEXTS = st.text(max_size=12)
EVENTS = st.builds(Identity, TEXTS, COUNTS, st.integers(0, 3), st.integers(0, 40))


@st.composite
def marked(draw: st.DrawFn) -> marks.Marks:
    kept = marks.Marks()
    for event in draw(st.lists(EVENTS, max_size=12)):
        kept.record(event, draw(COUNTS))
    if draw(st.booleans()):
        kept.doubt()
    return kept


LEDGERS = st.builds(
    Ledger,
    epoch=COUNTS,
    version=COUNTS,
    clean=st.booleans(),
    marks=marked(),
    attempts=st.dictionaries(TEXTS, st.builds(Attempt, COUNTS, COUNTS, st.booleans(), st.booleans(), TEXTS)),
    blocks=st.dictionaries(st.integers(-1, 3), st.builds(Block, TEXTS, TEXTS, TEXTS, COUNTS)),
    skipped=st.dictionaries(TEXTS, TEXTS),
    violations=st.dictionaries(st.sampled_from(list(marks.Violation)), COUNTS),
    duplicates=COUNTS,
)


def a_ledger() -> Ledger:
    """One with something in every field."""
    kept = marks.Marks()
    for sequence in (0, 1, 5, 3):
        kept.record(Identity("tills", 7, 4, sequence), 99)
    return Ledger(
        epoch=3,
        version=12,
        clean=False,
        marks=kept,
        attempts={"tills:7:4:6": Attempt(2, 1, journalled=True, alone=True, error="ValueError: nought")},
        blocks={5: Block("tills:7:5:0", "till-5", "ValueError: five", 1000)},
        skipped={"tills:7:6:0": "ann"},
        violations={"gap": 1},
        duplicates=2,
    )


def same(one: Ledger, other: Ledger) -> bool:
    """Equal in every field; marks are compared by their rows."""
    rows = [kept.marks.to_rows() for kept in (one, other)]
    return rows[0] == rows[1] and ledger.encode(one) == ledger.encode(other)


# What a takeover makes of it.


def test_the_first_owner_of_a_queue_takes_over_cleanly() -> None:
    """Nobody owned it, so nothing is in doubt; from now on it counts as unclean until it is released."""
    taken, was_clean = ledger.take_over(None)
    assert (taken.epoch, taken.clean, was_clean) == (1, False, True)


@pytest.mark.parametrize("clean", [True, False])
def test_each_takeover_raises_the_epoch_by_one_and_clears_the_flag(clean: bool) -> None:
    """Whatever the predecessor left behind."""
    taken, was_clean = ledger.take_over(Ledger(epoch=4, version=9, clean=clean))
    assert (taken.epoch, taken.version, taken.clean, was_clean) == (5, 0, False, clean)


@pytest.mark.parametrize(("clean", "found"), [(True, marks.Violation.GAP), (False, marks.Violation.UNKNOWN)])
def test_marks_are_in_doubt_after_an_unclean_takeover_only(clean: bool, found: marks.Violation) -> None:
    """A predecessor that released has written down everything that it handled."""
    stored = Ledger(epoch=1, clean=clean)
    stored.marks.record(Identity("p", 1, 0, 0), 0)
    taken, _ = ledger.take_over(stored)
    assert taken.marks.judge(Identity("p", 1, 0, 5)).violation is found


@pytest.mark.parametrize(
    ("clean", "journalled", "alone", "deaths"),
    [
        (False, True, True, 1),
        (False, True, False, 0),
        (False, False, False, 0),
        (True, True, True, 0),
    ],
)
def test_a_death_counts_only_against_an_event_that_ran_alone(
    clean: bool, journalled: bool, alone: bool, deaths: int
) -> None:
    """Its neighbours are not blamed, and a clean release is no death."""
    stored = Ledger(clean=clean, attempts={"m": Attempt(journalled=journalled, alone=alone)})
    taken, _ = ledger.take_over(stored)
    assert taken.attempts["m"].deaths == deaths
    assert bool(taken.attempts["m"].error) == (deaths > 0)


def test_one_death_counts_once() -> None:
    """Two takeovers in a row without a start between them are one death; another start alone makes another."""
    kept = Ledger(clean=False, attempts={"m": Attempt(journalled=True, alone=True)})
    for _ in range(3):
        kept, _ = ledger.take_over(kept)
    assert kept.attempts["m"].deaths == 1
    assert kept.attempts["m"].journalled, "it stays a suspect, so that it runs alone"
    kept.attempts["m"].alone = True
    kept, _ = ledger.take_over(kept)
    assert kept.attempts["m"].deaths == 2


def test_failures_and_deaths_count_together() -> None:
    """What `maxAttempts` is compared with."""
    assert Attempt(failures=2, deaths=1).count == 3


def test_the_first_error_of_an_event_is_kept() -> None:
    """A death does not write over what the handler said."""
    stored = Ledger(clean=False, attempts={"m": Attempt(1, journalled=True, alone=True, error="ValueError: x")})
    assert ledger.take_over(stored)[0].attempts["m"].error == "ValueError: x"


def test_attempts_of_events_that_are_gone_are_forgotten() -> None:
    """Only what is still unacknowledged can be tried again."""
    kept = Ledger(attempts={"gone": Attempt(1), "here": Attempt(2)})
    kept.keep_attempts(["here", "new"])
    assert kept.attempts == {"here": Attempt(2)}


def test_violations_are_counted_by_kind() -> None:
    """Each kind on its own."""
    kept = Ledger()
    for kind in ("gap", "late", "gap"):
        kept.count(kind)
    assert kept.violations == {"gap": 2, "late": 1}


# Its stored form.


@given(LEDGERS)
@settings(max_examples=80)
def test_stored_form_gives_the_same_ledger_back(written: Ledger) -> None:
    """Any ledger, in every field."""
    assert same(ledger.decode(ledger.encode(written)), written)


def test_stored_form_is_bounded() -> None:
    """Errors are cut and only the last hundred skips are kept: a ledger travels with every release."""
    long = Ledger(
        attempts={"m": Attempt(error="x" * 5000)},
        blocks={1: Block("m", "k", "y" * 5000, 0)},
        skipped={f"m{number}": "ann" for number in range(250)},
    )
    read = ledger.decode(ledger.encode(long))
    assert len(read.attempts["m"].error) == len(read.blocks[1].error) == ledger.MAX_ERROR
    assert list(read.skipped) == [f"m{number}" for number in range(150, 250)]


def test_damage_of_any_one_byte_is_noticed() -> None:
    """Each position, each of a few other bytes: refused, never another ledger and never another error."""
    data = ledger.encode(a_ledger())
    for at, byte in enumerate(data):
        for other in {byte ^ 1, byte ^ 0x10, ord("0"), ord('"'), ord(" "), 0xFF} - {byte}:
            damaged = data[:at] + bytes([other]) + data[at + 1 :]
            with pytest.raises(DamagedLedger):
                ledger.decode(damaged)


@given(st.integers(0, 2000), st.integers(0, 2000))
@settings(max_examples=60)
def test_a_ledger_that_was_cut_is_refused(start: int, end: int) -> None:
    """Whatever is missing, at either end."""
    data = ledger.encode(a_ledger())
    cut = data[start % len(data) : len(data) - end % len(data)]
    if cut != data:
        with pytest.raises(DamagedLedger):
            ledger.decode(cut)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
FIELDS = list(json.loads(ledger.encode(a_ledger())))


@given(st.sampled_from(FIELDS), JSON)
@settings(max_examples=200)
def test_a_field_of_a_wrong_shape_is_refused_or_read(name: str, value: object) -> None:
    """A foreign writer with a true checksum: DamagedLedger or a ledger that encodes again, no other error."""
    record = json.loads(ledger.encode(a_ledger()))
    record[name] = value
    body = {field: record[field] for field in record if field not in ("format", "sum")}
    if name != "sum":
        record["sum"] = ledger._checksum(body)
    try:
        read = ledger.decode(json.dumps(record).encode())
    except DamagedLedger:
        return
    assert same(ledger.decode(ledger.encode(read)), read)


@given(st.binary(max_size=60))
def test_what_is_no_ledger_is_refused(data: bytes) -> None:
    """Any bytes."""
    with pytest.raises(DamagedLedger):
        ledger.decode(data)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"format":1e999}', b'{"format":' + b"9" * 5000 + b"}", b"\xff\xfe"])
def test_what_breaks_a_json_reader_is_refused(data: bytes) -> None:
    """Depth, infinity, length and encoding."""
    with pytest.raises(DamagedLedger):
        ledger.decode(data)


def test_another_format_says_what_to_do() -> None:
    """A ledger of a newer consumer is not guessed at."""
    data = ledger.encode(a_ledger()).replace(b'"format":1', b'"format":2')
    with pytest.raises(DamagedLedger, match="newer consumer image"):
        ledger.decode(data)
