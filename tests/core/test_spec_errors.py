"""Bad fields of every kind, and the exact lines their author gets."""

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


RULES_BETWEEN_FIELDS = {
    "queues above shards": (
        "queues: {count: 300}" + CONSUMERS,
        ["spec.queues.count: 300 is more than hashing.count 256: use at most 256"],
    ),
    "the default of queues above shards": (
        "hashing: {count: 4}" + CONSUMERS,
        ["spec.queues.count: 12 (the default) is more than hashing.count 4: use at most 4"],
    ),
    "max above queues": (
        "consumers: {max: 20, handler: {republish: {to: out}}}",
        ["spec.consumers.max: 20 is more than queues.count 12: use at most 12"],
    ),
    "min above max": (
        "consumers: {min: 5, max: 4, handler: {republish: {to: out}}}",
        ["spec.consumers.min: 5 is more than consumers.max 4: use at most 4"],
    ),
    "min above queues": (
        "consumers: {min: 13, handler: {republish: {to: out}}}",
        ["spec.consumers.min: 13 is more than queues.count 12: use at most 12"],
    ),
    "replicas above max": (
        "consumers: {max: 4, replicas: 5, handler: {republish: {to: out}}}",
        ["spec.consumers.replicas: 5 is more than consumers.max 4: use at most 4"],
    ),
    "replicas below min": (
        "consumers: {min: 2, replicas: 1, handler: {republish: {to: out}}}",
        ["spec.consumers.replicas: 1 is less than consumers.min 2: use 2 to 12"],
    ),
    "schedule above max": (
        "autoscaling: {schedules: [{cron: 0 8 * * *, min: 2}, {cron: 0 9 * * *, min: 13}]}" + CONSUMERS,
        ["spec.autoscaling.schedules[1].min: 13 is more than queues.count 12: use at most 12"],
    ),
    "every broken rule at once": (
        "queues: {count: 300}\n  consumers: {max: 301, replicas: 302, handler: {republish: {to: out}}}",
        [
            "spec.queues.count: 300 is more than hashing.count 256: use at most 256",
            "spec.consumers.max: 301 is more than queues.count 300: use at most 300",
            "spec.consumers.replicas: 302 is more than consumers.max 301: use at most 301",
        ],
    ),
    "longest backoff below the first": (
        "consumers: {retry: {backoff: 5s, maxBackoff: 1s}, handler: {republish: {to: out}}}",
        ['spec.consumers.retry.maxBackoff: "1s" is less than retry.backoff 5s: use at least 5s'],
    ),
    "two outputs": (
        "consumers: {output: {to: a}, handler: {republish: {to: out}}}",
        ['spec.consumers.output.to: "a" is not handler.republish.to, out: remove output, republish implies it'],
    ),
    "no handler": (
        "consumers: {handler: {}}",
        ["spec.consumers.handler: names no handler: give exactly one of python, http, republish"],
    ),
    "two handlers": (
        "consumers: {handler: {python: 'a:b', republish: {to: out}}}",
        ["spec.consumers.handler: names python and republish: keep exactly one of them"],
    ),
    "grace below the drain budget": (
        "consumers: {drainBudget: 1m, template: {spec: {terminationGracePeriodSeconds: 74}}, "
        "handler: {republish: {to: out}}}",
        [
            "spec.consumers.template.spec.terminationGracePeriodSeconds: 74 is less than drainBudget 1m plus 15s: "
            "use at least 75, or remove the line"
        ],
    ),
    "a template with what JSON cannot say": (
        "consumers: {template: {metadata: {weights: [1, .inf]}}, handler: {republish: {to: out}}}",
        ["spec.consumers.template.metadata.weights[1]: inf has no JSON form: write a finite number"],
    ),
    "a template with a name that is a number": (
        "consumers: {template: {metadata: {1: a}}, handler: {republish: {to: out}}}",
        ["spec.consumers.template.metadata: 1 is not text, as every field name is: write the name in quotes"],
    ),
    "grace that is no number": (
        "consumers: {template: {spec: {terminationGracePeriodSeconds: long}}, handler: {republish: {to: out}}}",
        [
            'spec.consumers.template.spec.terminationGracePeriodSeconds: "long" is not a whole number: '
            "write at least 45, or remove the line"
        ],
    ),
}

