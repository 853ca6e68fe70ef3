"""The base of the models and the kinds of field they share, each with the words for what it wants.

A `Wanted` marker in a field's annotation says it in a person's words; `explain` reads it. Limits stay ordinary pydantic
constraints, because the CRD's schema is generated from them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from lbg.core import contract, durations
from lbg.core.spec.problems import short, unfit


class Fields(BaseModel):
    """Base of every model: unknown fields refused, values frozen, camelCase outside and snake_case inside.

    The string below each field is its description and becomes `kubectl explain`.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,  # for Python callers; a group's YAML is read by alias only
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A marker in an annotation: what to write into the field, in words that follow "write"."""

    words: str


# Strict, since pydantic would read "3" as 3 and true as 1. The API server refuses both, and so would the same file.
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        try:
            return durations.parse(value)
        except ValueError as error:
            problem, _, remedy = str(error).partition(": ")
            raise unfit(value, problem, remedy) from None
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise unfit(value, "has no unit", "write it with one, such as 200ms, 30s or 5m")
    if value is None:
        raise unfit(None, "is no duration", "write one such as 200ms, 30s or 5m, or remove the line")
    raise unfit(value, "is not a duration", "write one such as 200ms, 30s, 5m or 1h30m")


Duration = Annotated[
    float,
    BeforeValidator(_seconds),
    PlainSerializer(durations.text, return_type=str),
    WithJsonSchema({"type": "string", "pattern": durations.PATTERN}),
    Wanted("a duration such as 200ms, 30s or 5m"),
]
"""Float seconds in Python, a string with a unit in YAML."""


def lasting(default: str, low: str, high: str) -> Any:
    """Return the declaration of a Duration field with its default and limits, all as written in YAML."""
    return Field(
        default=durations.parse(default),
        ge=durations.parse(low),
        le=durations.parse(high),
        json_schema_extra={"default": default},  # the schema describes YAML, not the seconds in Python
    )


DnsLabel = Annotated[
    str,
    Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    Wanted("at most 63 lower-case letters, digits and -, with a letter or digit at both ends"),
]

DnsSubdomain = Annotated[
    str,
    Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
    Wanted("a Kubernetes object name: lower-case letters, digits, - and ."),
]

StreamName = Annotated[
    str,
    Field(min_length=1, max_length=contract.MAX_PREFIX, pattern=contract.PREFIX_PATTERN),
    Wanted(f"1 to {contract.MAX_PREFIX} letters, digits, dots, dashes, underscores; first a letter or digit"),
]

PythonPath = Annotated[
    str,
    Field(max_length=500, pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"),
    Wanted("module and callable as package.module:function"),
]

_URL: Final = re.compile(
    r"https?://([^\s/?#@:\[\]]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?([/?#]\S*)?", re.ASCII | re.IGNORECASE
)
_USER: Final = re.compile(r"[^/]*//[^/?#]*@", re.ASCII)


def _url(value: str) -> str:
    if _USER.match(value):
        raise unfit(value, "carries a user name or password", "remove it, anybody may read the group")
    if _URL.fullmatch(value) is None:
        raise unfit(value, "is not an http URL", "write one such as http://127.0.0.1:8080/events")
    return value


HttpUrl = Annotated[
    str, Field(max_length=2000), AfterValidator(_url), Wanted("a URL such as http://127.0.0.1:8080/events")
]


_DEEPEST: Final = 100


def check_plain(value: object, path: str) -> None:
    """Check that a value that no model describes is plain JSON, since it is stored and sent as JSON.

    Raises:
        Unfit: a name or value has no JSON form, such as a date or infinity; the path leads to it.
    """
    _check_plain(value, path, 0)


def _check_plain(value: object, path: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise unfit(None, "is nested too deeply", f"use at most {_DEEPEST} levels", path)
    match value:
        case dict():
            for name, inner in value.items():
                if not isinstance(name, str):
                    raise unfit(name, "is not text, as every field name is", "write the name in quotes", path)
                _check_plain(inner, f"{path}.{short(name)}", depth + 1)
        case list():
            for index, inner in enumerate(value):
                _check_plain(inner, f"{path}[{index}]", depth + 1)
        case float() if not math.isfinite(value):
            raise unfit(value, "has no JSON form", "write a finite number", path)
        case None | bool() | int() | float() | str():
            pass
        case _:
            raise unfit(value, "has no JSON form", "write text, numbers, booleans, lists and mappings only", path)
