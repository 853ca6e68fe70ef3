"""What the models declare, in people's words: which fields there are, and what each one wants.

Read from the models at run time, so that messages and limits cannot drift apart. Nothing here knows of an error.
"""

from __future__ import annotations

import difflib
import enum
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lbg.core import durations
from lbg.core.spec.fields import Duration, Wanted

Model: TypeAlias = type[BaseModel]

_DURATION: Final = next(mark for mark in typing.get_args(Duration) if isinstance(mark, Wanted))


def names(model: Model | None) -> dict[str, FieldInfo]:
    """Return the fields of a model by the name they have in YAML; none of no model."""
    return {} if model is None else {field.alias or name: field for name, field in model.model_fields.items()}


def model_of(field: FieldInfo | None) -> Model | None:
    """Return the model of a field, or of the entries of a list; None for a field that is no mapping of ours."""
    if field is None:
        return None
    kind = _plain(field.annotation)
    entry = typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind
    return entry if isinstance(entry, type) and issubclass(entry, BaseModel) else None


def field_at(loc: Sequence[str | int], root: Model) -> FieldInfo | None:
    """Return the field that a location names (of a list's entry: the list's), None where no field is declared."""
    model: Model | None = root
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int) and field is not None:
            continue
        field = names(model).get(str(part))
        model = model_of(field)
    return field


def all_paths(model: Model, above: str = "") -> Iterator[str]:
    """Yield the path of every field below a model, without those in lists."""
    for name, field in names(model).items():
        path = join(above, name)
        yield path
        inner = model_of(field)
        if inner is not None and typing.get_origin(_plain(field.annotation)) is not tuple:
            yield from all_paths(inner, path)


def join(path: str, rest: str) -> str:
    """Return two parts of a path as one; an index such as [0] takes no dot."""
    return f"{path}.{rest}" if path and rest and not rest.startswith("[") else path + rest


def nearest(name: str, options: Iterable[str]) -> str | None:
    """Return the option that somebody who wrote `name` most likely meant, None if none is close."""
    folded = {_fold(option): option for option in options}
    close = difflib.get_close_matches(_fold(name)[:100], folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else None


def _fold(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def wants(field: FieldInfo | None) -> str:
    """Return what to write into a field, in words that follow "write"."""
    if field is None:
        return "something else"
    said = next((mark.words for mark in _marks(field) if isinstance(mark, Wanted)), None)
    return said or _wants(field, _plain(field.annotation))


def _wants(field: FieldInfo, kind: Any) -> str:
    origin, model = typing.get_origin(kind), model_of(field)
    if origin is tuple:
        return "a list"
    if origin is dict:
        return "name: value pairs"
    if origin is typing.Literal:
        return _either(map(str, typing.get_args(kind)))
    if model is not None:
        return f"its fields below it ({', '.join(names(model))})"
    if kind is bool:
        return "true or false"
    if kind is int:
        return f"a whole number, {bounds(field)}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _either(str(member.value) for member in kind)
    return "text"


def how_to_add(field: FieldInfo | None) -> str:
    """Return the remedy for a field that is missing."""
    required = [name for name, inner in names(model_of(field)).items() if inner.is_required()]
    if required:
        return f"add it, with {' and '.join(required)} at least"
    return f"add it: {wants(field)}"


def limits(field: FieldInfo | None) -> tuple[str | None, str | None]:
    """Return the lowest and the highest value of a field as they are written in YAML."""
    if field is None:
        return None, None
    write = durations.text if is_duration(field) else str
    low = next((write(mark.ge) for mark in _marks(field) if hasattr(mark, "ge")), None)
    high = next((write(mark.le) for mark in _marks(field) if hasattr(mark, "le")), None)
    return low, high


def is_duration(field: FieldInfo | None) -> bool:
    """Tell whether a field holds seconds that are written with a unit."""
    return field is not None and _DURATION in _marks(field)


def _marks(field: FieldInfo) -> list[Any]:
    """Return what a field's annotation carries beside its type, also inside Optional."""
    inner = _arms(field.annotation)[0]
    return [*field.metadata, *(inner.__metadata__ if typing.get_origin(inner) is typing.Annotated else ())]


def bounds(field: FieldInfo | None) -> str:
    """Return the limits of a field in words that follow "use"."""
    low, high = limits(field)
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"{low} or more"
    return f"{high} or less" if high is not None else "another value"


def _either(options: Iterable[str]) -> str:
    *others, last = options
    return f"{', '.join(others)} or {last}" if others else last


def _plain(annotation: Any) -> Any:
    """Return the type in an annotation, without Optional and marks; other unions carry a Wanted marker."""
    arms = _arms(annotation)
    inner = arms[0] if len(arms) == 1 else annotation
    return inner.__origin__ if typing.get_origin(inner) is typing.Annotated else inner


def _arms(annotation: Any) -> list[Any]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return [arm for arm in typing.get_args(annotation) if arm is not types.NoneType]
    return [annotation]