FIELDS = {
    "text for a number": (
        "queues: {count: '12'}" + CONSUMERS,
        ['spec.queues.count: "12" is text, not a number: write it without quotes'],
    ),
    "a word for a number": (
        "queues: {count: dozen}" + CONSUMERS,
        ['spec.queues.count: "dozen" is not a whole number: write a whole number, 1 to 10000'],
    ),
    "a fraction": (
        "queues: {count: 12.0}" + CONSUMERS,
        ["spec.queues.count: 12.0 is not a whole number: write a whole number, 1 to 10000"],
    ),
    "an octal number": (
        "queues: {count: 010}" + CONSUMERS,
        ['spec.queues.count: "010" is text, not a number: write it without quotes'],
    ),
    "a boolean for a number": (
        "queues: {count: true}" + CONSUMERS,
        ["spec.queues.count: true is not a whole number: write a whole number, 1 to 10000"],
    ),
    "a list for a number": (
        "queues: {count: [12]}" + CONSUMERS,
        ["spec.queues.count: a list is not a whole number: write a whole number, 1 to 10000"],
    ),
    "a huge number": (
        f"queues: {{count: {10**60}}}" + CONSUMERS,
        ["spec.queues.count: a number of more than 64 bits is more than 10000: use 1 to 10000"],
    ),
    "nothing for a number": (
        "queues: {count: }" + CONSUMERS,
        ["spec.queues.count: has no value: write a whole number, 1 to 10000, or remove the line"],
    ),
    "nothing for a mapping": (
        "queues:" + CONSUMERS,
        [
            "spec.queues: has no value: write its fields below it (count, type, deletionPolicy, sizeLimit, overflow), "
            "or remove the line"
        ],
    ),
    "text for a mapping": (
        "broker: amqp://guest:guest@rabbit:5672" + CONSUMERS,
        ['spec.broker: "amqp://***@rabbit:5672" is not a mapping: write its fields below it (kind, secretRef)'],
    ),
    "text for a list": (
        "autoscaling: {schedules: daily}" + CONSUMERS,
        [
            'spec.autoscaling.schedules: "daily" is not a list: begin each entry with a dash on a line of its own',
        ],
    ),
    "an empty list": (
        "autoscaling: {behavior: {scaleUp: {policies: []}}}" + CONSUMERS,
        ["spec.autoscaling.behavior.scaleUp.policies: has no entries: add one, or remove the line"],
    ),
    "a number for text": (
        "prefix: 12" + CONSUMERS,
        ['spec.prefix: 12 is not text: write it in quotes, "12"'],
    ),
    "a list for text": (
        "prefix: [a]" + CONSUMERS,
        [
            "spec.prefix: a list is not text: "
            "write 1 to 200 letters, digits, dots, dashes, underscores; first a letter or digit"
        ],
    ),
    "a word for a boolean": (
        "paused: yes" + CONSUMERS,
        ['spec.paused: "yes" is not true or false: write true or false, without quotes'],
    ),
    "a prefix with a blank": (
        "prefix: my orders" + CONSUMERS,
        [
            'spec.prefix: "my orders" does not fit: '
            "write 1 to 200 letters, digits, dots, dashes, underscores; first a letter or digit"
        ],
    ),
    "no choice": (
        "queues: {type: mirrored}" + CONSUMERS,
        ['spec.queues.type: "mirrored" is not one of the choices: use quorum or classic'],
    ),
    "an overflow that inverts order": (
        "queues: {overflow: DropHead}" + CONSUMERS,
        [
            'spec.queues.overflow: "DropHead" is not one of the choices: '
            "use Reject; dropping the head would lose or reorder events"
        ],
    ),
    "a word for standbys": (
        "assignment: {standbys: Some}" + CONSUMERS,
        ['spec.assignment.standbys: "Some" is not a number of standbys: write 0 to 10000, or All'],
    ),
    "a policy that waits for later work": (
        "consumers: {onPoison: ParkKey, handler: {republish: {to: out}}}",
        ['spec.consumers.onPoison: "ParkKey" is not available yet: use Block or DeadLetter'],
    ),
    "a duration without unit": (
        "consumers: {drainBudget: 30, handler: {republish: {to: out}}}",
        ["spec.consumers.drainBudget: 30 has no unit: write it with one, such as 200ms, 30s or 5m"],
    ),
    "a duration of another grammar": (
        "consumers: {drainBudget: 1 minute, handler: {republish: {to: out}}}",
        [
            'spec.consumers.drainBudget: "1 minute" is not a duration: '
            "write a whole number with a unit, such as 200ms, 30s, 5m or 1h30m"
        ],
    ),
    "nothing for a duration": (
        "consumers: {drainBudget: , handler: {republish: {to: out}}}",
        ["spec.consumers.drainBudget: null is no duration: write one such as 200ms, 30s or 5m, or remove the line"],
    ),
    "a duration out of bounds": (
        "consumers: {handler: {http: {url: 'http://h/', timeout: 0s}}}",
        ['spec.consumers.handler.http.timeout: "0s" is less than 1ms: use 1ms to 24h'],
    ),
    "a callable without module": (
        "consumers: {handler: {python: handle}}",
        ['spec.consumers.handler.python: "handle" does not fit: write module and callable as package.module:function'],
    ),
    "a URL of another scheme": (
        "consumers: {handler: {http: {url: 'ftp://h/'}}}",
        [
            'spec.consumers.handler.http.url: "ftp://h/" is not an http URL: '
            "write one such as http://127.0.0.1:8080/events"
        ],
    ),
    "a URL with a password": (
        "consumers: {handler: {http: {url: 'http://me:s3cret@h/'}}}",
        [
            'spec.consumers.handler.http.url: "http://***@h/" carries a user name or password: '
            "remove it, anybody may read the group"
        ],
    ),
    "a cron of four fields": (
        "autoscaling: {schedules: [{cron: 0 8 * *, min: 1}]}" + CONSUMERS,
        [
            'spec.autoscaling.schedules[0].cron: "0 8 * *" has 4 fields: '
            "write minute, hour, day of month, month, day of week: 0 8 * * 1-5"
        ],
    ),
    "a cron out of bounds": (
        "autoscaling: {schedules: [{cron: 0 24 * * *, min: 1}]}" + CONSUMERS,
        [
            'spec.autoscaling.schedules[0].cron: "0 24 * * *" has a bad hour: '
            "use *, 0 to 23, ranges a-b, steps */n and lists a,b"
        ],
    ),
    "a time zone that is none": (
        "autoscaling: {schedules: [{cron: 0 8 * * *, min: 1, timeZone: our time}]}" + CONSUMERS,
        [
            'spec.autoscaling.schedules[0].timeZone: "our time" does not fit: '
            "write a name of the time zone database such as Europe/Vienna"
        ],
    ),
}

