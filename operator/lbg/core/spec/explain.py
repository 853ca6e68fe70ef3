"""pydantic's errors -> problems in people's words. pydantic's own wording never gets through.

A kind of error that nobody foresaw still gets its path and what the field wants, with general words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lbg.core import durations
from lbg.core.spec import declared
from lbg.core.spec.declared import Model
from lbg.core.spec.problems import Problem, Unfit, short, shown

_MISSING: Final = "is missing"

# Kind of error -> problem and remedy. {wants}, {bounds}, {low} and {high} come from the field's declaration.
_WORDS: Final[dict[str, tuple[str, str]]] = {
    "int_type": ("is not a whole number", "write {wants}"),
    "bool_type": ("is not true or false", "write true or false, without quotes"),
    "string_type": ("is not text", "write {wants}"),
    "greater_than_equal": ("is less than {low}", "use {bounds}"),
    "less_than_equal": ("is more than {high}", "use {bounds}"),
    "enum": ("is not one of the choices", "use {wants}"),
    "literal_error": ("is not one of the choices", "use {wants}"),
    "model_type": ("is not a mapping", "write {wants}"),
    "dict_type": ("is not a mapping", "write {wants}"),
    "tuple_type": ("is not a list", "begin each entry with a dash on a line of its own"),
    "too_long": ("has too many entries", "keep at most {most}"),
    "too_short": ("has no entries", "add one, or remove the line"),
    "invalid_key": ("is not text, as every field name is", "write the name in quotes"),
}
_ANY_OTHER: Final = ("does not fit", "write {wants}")
_WITHOUT_VALUE: Final = {"too_long", "too_short"}


def problems(error: ValidationError, root: Model) -> tuple[Problem, ...]:
    """Return one problem per bad field, in the order of the models."""
    found: list[Problem] = []
    suggested: set[str] = set()
    for details in error.errors(include_url=False):
        if details["type"] == "extra_forbidden":
            problem, suggestion = _unknown_field(details["loc"], root)
            found.append(problem)
            suggested.add(suggestion)
        elif details["type"] != "default_factory_not_called":  # follows from the error of another field
            found.extend(_explain(details, root))
    # A misspelled field is also a missing one; its author needs to hear of it once.
    return tuple(item for item in found if not (item.problem == _MISSING and item.path in suggested))


def path_of(loc: Sequence[str | int]) -> str:
    """Return where a field stands, as people write it: spec.autoscaling.schedules[0].cron."""
    path = ""
    for part in loc:
        if part != "[key]":  # pydantic's mark for "the name itself, not its value"
            path = declared.join(path, f"[{part}]" if isinstance(part, int) else short(part))
    return path


def _explain(details: ErrorDetails, root: Model) -> Iterator[Problem]:
    loc, value = details["loc"], details["input"]
    path, field = path_of(loc), declared.field_at(loc, root)
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, Unfit):
        for problem in cause.problems:
            yield Problem(declared.join(path, problem.path), problem.value, problem.problem, problem.remedy)
    elif details["type"] == "missing":
        yield Problem(path, "", _MISSING, declared.how_to_add(field))
    elif details["type"] == "invalid_key" or loc[-1:] == ("[key]",):
        yield Problem(path, "", *_WORDS["invalid_key"])
    elif value is None:
        remove = "" if field is not None and field.is_required() else ", or remove the line"
        yield Problem(path, "", "has no value", f"write {declared.wants(field)}{remove}")
    else:
        if declared.is_duration(field) and isinstance(value, float):
            value = durations.text(value)  # already read when a limit refuses it
        yield Problem(path, "" if details["type"] in _WITHOUT_VALUE else shown(value), *_words(details, field))


def _words(details: ErrorDetails, field: FieldInfo | None) -> tuple[str, str]:
    kind, value = details["type"], details["input"]
    if kind == "int_type" and isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return "is text, not a number", "write it without quotes"
    if kind == "string_type" and isinstance(value, int | float):
        return "is not text", f'write it in quotes, "{shown(value)}"'
    low, high = declared.limits(field)
    problem, remedy = _WORDS.get(kind, _ANY_OTHER)
    values = {
        "wants": declared.wants(field) if field is not None or kind != "string_type" else "text",
        "bounds": declared.bounds(field),
        "low": low,
        "high": high,
        "most": details.get("ctx", {}).get("max_length"),
    }
    return problem.format_map(values), remedy.format_map(values)


def _unknown_field(loc: Sequence[str | int], root: Model) -> tuple[Problem, str]:
    """Return the problem, and the path of the field that its author probably meant ("" if nobody can tell)."""
    *parents, name = loc
    model = declared.model_of(declared.field_at(parents, root)) if parents else root
    siblings = declared.names(model)
    near = declared.nearest(str(name), siblings)
    if near is not None:
        return Problem(path_of(loc), "", "is unknown", f"did you mean {near}?"), declared.join(path_of(parents), near)
    elsewhere = [path for path in declared.all_paths(root) if _is_misplaced(path_of(loc), path)]
    if len(elsewhere) == 1:
        return Problem(path_of(loc), "", "is unknown", f"did you mean {elsewhere[0]}?"), elsewhere[0]
    return Problem(path_of(loc), "", "is unknown", f"the fields here are {', '.join(siblings)}"), ""


def _is_misplaced(written: str, known: str) -> bool:
    """Tell whether a field stands one or more levels too high or too deep, but not in another branch."""
    (above, _, name), (home, _, right) = written.rpartition("."), known.rpartition(".")
    return name == right and (f"{above}.".startswith(f"{home}.") or f"{home}.".startswith(f"{above}.") or not above)
