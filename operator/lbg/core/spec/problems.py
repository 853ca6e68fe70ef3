"""What is wrong with a group's YAML, said so that its author can mend it: path, value, problem, remedy.

Only the records and the way a value is shown live here. Which input is a problem is decided by the models; how
pydantic's errors become these records is `explain`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_LONGEST_VALUE: Final = 60
_MOST_LINES: Final = 50

# Everything before the last @ of a URL may be a password, even / and @ themselves; and a query may hold a token.
_CREDENTIALS: Final = re.compile(r"(?P<scheme>^[A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)
_QUERY: Final = re.compile(r"(?<=[?#]).*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One bad field. `value` is already fit to be printed: shortened and without credentials, or empty."""

    path: str  # spec.queues.count, spec.autoscaling.schedules[0].cron; or a place in the text: line 3, column 7
    value: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        said = f"{self.value} {self.problem}" if self.value else self.problem
        return ": ".join(part for part in (self.path, said, self.remedy) if part)


class SpecError(ValueError):
    """The author of a group must change something. Its text is one line per problem, each with the remedy."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__(source, self.problems)

    def __str__(self) -> str:
        lines = [f"{self.source}: {problem}" for problem in self.problems[:_MOST_LINES]]
        if len(self.problems) > _MOST_LINES:
            lines.append(f"{self.source}: {len(self.problems) - _MOST_LINES} more problems: mend these first")
        return "\n".join(lines)


class Unfit(ValueError):
    """Raised by a validator of a model: values that do not fit, with paths relative to where it stands."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))


def unfit(value: object, problem: str, remedy: str, path: str = "") -> Unfit:
    """Return an Unfit with one problem."""
    return Unfit(Problem(path, shown(value), problem, remedy))


def shown(value: object) -> str:
    """Return a value as a message may show it: on one line, short, without credentials; collections by kind only."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{short(value)}"'
        case int() if value.bit_length() > 64:
            return "a number of more than 64 bits"  # str() of a huge int is slow, and refused from 4,300 digits on
        case int() | float():
            return str(value)
        case Mapping():
            return "a mapping"
        case list() | tuple() | set() | frozenset():
            return "a list"
        case _:
            return f"a value of type {short(type(value).__name__)}"


def short(text: str) -> str:
    """Return text from outside as one short line for a terminal: no credentials, no control characters."""
    text = _CREDENTIALS.sub(lambda match: f"{match['scheme'] or ''}***@", text, count=1)
    if "://" in text:
        text = _QUERY.sub("***", text, count=1)
    if len(text) > _LONGEST_VALUE:
        text = text[: _LONGEST_VALUE - 3] + "..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
