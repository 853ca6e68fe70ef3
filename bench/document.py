"""The results as text for a terminal and as the document docs/bench.md. Every figure in it comes from a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench import tables
from bench.figures import Figure, Result

COLUMNS = ("figure", "value", "unit", "target", "met")


def text(results: Sequence[Result]) -> str:
    """Return all results as tables, each under its name and conditions."""
    return "\n\n".join(f"{result['bench']}: {result['about']}\n{_table(result)}" for result in results)


def markdown(results: Sequence[Result], machine: Mapping[str, str], command: str) -> str:
    """Return the document; `command` is the one that measured."""
    parts = [
        "# Measurements",
        f"Written by `{command} --write docs/bench.md`; nothing here is typed by hand. A target stands where the\n"
        "project has set one, and `met` says whether this run met it. Ratios are of neighbouring measurements of one\n"
        "run. Other work on the machine makes wall times longer; the load average says how much there was.",
        ", ".join(f"{name} {value}" for name, value in machine.items()),
    ]
    for result in results:
        conditions = "; ".join(f"{name}: {value}" for name, value in result["conditions"].items())
        parts += [f"## {result['bench'].capitalize()}", f"{result['about'].capitalize()}.", conditions, _table(result)]
    return "\n\n".join(parts) + "\n"


def _table(result: Result) -> str:
    return tables.markdown(COLUMNS, [_row(figure) for figure in result["figures"]])


def _row(figure: Figure) -> tuple[object, ...]:
    met = "" if figure["met"] is None else "yes" if figure["met"] else "no"
    return figure["name"], figure["value"], figure["unit"], figure["target"] or "", met
