"""Texts that are no group, and what must never be in a message: exact lines, no credentials, bounded length."""

from __future__ import annotations

import pytest

from lbg.core import spec

HEAD = "apiVersion: lbg.dev/v1alpha1\nkind: LoadBalancedGroup\nmetadata: {name: orders}\n"
CONSUMERS = "\n  consumers: {handler: {republish: {to: out}}}\n"
SPEC_FIELDS = "prefix, hashing, queues, broker, stream, assignment, consumers, autoscaling, park, paused, suspend"


def lines_of(text: str) -> list[str]:
    """Return the lines of the error that a text gives, without the source before each."""
    with pytest.raises(spec.SpecError) as caught:
        spec.load(text, "orders.yaml")
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.problems)
    assert all(line.startswith("orders.yaml: ") for line in lines)
    return [line.removeprefix("orders.yaml: ") for line in lines]


GROUP = f"{HEAD}spec:{CONSUMERS}"


@pytest.mark.parametrize(
    ("text", "want_lines"),
    [
        pytest.param(text, want, id=name)
        for name, (text, want) in {
            "nothing": ("", ["is empty: write a group: apiVersion, kind: LoadBalancedGroup, metadata, spec"]),
            "only a comment": (
                "# later\n---\n",
                ["is empty: write a group: apiVersion, kind: LoadBalancedGroup, metadata, spec"],
            ),
            "a list": (
                "- 1",
                [
                    "a list is not a group: "
                    "write a mapping with apiVersion: lbg.dev/v1alpha1 and kind: LoadBalancedGroup"
                ],
            ),
            "a word": (
                "hello",
                [
                    '"hello" is not a group: '
                    "write a mapping with apiVersion: lbg.dev/v1alpha1 and kind: LoadBalancedGroup"
                ],
            ),
            "two documents": (
                GROUP + "---\n" + GROUP,
                ["line 7, column 1: a second document begins: keep one group per file"],
            ),
            "another kind": (
                "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 3}",
                ['kind: "Deployment" is not what this program reads: write LoadBalancedGroup'],
            ),
            "another version": (
                GROUP.replace("v1alpha1", "v9"),
                ['apiVersion: "lbg.dev/v9" is not what this program reads: write lbg.dev/v1alpha1'],
            ),
            "no kind": ("a: 1", ["kind: is missing: add kind: LoadBalancedGroup"]),
            "no version": ("kind: LoadBalancedGroup", ["apiVersion: is missing: add apiVersion: lbg.dev/v1alpha1"]),
            "no metadata and no spec": (
                "apiVersion: lbg.dev/v1alpha1\nkind: LoadBalancedGroup",
                [
                    "metadata: is missing: add it, with name at least",
                    "spec: is missing: add it, with consumers at least",
                ],
            ),
            "a misspelled spec": (GROUP.replace("spec:", "spce:"), ["spce: is unknown: did you mean spec?"]),
            "an empty spec": (
                f"{HEAD}spec:\n",
                [f"spec: has no value: write its fields below it ({SPEC_FIELDS})"],
            ),
            "a bad name": (
                GROUP.replace("name: orders", "name: Orders_1"),
                [
                    'metadata.name: "Orders_1" does not fit: write at most 63 lower-case letters, digits and -, '
                    "with a letter or digit at both ends"
                ],
            ),
            "labels that are no text": (
                GROUP.replace("name: orders", "name: orders, labels: {tier: 1, 2: b, c: }"),
                [
                    'metadata.labels.tier: 1 is not text: write it in quotes, "1"',
                    "metadata.labels[2]: is not text, as every field name is: write the name in quotes",
                    "metadata.labels.c: has no value: write something else, or remove the line",
                ],
            ),
            "a tab": (
                "spec:\n\tpaused: true",
                ["line 2, column 1: is not valid YAML, a tab stands there: indent with spaces"],
            ),
            "a bracket that stays open": (
                "spec: [",
                [
                    "line 1, column 8: is not valid YAML, expected the node content, but found '<stream end>': "
                    "check indentation, colons and quotes up to there"
                ],
            ),
            "two colons": (
                "spec: a: b",
                [
                    "line 1, column 8: is not valid YAML, mapping values are not allowed here: "
                    "check indentation, colons and quotes up to there"
                ],
            ),
            "an alias of nothing": (
                "spec: *there",
                [
                    "line 1, column 7: is not valid YAML, found undefined alias 'there': "
                    "check indentation, colons and quotes up to there"
                ],
            ),
            "a key twice": (
                f"{HEAD}spec:\n  queues:\n    count: 3\n    type: quorum\n    count: 4",
                ['line 8, column 5: "count" stands here again, after line 6: keep one of the two'],
            ),
            "a key that is a list": ("? [a]\n: 1", ["line 1, column 3: a field name is not text: write a plain name"]),
            "a tag": (
                "spec: !!python/object:os.system ls",
                ["line 1, column 7: the tag !!python/object:os.system does not fit here: remove the tag"],
            ),
            "a tag that its value contradicts": (
                "spec: !!int many",
                ["line 1, column 7: the tag !!int does not fit here: remove the tag"],
            ),
            "a merge key": (
                "spec:\n  <<: {a: 1}",
                ["line 2, column 3: merge keys (<<) are not read: write the fields out"],
            ),
            "half a surrogate pair": (
                'spec: "\\ud800"',
                ["line 1, column 7: half of a surrogate pair stands there: write the whole character"],
            ),
            "a control character": (
                "spec: \x01",
                ["is not valid YAML, it holds control characters: save it as plain UTF-8 text"],
            ),
            "brackets without end": ("[" * 5000, ["is nested too deeply: use at most 60 levels"]),
            "an anchor inside itself": ("spec: &a [*a]", ["is nested too deeply: use at most 60 levels"]),
            "aliases that multiply": (
                "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
                + "\n".join(
                    f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
                ),
                ["has more than 50000 values: use fewer aliases"],
            ),
            "a huge text": ("#" * 1_000_001, ["has 1000001 characters: use at most 1000000"]),
        }.items()
    ],
)
def test_a_text_that_is_no_group_gives_one_line(text: str, want_lines: list[str]) -> None:
    """Syntax errors name line and column; what is no group at all says what one is."""
    assert lines_of(text) == want_lines


