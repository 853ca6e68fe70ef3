"""The published schema and the reference of the verdict, compared with the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from lbg import validator
from lbg.core import run_log
from lbg.core.outputs import OutputRecord
from lbg.validator.rows import HANDLED, SET_ASIDE

Record = Callable[..., OutputRecord]

DOCS = Path(__file__).parents[2] / "docs"
TYPES = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


@pytest.fixture(scope="module")
def schema() -> str:
    """Return the document of the output record."""
    return (DOCS / "output-record.md").read_text()


@pytest.fixture(scope="module")
def reference() -> str:
    """Return the document of the validator."""
    return (DOCS / "validator.md").read_text()


def test_schema_has_every_field_with_its_type(schema: str) -> None:
    """The table lists the fields of the record in their order, each with its JSON type."""
    want = [(field.name, TYPES[str(field.type)]) for field in fields(OutputRecord)]
    assert [row[:2] for row in ROW.findall(schema)] == want


@pytest.mark.parametrize("name", [field.name for field in fields(OutputRecord) if str(field.type) in ("int", "float")])
def test_stated_bound_is_the_checked_one(schema: str, record: Record, name: str) -> None:
    """A value at the bound is taken and one below it is damage."""
    bounds = {row[0]: row[2].strip() for row in ROW.findall(schema)}
    lowest = int(bounds[name].removeprefix(">= "))
    at, below = (validator.verify([record(**{name: value})]) for value in (lowest, lowest - 1))
    assert name in below.examples[0].text
    assert not any(name in example.text and "should be" in example.text for example in at.examples)


def test_outcomes_are_named(schema: str) -> None:
    """Every outcome that the check knows stands in the schema."""
    assert all(f"`{outcome}`" in schema for outcome in (HANDLED, *SET_ASIDE))


def test_reference_shows_the_verdict_as_it_is(reference: str) -> None:
    """The example has the published keys in their order; every count that must be zero is explained."""
    shown = json.loads(reference.partition("```json\n")[2].partition("```")[0])
    verdict = validator.verify([]).to_json()
    assert list(shown) == list(verdict)[: len(shown)]
    assert shown["handover_ms"].keys() == verdict["handover_ms"].keys() == verdict["failover_ms"].keys()  # type: ignore[attr-defined]
    assert all(f"`{name}`" in reference for name in (*validator.verdicts.FAULTS, "unsequenced", "truncated"))


def test_published_form_is_json(record: Record) -> None:
    """A verdict with something of everything goes through JSON unchanged."""
    rows = [record(0), record(2), record(2), record(1, consumer="b", epoch=2), record(-1)]
    values = validator.to_json(validator.verify(rows))
    assert json.loads(json.dumps(values)) == values


def test_kinds_of_the_log_are_named(reference: str) -> None:
    """Every kind that this project writes about stands in the reference."""
    kinds = [value for name, value in vars(run_log).items() if name.isupper() and isinstance(value, str)]
    assert len(kinds) > 10
    assert all(f"`{kind}`" in reference for kind in kinds)
