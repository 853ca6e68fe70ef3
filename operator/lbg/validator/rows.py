"""From a line of the output to the values that the check needs, and the words for what is wrong with a line.

Speed lives here: 18 fields checked one by one in Python, and a frozen object built from them, cost more than the check
itself. So the JSON parser validates types and bounds in its own pass. The schema is that of `outputs.OutputRecord`,
with the bounds that its comments state; what a row means is the checker's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from pydantic_core import SchemaValidator, ValidationError, core_schema

from lbg.core.outputs import OutputRecord
from lbg.core.wire import Identity

HANDLED: Final = "handled"
SET_ASIDE: Final = ("skipped", "dead-lettered", "parked")
"""Outcomes of an event that no handler finished and that is accounted for all the same."""


class Row(NamedTuple):
    """The fields of an output record that the check reads; `outputs.OutputRecord` says what they mean."""

    message_id: str
    key: str
    shard: int
    queue: int
    epoch: int
    producer: str
    incarnation: int
    sequence: int
    consumer: str
    clean: bool
    started: float
    ended: float
    published: float
    outcome: str

    @property
    def name(self) -> str:
        """Return the event's identity as people write it: `producer:incarnation:shard:sequence`."""
        return Identity(self.producer, self.incarnation, self.shard, self.sequence).message_id


MOST: Final = 2**63 - 1  # identities travel as int64
_LATEST: Final = 1e15  # ms, some 30,000 years; shuts out NaN and infinity, which no comparison survives


def _count(lowest: int) -> core_schema.CoreSchema:
    return core_schema.int_schema(strict=True, ge=lowest, le=MOST)


def _time(lowest: float) -> core_schema.CoreSchema:
    return core_schema.float_schema(strict=True, ge=lowest, le=_LATEST, allow_inf_nan=False)


_TEXT: Final = core_schema.str_schema(strict=True)
_FLAG: Final = core_schema.bool_schema(strict=True)
_SCHEMA: Final[Mapping[str, core_schema.CoreSchema]] = {
    "message_id": _TEXT,
    "key": _TEXT,
    "shard": _count(-1),
    "queue": _count(0),
    "epoch": _count(0),
    "producer": _TEXT,
    "incarnation": _count(-1),
    "sequence": _count(-1),
    "consumer": _TEXT,
    "ordinal": _count(-1),
    "attempt": _count(1),
    "redelivered": _FLAG,
    "first_after_handover": _FLAG,
    "clean": _FLAG,
    "started": _time(0),
    "ended": _time(0),
    "published": _time(-1),
    "outcome": core_schema.with_default_schema(core_schema.literal_schema([HANDLED, *SET_ASIDE]), default=HANDLED),
}
_LINE: Final = SchemaValidator(
    core_schema.typed_dict_schema(
        {name: core_schema.typed_dict_field(schema) for name, schema in _SCHEMA.items()}, extra_behavior="ignore"
    )
)

_pick: Final = itemgetter(*Row._fields)


class Damaged(ValueError):
    """A line that is no output record. One line that names the field and what was expected of it."""


def from_line(line: bytes) -> Row:
    """Return the row that one JSON line carries; unknown fields are ignored.

    Raises:
        Damaged: the line is not JSON, a field is missing, of a wrong type or out of bounds.
    """
    try:
        return Row._make(_pick(_LINE.validate_json(line)))
    except ValidationError as refused:
        raise Damaged(_first(refused)) from None


def from_record(record: OutputRecord) -> Row:
    """Return the row of a record that was read elsewhere, from a broker's stream for example.

    Raises:
        Damaged: as `from_line`; a record's types are checked where it is built, its bounds are not.
    """
    try:
        return Row._make(_pick(_LINE.validate_python({name: getattr(record, name) for name in _SCHEMA})))
    except ValidationError as refused:
        raise Damaged(_first(refused)) from None


def _first(refused: ValidationError) -> str:
    # Input is left out: a line of binary junk belongs on nobody's terminal.
    error = refused.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in error["loc"]) or "line"
    return f"{where}: {error['msg']}".replace("\n", " ")
