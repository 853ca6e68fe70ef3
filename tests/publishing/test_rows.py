"""Rows of files: what becomes an event, and what is refused with file, line and column."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.publishing import InvalidOption, rows
from lbg.publishing.rows import Layout, Row, RowRefused, SourceUnreadable

BY_TAIL = Layout(key=("tail",))


def rows_of(text: str | bytes, layout: Layout = BY_TAIL, name: str = "f.csv") -> list[Row]:
    data = text.encode() if isinstance(text, str) else text
    return list(rows.read_from(io.BytesIO(data), name, layout))


def refusal(text: str | bytes, layout: Layout = BY_TAIL, name: str = "f.csv") -> str:
    with pytest.raises(RowRefused) as caught:
        rows_of(text, layout, name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_csv_row_becomes_a_json_object() -> None:
    """Columns are named by the header, values are strings, and the key is the column's value."""
    (row,) = rows_of("tail,delay\nN14228,12\n")
    assert (row.key, row.line, row.offset) == ("N14228", 2, 21)
    assert json.loads(row.body) == {"tail": "N14228", "delay": "12"}


def test_a_json_line_passes_as_it_stands() -> None:
    """Numbers keep their digits, and an integer key becomes its decimal text."""
    line = '{"tail": 7, "x": 1.10, "big": 12345678901234567890}'
    (row,) = rows_of(f"\n  {line}  \n", name="f.jsonl")
    assert (row.key, row.body, row.line) == ("7", line.encode(), 2)


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0")), min_size=2, max_size=2), max_size=8
    )
)
def test_what_a_csv_writer_wrote_is_read_back(table: list[list[str]]) -> None:
    """Quotes, commas, line breaks and every script survive."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["a", "b"], *table])
    read = rows_of(text.getvalue(), Layout(key=("a",), missing=frozenset()))
    assert [json.loads(row.body) for row in read] == [{"a": a, "b": b} for a, b in table]
    assert [row.key for row in read] == [a for a, _ in table]


@pytest.mark.parametrize(
    ("text", "name", "layout"),
    [
        ("\ufefftail\nA\n", "f.csv", BY_TAIL),
        ("tail\r\nA\r\n", "f.csv", BY_TAIL),
        ("tail\n\nA", "f.csv", BY_TAIL),
        ("x\ttail\n1\tA\n", "f.TSV", BY_TAIL),
        ("x;tail\n1;A\n", "f.csv", Layout(key=("tail",), delimiter=";")),
        ('{"tail": "A"}\n', "f.ndjson", BY_TAIL),
        ('{"tail": "A"}', "standard input", Layout(key=("tail",), kind="jsonl")),
        ('\ufeff{"tail": "A"}', "f.jsonl", BY_TAIL),
    ],
    ids=["mark", "windows", "no last break", "tabs", "delimiter", "ndjson", "no name", "mark in json"],
)
def test_files_of_common_shapes_are_read(text: str, name: str, layout: Layout) -> None:
    """Byte order marks, line ends and delimiters of other tools are understood."""
    assert [row.key for row in rows_of(text, layout, name)] == ["A"]


def test_several_columns_make_one_key() -> None:
    """Their values are joined, in the order given."""
    layout = Layout(key=("carrier", "tail"))
    assert [row.key for row in rows_of("tail,carrier\nN1,UA\n", layout)] == ["UA/N1"]


def test_rows_without_a_key_get_the_documented_one() -> None:
    """Empty, absent, null and the file's own word for it all count as missing."""
    layout = Layout(key=("tail",), missing=frozenset({"", "NA"}), missing_key=rows.MISSING_KEY)
    assert [row.key for row in rows_of("tail,x\n,1\nNA,2\nN1,3\n", layout)] == ["no-key", "no-key", "N1"]
    text = '{"tail": null}\n{}\n{"tail": "NA"}\n{"tail": "N1"}\n'
    assert [row.key for row in rows_of(text, layout, "f.jsonl")] == ["no-key", "no-key", "no-key", "N1"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "f.csv:1: the file is empty: expected a line of column names"),
        ("a,b\n", "f.csv:1: column tail: is not in the file: it has a, b"),
        ("tail,x,x\n", "f.csv:1: column x: two columns have this name: rename one"),
        ("tail,x\nA,1\nB\n", "f.csv:3: 1 fields, and 2 columns: check the quotes and the delimiter"),
        ('tail,x\n"A,1\n', "f.csv:2: not CSV: unexpected end of data"),
        ('tail,x\n"A"b,1\n', "f.csv:2: not CSV: "),
        ("tail\nA\n\n,\n", "f.csv:4: 2 fields, and 1 columns"),
        ("tail,x\nA,1\n,2\n", "f.csv:3: column tail: the key is missing: mend the row, or name a key for rows without"),
        (b"tail\nA\n\xff\n", "f.csv:3: byte 1 is not UTF-8: convert the file"),
        ("tail\n" + "x" * 200_000, "f.csv:2: not CSV: field larger than field limit"),
    ],
)
def test_bad_csv_is_named_by_line(text: str | bytes, want: str) -> None:
    """Each line of a message leads to the place in the file."""
    assert refusal(text).startswith(want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('{"tail": "A"}\n{"tail": \n', "f.jsonl:2: not JSON: Expecting value"),
        ("[1]", "f.jsonl:1: expected a JSON object, got an array"),
        ("null", "f.jsonl:1: expected a JSON object, got null"),
        ('{"tail": "A", "x": NaN}', "f.jsonl:1: not JSON: NaN is no JSON value"),
        ('{"tail": 1.5}', "f.jsonl:1: column tail: a key is a string or an integer, not a number"),
        ('{"tail": true}', "f.jsonl:1: column tail: a key is a string or an integer, not a boolean"),
        ('{"tail": {}}', "f.jsonl:1: column tail: a key is a string or an integer, not an object"),
        ("{}", "f.jsonl:1: column tail: the key is missing"),
        ('{"tail":' + "[" * 100_000, "f.jsonl:1: nested too deeply"),
    ],
)
def test_bad_json_is_named_by_line(text: str, want: str) -> None:
    """Each line of a message leads to the place in the file."""
    assert refusal(text, name="f.jsonl").startswith(want)


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary file does not fill the memory."""
    monkeypatch.setattr(rows, "LONGEST_LINE", 10)
    assert refusal("tail\n" + "x" * 11).startswith("f.csv:2: the line is longer than 10 bytes")


def test_rows_before_a_bad_one_are_given() -> None:
    """Reading is a stream: what stands before the refused row is not lost."""
    source = rows.read_from(io.BytesIO(b"tail\nA\nB\n,\n"), "f.csv", BY_TAIL)
    assert [next(source).key, next(source).key] == ["A", "B"]
    with pytest.raises(RowRefused):
        next(source)


@pytest.mark.parametrize(
    "values",
    [
        ["9", "10", "10", "11"],
        ["-1", "0.5", "1e3"],
        ["123456789012345678", "123456789012345679"],
        ["2013-01-01", "2013-01-01T05:00", "2013-01-02"],
        ["2013-01-01T05:00:00Z", "2013-01-01T07:00:00+01:00"],
        ["a", "b", "b", "ba"],
        ["x9", "y1", "z"],
    ],
    ids=["integers", "decimals", "large", "timestamps", "offsets", "text", "text for good"],
)
def test_rows_in_order_pass(values: list[str]) -> None:
    """Numbers, timestamps and text are compared as such; equal rows are in order."""
    layout = Layout(key=("tail",), order=("at",))
    assert len(rows_of("tail,at\n" + "".join(f"A,{value}\n" for value in values), layout)) == len(values)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (["9", "10", "2"], "f.csv:4: column at: 2 comes after 10 of line 3: sort the file"),
        (["123456789012345679", "123456789012345678"], "f.csv:3: column at: 123456789012345678 comes after"),
        (["2013-01-01T07:00:00+01:00", "2013-01-01T05:00:00Z"], "f.csv:3: column at: 2013-01-01T05:00:00Z comes after"),
        (["b", "a"], "f.csv:3: column at: a comes after b of line 2: sort the file"),
        (["1", "NA"], "f.csv:3: column at: 'NA' is text, and the first row had a number"),
        (["1", ""], "f.csv:3: column at: the value is missing, and the rows must be in its order"),
        (["a", ""], "f.csv:3: column at: the value is missing, and the rows must be in its order"),
        (["2013-01-01", "2013-01-01T00:00Z"], "f.csv:3: column at: '2013-01-01T00:00Z' is a timestamp with offset"),
    ],
)
def test_rows_out_of_order_are_named(values: list[str], want: str) -> None:
    """The line, the value and the one before it; a value of another kind is never compared."""
    layout = Layout(key=("tail",), order=("at",))
    assert refusal("tail,at\n" + "".join(f"A,{value}\n" for value in values), layout).startswith(want)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1))
def test_several_order_columns_are_compared_one_after_the_other(pairs: list[tuple[int, int]]) -> None:
    """Rows pass exactly when they are sorted by all the columns."""
    layout = Layout(key=("tail",), order=("a", "b"))
    text = "tail,a,b\n" + "".join(f"A,{a},{b}\n" for a, b in pairs)
    if pairs == sorted(pairs):
        assert len(rows_of(text, layout)) == len(pairs)
    else:
        assert "column a, b: " in refusal(text, layout)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("true", "a row is ordered by a string or a number, not by bool"),
        ("null", "a row is ordered by a string or a number, not by NoneType"),
        (None, "is not in the row, and the rows must be in its order"),
    ],
)
def test_json_rows_without_a_place_are_refused(value: Any, want: str) -> None:
    """What cannot be compared cannot be in order."""
    text = '{"tail": "A"}' if value is None else f'{{"tail": "A", "at": {value}}}'
    layout = Layout(key=("tail",), order=("at",))
    assert refusal(text, layout, "f.jsonl") == f"f.jsonl:1: column at: {want}"


def test_files_are_read_from_disk_and_named(tmp_path: Path) -> None:
    """A path is opened when the iteration starts; what cannot be opened or told is one line."""
    path = tmp_path / "flights.csv"
    path.write_text("tail\nA\n")
    assert [row.key for row in rows.read(path, BY_TAIL)] == ["A"]
    for bad, want in [
        (tmp_path / "absent.csv", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ]:
        with pytest.raises(SourceUnreadable, match=want):
            list(rows.read(bad, BY_TAIL))
    other = tmp_path / "flights.xlsx"
    other.write_bytes(b"")
    with pytest.raises(SourceUnreadable, match="say whether it is csv or jsonl"):
        list(rows.read(other, BY_TAIL))


def test_a_layout_that_means_nothing_is_refused() -> None:
    """Without a key column, or with a delimiter that is none, no file could be read."""
    with pytest.raises(InvalidOption, match="key: no column is named"):
        Layout(key=())
    for delimiter in ("", ";;", '"', "\n"):
        with pytest.raises(InvalidOption, match="delimiter: "):
            Layout(key=("a",), delimiter=delimiter)


def test_standard_input_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "-" reads standard input, whose format must be told."""
    with pytest.raises(SourceUnreadable, match="standard input: cannot tell its format"):
        list(rows.read("-", BY_TAIL))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"tail\nA\n")))
    assert [row.key for row in rows.read("-", Layout(key=("tail",), kind="csv"))] == ["A"]
