"""The output record: one line of evidence per handled event, from which the validator proves order.

The consumer writes it to the group's output stream *before* it acknowledges the event, so that the stream, in its own
arrival order, is what happened. The record travels in the `lbg-out-*` headers of the output message; its body is what
the handler returned (or the event's own body when it is republished). A run folder keeps the same record as one JSON
object a line. The schema is published and kept stable: add fields, never change or reuse one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final, TypeAlias

from lbg.core.wire import HeaderValue, Message

PREFIX: Final = "lbg-out-"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRecord:
    """What a consumer says about one handled event. Times are ms since the Unix epoch, with fractions."""

    message_id: str
    key: str
    shard: int
    queue: int
    epoch: int  # the queue's epoch under which the event was handled; 0 when the ledger could not be read
    producer: str  # "" for an unsequenced event, then incarnation and sequence are -1
    incarnation: int
    sequence: int
    consumer: str  # holder identity of the process
    ordinal: int  # the seat it held, -1 without one
    attempt: int  # 1 for the first
    redelivered: bool
    first_after_handover: bool  # first event of this queue under this epoch
    clean: bool  # the previous owner had released the queue cleanly (a planned move) or there was none
    started: float
    ended: float
    published: float  # the publisher's clock, -1 when unknown
    outcome: str = "handled"  # handled | skipped | dead-lettered

    def to_headers(self) -> dict[str, HeaderValue]:
        """Return the record as `lbg-out-*` headers."""
        return {PREFIX + name: value for name, value in asdict(self).items()}

    def to_json(self) -> str:
        """Return the record as one line of JSON without a newline."""
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False)


_Kind: TypeAlias = tuple[type, ...]
_KINDS: Final[dict[str, _Kind]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (int, float)}
_WORDS: Final[dict[_Kind, str]] = {(str,): "a string", (int,): "an integer", (bool,): "a boolean"}
_TYPES: Final[dict[str, _Kind]] = {f.name: _KINDS[str(f.type)] for f in fields(OutputRecord)}


def from_mapping(values: Mapping[str, object]) -> OutputRecord:
    """Build a record from a JSON object; unknown fields are ignored, so that newer writers stay readable.

    Raises:
        ValueError: a field is missing or has a wrong type; the message names it.
    """
    chosen: dict[str, object] = {}
    for name, kind in _TYPES.items():
        value = values.get(name, "handled" if name == "outcome" else None)
        wrong_bool = isinstance(value, bool) and kind != (bool,)
        if wrong_bool or not isinstance(value, kind):
            got = "nothing" if value is None else type(value).__name__
            raise ValueError(f"{name}: expected {_WORDS.get(kind, 'a number')}, got {got}")
        chosen[name] = value
    return OutputRecord(**chosen)  # type: ignore[arg-type]  # checked field by field above


def from_message(message: Message) -> OutputRecord:
    """Read the record that an output message carries.

    Raises:
        ValueError: the message carries none, or a damaged one.
    """
    return from_mapping({n.removeprefix(PREFIX): v for n, v in message.headers.items() if n.startswith(PREFIX)})
