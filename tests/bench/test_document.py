"""Tables: what was measured stands in them, and nothing else."""

from bench import document, figures, tables

RESULT = figures.Result(
    bench="it",
    about="how it goes",
    conditions={"rounds": 3},
    figures=[
        figures.figure("rate", 5123.4, "1/s", (">=", 5000.0)),
        figures.figure("gap", None, "ms", ("<=", 50.0)),
        figures.figure("cost", 1.5, "times"),
    ],
)


def cells(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its two lines of head."""
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_a_table_shows_value_target_and_whether_it_is_met() -> None:
    """A missing value is unknown and misses its target; without a target nothing is said."""
    assert cells(document.text([RESULT])) == [
        ["rate", "5,123", "1/s", ">= 5,000 1/s", "yes"],
        ["gap", "unknown", "ms", "<= 50 ms", "no"],
        ["cost", "1.5", "times", "", ""],
    ]


def test_the_document_names_the_command_and_the_machine() -> None:
    """Whoever reads a figure can measure it again."""
    written = document.markdown([RESULT], {"cores": "2"}, "python -m bench it")
    assert "python -m bench it --write docs/bench.md" in written
    assert "cores 2" in written
    assert cells(written) == cells(document.text([RESULT]))


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Every line of a table is equally long."""
    lines = tables.markdown(("a", "long name"), [("longer than the head", 1), ("x", 2.5)]).splitlines()
    assert len({len(line) for line in lines}) == 1
