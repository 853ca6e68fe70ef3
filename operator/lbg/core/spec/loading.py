"""Text -> group and back. Pure: whoever calls has read the file, and says what to call it in messages.

The YAML is the subset that people mean and that kubectl reads alike: one document, core types only, no tags, no merge
keys, no key twice. Booleans are true and false alone; YAML 1.1 would also read `mode: Off` as false. (kubectl still
does, so `dump` puts such words in quotes.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml
from pydantic import ValidationError

from lbg.core.contract import Contract
from lbg.core.spec import explain
from lbg.core.spec.group import API_VERSION, KIND, LoadBalancedGroup
from lbg.core.spec.problems import Problem, SpecError, short, shown

MAX_TEXT: Final = 1_000_000
"""Most characters of a group's YAML; the API server's store refuses objects of about that size."""

_MOST_NODES: Final = 50_000
_DEEPEST: Final = 60


def load(text: str, source: str) -> LoadBalancedGroup:
    """Read a group from YAML.

    Args:
        source: what messages call the text, usually the file's name.

    Raises:
        SpecError: something must be changed; one line per bad field.
    """
    try:
        document = _document(text)
    except _BadYaml as bad:
        raise SpecError(source, [bad.problem]) from None
    return parse(document, source)


def parse(document: object, source: str) -> LoadBalancedGroup:
    """Read a group from the plain form of its YAML, such as the API server's JSON. A `status` is ignored.

    Raises:
        SpecError: as `load`.
    """
    if not isinstance(document, Mapping):
        remedy = f"write a mapping with apiVersion: {API_VERSION} and kind: {KIND}"
        raise SpecError(source, [Problem("", shown(document), "is not a group", remedy)])
    wrong = list(_wrong_kind(document))
    if wrong:
        raise SpecError(source, wrong[:1])  # fields of another kind would all be unknown, which helps nobody
    known = {name: value for name, value in document.items() if name != "status"}
    try:
        return LoadBalancedGroup.model_validate(known, by_alias=True, by_name=False)
    except ValidationError as error:
        found = explain.problems(error, LoadBalancedGroup)
    raise SpecError(source, found)


def _wrong_kind(document: Mapping[Any, Any]) -> Iterator[Problem]:
    for field, want in (("kind", KIND), ("apiVersion", API_VERSION)):
        if field not in document:
            yield Problem(field, "", "is missing", f"add {field}: {want}")
        elif document[field] != want:
            yield Problem(field, shown(document[field]), "is not what this program reads", f"write {want}")


def dump(group: LoadBalancedGroup) -> str:
    """Write a group as YAML: what was given, without the defaults. `load` reads an equal group back."""
    given = group.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document = {"apiVersion": group.api_version, "kind": group.kind, **given}
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def contract(group: LoadBalancedGroup) -> Contract:
    """Return what publishers of the group's stream must know."""
    spec = group.spec
    return Contract(group.prefix, spec.hashing.count, spec.hashing.algorithm, spec.queues.count)


# YAML. The composer checks syntax and gives nodes with places; the construction below is ours, because PyYAML's takes a
# key twice without a word, builds dates and sets, and lets a few aliases grow to gigabytes.

_TAG: Final = "tag:yaml.org,2002:"
_BOOL: Final = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL: Final = re.compile(r"~|null|Null|NULL|")
_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})", re.ASCII)  # no octal: 010 means 8 to some and 10 to others
_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII
)
_SCALARS: Final = {"bool": _BOOL, "null": _NULL, "int": _INT, "float": _FLOAT}


class _Composer(yaml.SafeLoader):
    pass


class _Dumper(yaml.SafeDumper):
    pass


_Composer.yaml_implicit_resolvers = {}  # none of YAML 1.1's; add_implicit_resolver would copy them


for _name, _pattern, _first in (
    ("bool", _BOOL, "tTfF"),
    ("null", _NULL, ["~", "n", "N", ""]),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("merge", re.compile("<<"), "<"),
):
    _anchored = re.compile(f"^(?:{_pattern.pattern})$", re.ASCII)
    for _class in (_Composer, _Dumper):
        # The dumper knows both sets, so that it quotes text which either would take for something else.
        _class.add_implicit_resolver(_TAG + _name, _anchored, list(_first))


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes these line breaks of YAML 1.1 as they are, and reads them back as blanks.
    style = '"' if any(line_break in text for line_break in "\x85\u2028\u2029") else None
    return dumper.represent_scalar(_TAG + "str", text, style)


