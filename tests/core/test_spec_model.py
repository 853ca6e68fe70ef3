"""The object's contract: names, defaults and bounds as the design states them, each written down a second time here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from lbg.core import durations, schedules, spec
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.spec import declared

EXAMPLES = Path(__file__).parents[2] / "examples"

# path: (lowest, highest, default); None where the default depends on other fields or the field is required
WHOLE: dict[str, tuple[int, int, int | None]] = {
    "hashing.count": (1, 65_536, 256),
    "queues.count": (1, 10_000, 12),
    "queues.sizeLimit": (1, 1_000_000_000, None),
    "park.limit": (1, 1_000_000, 1000),
    "consumers.min": (0, 10_000, 1),
    "consumers.max": (1, 10_000, None),
    "consumers.replicas": (0, 10_000, 1),
    "consumers.window": (1, 10_000, 50),
    "consumers.lanes": (1, 1024, 8),
    "consumers.retry.maxAttempts": (1, 1_000_000, 5),
    "autoscaling.targets.drainSeconds": (1, 86_400, 60),
    "autoscaling.targets.cpuUtilization": (1, 1000, 70),
    "autoscaling.behavior.scaleUp.stabilizationWindowSeconds": (0, 3600, 0),
    "autoscaling.behavior.scaleDown.stabilizationWindowSeconds": (0, 3600, 300),
}
DURATIONS: dict[str, tuple[str, str, float | None]] = {
    "consumers.handler.http.timeout": ("1ms", "24h", None),
    "consumers.retry.backoff": ("0s", "24h", 0.2),
    "consumers.retry.maxBackoff": ("0s", "24h", 30.0),
    "consumers.drainBudget": ("0s", "24h", 30.0),
}
CHOICES: dict[str, tuple[tuple[str, ...], str]] = {
    "hashing.algorithm": (("xxh64", "java", "crc32", "murmur2", "modulo"), "xxh64"),
    "queues.type": (("quorum", "classic"), "quorum"),
    "queues.deletionPolicy": (("Retain", "DeleteIfEmpty", "Delete"), "Retain"),
    "queues.overflow": (("Reject",), "Reject"),
    "broker.kind": (("embedded", "rabbitmq", "lavinmq", "artemis", "solace", "blazingmq"), "embedded"),
    "assignment.policy": (("Balanced", "Modulo"), "Balanced"),
    "consumers.onPoison": (("Block", "DeadLetter"), "Block"),
    "consumers.onBudgetExceeded": (("Wait", "Force"), "Wait"),
    "autoscaling.mode": (("Operator", "HPA", "External", "Off"), "Operator"),
    "autoscaling.behavior.scaleUp.selectPolicy": (("Max", "Min", "Disabled"), "Max"),
    "autoscaling.behavior.scaleDown.selectPolicy": (("Max", "Min", "Disabled"), "Max"),
}
FLAGS = ["stream.join", "paused", "suspend"]


def group(**changes: Any) -> dict[str, Any]:
    """Build the plain form of a minimal group; a change is a path with __ for its dots, and the value there."""
    document: dict[str, Any] = {
        "apiVersion": "lbg.dev/v1alpha1",
        "kind": "LoadBalancedGroup",
        "metadata": {"name": "orders"},
        "spec": {"consumers": {"handler": {"republish": {"to": "out"}}}},
    }
    for path, value in changes.items():
        put(document["spec"], path.replace("__", "."), value)
    return document


def put(fields: dict[str, Any], path: str, value: object) -> None:
    """Set the value at a dotted path, making mappings on the way."""
    *parents, name = path.split(".")
    for parent in parents:
        fields = fields.setdefault(parent, {})
    fields[name] = value


def at(read: spec.LoadBalancedGroup, path: str) -> Any:
    """Return the value at a dotted path of YAML names under the spec of a group that was read."""
    value: Any = read.spec
    for name in path.split("."):
        names = {field.alias: attribute for attribute, field in type(value).model_fields.items()}
        value = getattr(value, names[name])
    return value


def roomy(path: str, value: object) -> dict[str, Any]:
    """Build a group in which a bound of one field can be reached without breaking a rule between fields."""
    document = group(hashing__count=65_536, queues__count=10_000, consumers__min=0)
    if path.startswith("consumers.handler.http"):
        document["spec"]["consumers"]["handler"] = {"http": {"url": "http://127.0.0.1:8080/events"}}
    if path == "hashing.count":
        document["spec"]["queues"]["count"] = 1
    if path == "consumers.retry.backoff":
        put(document["spec"], "consumers.retry.maxBackoff", "24h")
    if path == "consumers.retry.maxBackoff":
        put(document["spec"], "consumers.retry.backoff", "0s")
    put(document["spec"], path, value)
    return document


def refusal(document: dict[str, Any]) -> str:
    """Return the text of the error that a plain form gives."""
    with pytest.raises(spec.SpecError) as caught:
        spec.parse(document, "g.yaml")
    return str(caught.value)


@pytest.mark.parametrize("path", WHOLE)
def test_whole_numbers_keep_their_bounds(path: str) -> None:
    """Lowest and highest are taken, one beyond is refused with both bounds in the remedy."""
    low, high, _ = WHOLE[path]
    for value in (low, high):
        assert at(spec.parse(roomy(path, value), "g.yaml"), path) == value
    line = f"g.yaml: spec.{path}"
    assert refusal(roomy(path, low - 1)) == f"{line}: {low - 1} is less than {low}: use {low} to {high}"
    assert refusal(roomy(path, high + 1)) == f"{line}: {high + 1} is more than {high}: use {low} to {high}"


@pytest.mark.parametrize("path", DURATIONS)
def test_durations_keep_their_bounds(path: str) -> None:
    """Lowest and highest are taken as seconds, a millisecond beyond is refused in the words of the YAML."""
    low, high, _ = DURATIONS[path]
    for value in (low, high):
        assert at(spec.parse(roomy(path, value), "g.yaml"), path) == durations.parse(value)
    line = f"g.yaml: spec.{path}"
    assert refusal(roomy(path, "24h1ms")) == f'{line}: "24h1ms" is more than {high}: use {low} to {high}'
    if low == "1ms":
        assert refusal(roomy(path, "0s")) == f'{line}: "0s" is less than {low}: use {low} to {high}'


@pytest.mark.parametrize("path", CHOICES)
def test_choices_take_what_is_listed_and_nothing_else(path: str) -> None:
    """Every choice is read, another word is refused with the choices."""
    choices, _ = CHOICES[path]
    for choice in choices:
        assert at(spec.parse(group(**{path: choice}), "g.yaml"), path) == choice
    line = refusal(group(**{path: "Elsewise"}))
    assert line.startswith(f'g.yaml: spec.{path}: "Elsewise" is not one of the choices: use ')
    assert all(choice in line for choice in choices)


@pytest.mark.parametrize("path", FLAGS)
def test_flags_are_off_and_take_booleans_only(path: str) -> None:
    """The default is false; 1 and "true" are refused."""
    assert at(spec.parse(group(), "g.yaml"), path) is False
    assert at(spec.parse(group(**{path: True}), "g.yaml"), path) is True
    for value, shown in ((1, "1"), ("true", '"true"')):
        want = f"g.yaml: spec.{path}: {shown} is not true or false: write true or false, without quotes"
        assert refusal(group(**{path: value})) == want


@pytest.mark.parametrize(
    ("path", "default"),
    [
        *((path, default) for path, (_, _, default) in WHOLE.items()),
        *((path, default) for path, (_, _, default) in DURATIONS.items() if default is not None),
        *((path, default) for path, (_, default) in CHOICES.items()),
        ("prefix", None),
        ("broker.secretRef", None),
        ("assignment.standbys", 1),
        ("consumers.output", None),
        ("consumers.template", {}),
        ("autoscaling.schedules", ()),
    ],
)
def test_what_is_left_out_has_its_default(path: str, default: object) -> None:
    """A minimal group has the defaults of the design."""
    assert at(spec.parse(group(), "g.yaml"), path) == default


def test_step_policies_default_to_those_of_autoscaling_v2() -> None:
    """Up: 4 pods or double within 15 s. Down: everything within 15 s, after 300 s."""
    behavior = spec.parse(group(), "g.yaml").spec.autoscaling.behavior
    assert [(p.type, p.value, p.period_seconds) for p in behavior.scale_up.policies] == [
        ("Pods", 4, 15),
        ("Percent", 100, 15),
    ]
    assert [(p.type, p.value, p.period_seconds) for p in behavior.scale_down.policies] == [("Percent", 100, 15)]


def test_defaults_that_follow_other_fields() -> None:
    """Prefix follows the name, max the queues, replicas min, maxBackoff a long backoff, output a republish."""
    read = spec.parse(group(consumers__min=3, consumers__retry={"backoff": "1m"}, queues__count=7), "g.yaml")
    assert read.prefix == "orders"
    assert read.spec.max_consumers == 7
    assert read.spec.consumers.replicas == 3
    assert read.spec.consumers.retry.max_backoff == 60.0
    assert read.spec.consumers.output_to == "out"
    given = group(prefix="shop.orders", consumers__max=5, consumers__handler={"python": "shop.orders:handle"})
    assert spec.parse(given, "g.yaml").prefix == "shop.orders"
    assert spec.parse(given, "g.yaml").spec.max_consumers == 5
    assert spec.parse(given, "g.yaml").spec.consumers.output_to is None
    given["spec"]["consumers"]["output"] = {"to": "results"}
    assert spec.parse(given, "g.yaml").spec.consumers.output_to == "results"


def test_equal_bounds_are_allowed() -> None:
    """HC = QC = max = min = replicas = a schedule's floor breaks no rule between fields."""
    document = group(hashing__count=3, queues__count=3, consumers__max=3, consumers__min=3, consumers__replicas=3)
    put(document["spec"], "autoscaling.schedules", [{"cron": "0 8 * * *", "min": 3}])
    assert spec.parse(document, "g.yaml").spec.max_consumers == 3