NAMES = {
    "a misspelled field": ("queues: {cuont: 3}" + CONSUMERS, ["spec.queues.cuont: is unknown: did you mean count?"]),
    "a field in snake case": (
        "consumers: {drain_budget: 3s, handler: {republish: {to: out}}}",
        ["spec.consumers.drain_budget: is unknown: did you mean drainBudget?"],
    ),
    "a field one level too high": (
        "replicas: 3" + CONSUMERS,
        ["spec.replicas: is unknown: did you mean spec.consumers.replicas?"],
    ),
    "a field one level too deep": (
        "consumers: {autoscaling: {mode: HPA}, handler: {republish: {to: out}}}",
        ["spec.consumers.autoscaling: is unknown: did you mean spec.autoscaling?"],
    ),
    "a field like no other": (
        "colour: red" + CONSUMERS,
        [f"spec.colour: is unknown: the fields here are {SPEC_FIELDS}"],
    ),
    "a broker's URL in the group": (
        "broker: {url: 'amqp://me:s3cret@h'}" + CONSUMERS,
        ["spec.broker.url: is unknown: the fields here are kind, secretRef"],
    ),
    "a misspelled field that is required": (
        "consumer: {handler: {republish: {to: out}}}",
        ["spec.consumer: is unknown: did you mean consumers?"],
    ),
    "a name that is a number": (
        "1: 2" + CONSUMERS,
        ["spec[1]: is not text, as every field name is: write the name in quotes"],
    ),
    "no consumers": ("paused: true", ["spec.consumers: is missing: add it, with handler at least"]),
    "no handler field": (
        "consumers: {}",
        ["spec.consumers.handler: is missing: add it: exactly one of python, http, republish below it"],
    ),
    "no URL": (
        "consumers: {handler: {http: {}}}",
        ["spec.consumers.handler.http.url: is missing: add it: a URL such as http://127.0.0.1:8080/events"],
    ),
}


@pytest.mark.parametrize(
    ("body", "want_lines"),
    [
        pytest.param(body, want, id=name)
        for table in (RULES_BETWEEN_FIELDS, FIELDS, NAMES)
        for name, (body, want) in table.items()
    ],
)
def test_a_bad_field_gives_one_line_with_path_value_and_remedy(body: str, want_lines: list[str]) -> None:
    """The exact lines for what stands under spec."""
    assert lines_of(f"{HEAD}spec:\n  {body}") == want_lines


def test_problems_are_records_too() -> None:
    """A program gets path, value, problem and remedy apart, and the source once."""
    with pytest.raises(spec.SpecError) as caught:
        spec.load(f"{HEAD}spec:\n  queues: {{count: 300}}{CONSUMERS}", "orders.yaml")
    assert caught.value.source == "orders.yaml"
    assert caught.value.problems == (
        spec.Problem("spec.queues.count", "300", "is more than hashing.count 256", "use at most 256"),
    )