@pytest.mark.parametrize(
    "where",
    [
        "prefix: {}",
        "broker: {}",
        "broker: {{secretRef: {{name: {}}}}}",
        "broker: {{kind: {}}}",
        "paused: {}",
        "queues: {{count: {}}}",
        "assignment: {{standbys: {}}}",
        "consumers: {{drainBudget: {}}}",
        "consumers: {{handler: {{http: {{url: {}}}}}}}",
        "consumers: {{handler: {{python: {}}}}}",
        "autoscaling: {{schedules: [{{cron: {}, min: 1}}]}}",
        "{}: 1",
        "broker: {{password: {}}}",
    ],
)
@pytest.mark.parametrize(
    "secret",
    ["amqp://me:s3cret@h/v", "http://me:s3/cr@et@h", "https://h/?token=s3cret", "me:s3cret@h", "//me:s3cret@h"],
)
def test_credentials_are_never_shown(where: str, secret: str) -> None:
    """Wherever a URL with credentials lands by mistake, neither the text nor the records repeat them."""
    # The second field is bad in any case, so that there is an error also where a URL is allowed.
    document = f"{HEAD}spec:\n  " + where.format(f'"{secret}"') + "\n  suspend: 3\n"
    with pytest.raises(spec.SpecError) as caught:
        spec.load(document, "orders.yaml")
    said = f"{caught.value} {caught.value!r} {caught.value.problems}"
    assert "s3" not in said
    assert "cr@et" not in said
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_long_values_and_many_problems_stay_readable() -> None:
    """Values end after 60 characters, and the list after 50 lines with a count of the rest."""
    many = "".join(f"\n  x{number}y{'z' * 90}: 1" for number in range(80))
    with pytest.raises(spec.SpecError) as caught:
        spec.load(f"{HEAD}spec:{many}{CONSUMERS}", "orders.yaml")
    lines = str(caught.value).split("\n")
    assert len(caught.value.problems) == 80
    assert len(lines) == 51
    assert lines[-1] == "orders.yaml: 30 more problems: mend these first"
    assert max(map(len, lines)) < 250