def test_the_name_is_qualified_by_the_namespace() -> None:
    """The assignment's ties hang on it, so two namespaces differ."""
    document = group()
    assert spec.parse(document, "g.yaml").name == "orders"
    document["metadata"]["namespace"] = "shop"
    assert spec.parse(document, "g.yaml").name == "shop/orders"


def test_the_contract_of_a_group() -> None:
    """Publishers get prefix, HC, algorithm and QC from the group and type them nowhere."""
    read = spec.parse(group(prefix="p", hashing={"count": 64, "algorithm": "java"}, queues__count=8), "g.yaml")
    assert spec.contract(read) == Contract("p", 64, Algorithm.JAVA, 8)


@pytest.mark.parametrize("standbys", [0, 1, 3, "All"])
def test_standbys_are_a_number_or_all(standbys: int | str) -> None:
    """Both forms are read as written."""
    assert spec.parse(group(assignment__standbys=standbys), "g.yaml").spec.assignment.standbys == standbys


@pytest.mark.parametrize(
    "cron", ["0 8 * * 1-5", "*/15 8-18/2 1,15 * *", "0 0 29 2 *", "30 7 * jan-mar MON,fri", "0 0 * * 7", "5/10 * * * *"]
)
def test_a_cron_that_the_model_takes_is_one_that_schedules_can_read(cron: str) -> None:
    """The grammar stands in two places, which must agree."""
    read = spec.parse(group(autoscaling__schedules=[{"cron": cron, "min": 4}]), "g.yaml")
    (schedule,) = read.spec.autoscaling.schedules
    assert (schedule.cron, schedule.time_zone, schedule.min) == (cron, "UTC", 4)
    assert schedules.parse(schedule.cron).minutes


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080/events", "https://svc.shop/x?a=b", "http://[::1]:80", "http://h"]
)
def test_urls_of_http_handlers(url: str) -> None:
    """Hosts, ports, IPv6 addresses, paths and queries are taken."""
    read = spec.parse(group(consumers__handler={"http": {"url": url}}), "g.yaml")
    assert read.spec.consumers.handler.http == spec.HttpHandler(url=url)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_is_a_valid_group(path: Path) -> None:
    """The examples are read as they stand, and come back equal from a dump."""
    read = spec.load(path.read_text("utf-8"), path.name)
    assert spec.load(spec.dump(read), "dumped") == read


