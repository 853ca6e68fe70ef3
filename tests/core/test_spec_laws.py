"""Laws of reading: junk of any shape gives problems with paths and nothing else, and what is dumped is read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from lbg.core import spec
from lbg.core.spec import declared

NAMES = sorted({path.rpartition(".")[2] for path in declared.all_paths(spec.LoadBalancedGroup)})
CHOICES = ["xxh64", "Balanced", "All", "Off", "30s", "0s", "http://me:pw@h", "a:b", "ParkKey", "0 8 * * *", "out", ""]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-1, 20),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(CHOICES),
    st.binary(max_size=4),
    st.dates(),
)
keys = st.one_of(st.sampled_from(NAMES), st.text(max_size=8), st.integers(0, 3), st.none(), st.booleans())
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(keys, inner, max_size=5),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=8),
    ),
    max_leaves=25,
)

# Beginnings of the messages that pydantic itself would give.
PYDANTIC = ("Input should", "String should", "Field required", "Extra inputs", "Keys should", "Value error", "a valid ")


def refused(call: Callable[[], spec.LoadBalancedGroup]) -> tuple[spec.Problem, ...]:
    """Return the problems of a group that is refused; nothing for one that is read, which its dump must equal."""
    problems: tuple[spec.Problem, ...] = ()
    lines: list[str] = []
    try:
        read = call()
    except spec.SpecError as error:
        problems, lines = error.problems, str(error).split("\n")
    else:
        assert spec.load(spec.dump(read), "dumped") == read
        return ()
    assert problems
    assert all(line.startswith("g.yaml: ") and line.isprintable() for line in lines)
    assert all(problem.problem and problem.remedy for problem in problems)
    assert not [line for line in map(str, problems) for words in PYDANTIC if words in line]
    return problems


def check(document: Any) -> tuple[spec.Problem, ...]:
    """Expect a group, or a SpecError with one printable line in our own words per problem."""
    return refused(lambda: spec.parse(document, "g.yaml"))


def group(fields: Any, name: Any = "orders") -> dict[str, Any]:
    """Build the plain form of a group with anything under spec."""
    return {
        "apiVersion": "lbg.dev/v1alpha1",
        "kind": "LoadBalancedGroup",
        "metadata": {"name": name},
        "spec": fields,
    }


@given(st.dictionaries(keys, junk, max_size=6))
@example({"consumers": {"handler": {"republish": {"to": "out"}}}, "paused": True})
@example({"consumers": {"handler": {"http": {"url": 10**5000}}}})
@example({("a", "b"): 1, "queues": {1.5: 2}})
def test_junk_under_spec_gives_problems_with_paths(fields: dict[Any, Any]) -> None:
    """Any mapping under spec is read or refused with paths under spec; no other error gets out."""
    assert all(problem.path.startswith("spec") for problem in check(group(fields)))


@given(junk)
def test_junk_under_consumers_gives_problems_with_paths(fields: Any) -> None:
    """The deepest model, with a valid surrounding."""
    check(group({"consumers": fields}))
    check(group({"consumers": {"handler": {"python": "a:b"}, "retry": fields}}))
    check(group({"consumers": {"handler": {"python": "a:b"}, "template": {"metadata": fields}}}))


@given(junk)
def test_junk_of_any_shape_is_refused_or_read(document: Any) -> None:
    """Junk as the whole object, as its metadata and beside a valid spec."""
    check(document)
    check({**group({"consumers": {"handler": {"python": "a:b"}}}), "metadata": document})
    check({**group({"consumers": {"handler": {"python": "a:b"}}}), "metadata": {"name": "a", "uid": document}})
    check({**group({"consumers": {"handler": {"python": "a:b"}}}), "more": document})


@given(st.text(st.characters(codec="utf-8"), max_size=200))
@example("\ufeffkind: x")
@example("%YAML 9.9\n---\na")
@example("a: !<x> b")
@example("? ")
@example("a: !!bool x")
@example("a: !!null x")
@example("!!float .")
def test_any_text_is_refused_with_one_line_per_problem(text: str) -> None:
    """No text makes the reader fail otherwise than by a SpecError."""
    assert refused(lambda: spec.load(text, "g.yaml"))


@given(
    st.text("ab:-#{}[],&*!|>'\"%@` \n\t01.~<?\\", max_size=60),
    st.sampled_from(["", "  queues: ", "  consumers:\n    handler: {python: a:b}\n  "]),
)
def test_broken_yaml_under_spec_is_refused_or_read(text: str, before: str) -> None:
    """Text made of YAML's own signs gets through the whole way or gives a SpecError."""
    head = "apiVersion: lbg.dev/v1alpha1\nkind: LoadBalancedGroup\nmetadata: {name: orders}\nspec:\n"
    refused(lambda: spec.load(head + before + text, "g.yaml"))


plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TRICKY = [
    *("Off", "on", "yes", "null", "~", "<<", "=", "", " a ", "- b", "#c", "a: b"),
    *("1", "010", "1e3", "0x1f", ".5", "-.5e-3", ".inf", "1_000", "2026-01-01", "12:30:45"),
    *("\n", "\ufeff", "\x85", "\u2028", "🙂"),
]
values = st.one_of(plain, st.sampled_from(TRICKY))
json = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False), values
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(values, inner, max_size=3)),
    max_leaves=5,
)


@given(
    labels=st.dictionaries(values, values, max_size=4),
    template=st.dictionaries(values, json, max_size=3),
    mode=st.sampled_from(spec.Mode),
    standbys=st.one_of(st.integers(0, 10), st.just("All")),
    milliseconds=st.integers(0, 86_400_000),
)
def test_what_is_dumped_is_read_back(
    labels: dict[str, str], template: dict[str, Any], mode: spec.Mode, standbys: int | str, milliseconds: int
) -> None:
    """Text that YAML would take for something else comes back as text, and only what was given is written."""
    document = group(
        {
            "consumers": {"handler": {"python": "a:b"}, "template": template, "drainBudget": f"{milliseconds}ms"},
            "autoscaling": {"mode": mode.value},
            "assignment": {"standbys": standbys},
        }
    )
    document["metadata"]["annotations"] = labels
    document["metadata"]["resourceVersion"] = "7"
    read = spec.parse(document, "g.yaml")
    dumped = spec.dump(read)
    again = spec.load(dumped, "dumped")
    assert again == read
    assert again.spec.consumers.drain_budget == milliseconds / 1000
    assert spec.dump(again) == dumped
    assert "queues" not in again.spec.model_fields_set


def test_a_status_is_ignored() -> None:
    """An object read from the API server carries one, and it is the operator's own."""
    document = group({"consumers": {"handler": {"python": "a:b"}}})
    assert spec.parse({**document, "status": {"ready": 3}}, "g.yaml") == spec.parse(document, "g.yaml")


def test_words_that_kubectl_would_read_as_booleans_are_quoted() -> None:
    """`mode: Off` is text here and false to kubectl, so the dump leaves no doubt."""
    text = "apiVersion: lbg.dev/v1alpha1\nkind: LoadBalancedGroup\nmetadata: {name: orders}\n"
    text += "spec: {autoscaling: {mode: Off}, consumers: {handler: {python: 'a:b'}}}"
    read = spec.load(text, "g.yaml")
    assert read.spec.autoscaling.mode is spec.Mode.OFF
    assert "mode: 'Off'" in spec.dump(read)