_Dumper.add_representer(str, _write_text)


class _BadYaml(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def _document(text: str) -> object:
    """Return the one document of a text, in plain types."""
    if len(text) > MAX_TEXT:
        raise _BadYaml(Problem("", "", f"has {len(text)} characters", f"use at most {MAX_TEXT}"))
    try:
        roots = _compose(text)
    except yaml.YAMLError as error:
        raise _BadYaml(_syntax(error)) from None
    except RecursionError:
        raise _BadYaml(_TOO_DEEP) from None
    if not roots:
        raise _BadYaml(Problem("", "", "is empty", f"write a group: apiVersion, kind: {KIND}, metadata, spec"))
    if len(roots) > 1:
        raise _BadYaml(Problem(_place(roots[1].start_mark), "", "a second document begins", "keep one group per file"))
    return _Construction().value(roots[0], 0)


_TOO_DEEP: Final = Problem("", "", "is nested too deeply", f"use at most {_DEEPEST} levels")


def _compose(text: str) -> list[yaml.Node]:
    composer = _Composer(text)
    roots = []
    try:
        while composer.check_node():
            root = composer.get_node()
            if root is not None and not (root.tag == _TAG + "null" and root.value == ""):
                roots.append(root)
    finally:
        composer.dispose()
    return roots


def _syntax(error: yaml.YAMLError) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        said = short(error.problem or error.context or "it cannot be read")
        if "'\\t'" in said:
            return Problem(_place(mark), "", "is not valid YAML, a tab stands there", "indent with spaces")
        return Problem(
            _place(mark), "", f"is not valid YAML, {said}", "check indentation, colons and quotes up to there"
        )
    if isinstance(error, yaml.reader.ReaderError):
        return Problem("", "", "is not valid YAML, it holds control characters", "save it as plain UTF-8 text")
    return Problem("", "", "is not valid YAML", "check indentation, colons and quotes")


def _place(mark: yaml.Mark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


class _Construction:
    """Builds plain values and counts them: aliases are expanded, so a text can mean far more than it holds."""

    def __init__(self) -> None:
        self._nodes = 0

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._nodes += 1
        if depth > _DEEPEST:
            raise _BadYaml(_TOO_DEEP)  # also where an alias stands inside its own anchor
        if self._nodes > _MOST_NODES:
            raise _BadYaml(Problem("", "", f"has more than {_MOST_NODES} values", "use fewer aliases"))
        match node:
            case yaml.MappingNode() if node.tag == _TAG + "map":
                return self._mapping(node, depth)
            case yaml.SequenceNode() if node.tag == _TAG + "seq":
                return [self.value(entry, depth + 1) for entry in node.value]
            case yaml.ScalarNode():
                return _scalar(node)
        raise _tagged(node)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        lines: dict[Any, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _BadYaml(
                    Problem(_place(key_node.start_mark), "", "a field name is not text", "write a plain name")
                )
            key = _scalar(key_node)
            if key in values:
                twice = f"{shown(key)} stands here again, after line {lines[key]}"
                raise _BadYaml(Problem(_place(key_node.start_mark), "", twice, "keep one of the two"))
            lines[key] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, depth + 1)
        return values


def _scalar(node: yaml.ScalarNode) -> str | int | float | bool | None:
    text: str = node.value
    kind = node.tag.removeprefix(_TAG)
    if kind == "str":
        if any("\ud800" <= c <= "\udfff" for c in text):  # only an escape can spell one
            problem = "half of a surrogate pair stands there"
            raise _BadYaml(Problem(_place(node.start_mark), "", problem, "write the whole character"))
        return text
    pattern = _SCALARS.get(kind)
    if pattern is None or pattern.fullmatch(text) is None:
        raise _tagged(node)
    match kind:
        case "int":
            return int(text)
        case "float":
            special = text.lower().endswith(("inf", "nan"))
            return float(text.replace(".", "") if special else text)
        case "bool":
            return text.lower() == "true"
        case _:
            return None


def _tagged(node: yaml.Node) -> _BadYaml:
    if node.tag == _TAG + "merge":
        return _BadYaml(Problem(_place(node.start_mark), "", "merge keys (<<) are not read", "write the fields out"))
    tag = short(node.tag.replace(_TAG, "!!"))
    return _BadYaml(Problem(_place(node.start_mark), "", f"the tag {tag} does not fit here", "remove the tag"))