def test_the_orders_example_says_what_it_says() -> None:
    """Its comments explain these values."""
    read = spec.load((EXAMPLES / "orders.yaml").read_text("utf-8"), "orders.yaml")
    assert spec.contract(read) == Contract("orders", 256, Algorithm.XXH64, 12)
    assert (read.spec.consumers.min, read.spec.consumers.replicas, read.spec.max_consumers) == (1, 1, 4)
    assert read.spec.consumers.output_to == "out"


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model and every model below it."""
    yield model
    for field in declared.names(model).values():
        inner = declared.model_of(field)
        if inner is not None:
            yield from models(inner)


def test_every_field_is_described() -> None:
    """The descriptions become `kubectl explain`, so none is missing or names an inner matter."""
    fields = [
        (model.__name__, name, field)
        for model in models(spec.LoadBalancedGroup)
        for name, field in declared.names(model).items()
    ]
    assert len(fields) > 60
    assert [f"{model}.{name}" for model, name, field in fields if not (field.description or "").endswith(".")] == []


def test_every_bound_is_written_down_here() -> None:
    """A field with limits that this file does not list would change its limits unnoticed."""
    limited = {
        path.removeprefix("spec.")
        for path in declared.all_paths(spec.LoadBalancedGroup)
        if any(declared.limits(declared.field_at(path.split("."), spec.LoadBalancedGroup)))
    }
    assert limited == {*WHOLE, *DURATIONS}


def test_the_schema_shows_defaults_as_yaml_writes_them() -> None:
    """The CRD is generated from it: durations are text with their unit, not seconds."""
    definitions = spec.LoadBalancedGroup.model_json_schema()["$defs"]
    assert definitions["Consumers"]["properties"]["drainBudget"]["default"] == "30s"
    assert definitions["Retry"]["properties"]["backoff"]["default"] == "200ms"
    assert definitions["Consumers"]["properties"]["retry"]["default"]["backoff"] == "200ms"
