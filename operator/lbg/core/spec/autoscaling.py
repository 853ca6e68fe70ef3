"""`spec.autoscaling`: who decides how many consumers run, towards what, and how fast.

The fields of `behavior` are those of autoscaling/v2, so that they mean the same in every mode. Deciding is the business
of `core.scaling`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from lbg.core import striping
from lbg.core.spec.fields import Fields, Wanted, Whole
from lbg.core.spec.problems import unfit


class Mode(StrEnum):
    """Who writes the desired number of consumers."""

    OPERATOR = "Operator"
    HPA = "HPA"
    EXTERNAL = "External"
    OFF = "Off"


class PolicyType(StrEnum):
    """What a scaling step is counted in."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(StrEnum):
    """Which of several policies counts."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class Targets(Fields):
    """What scaling aims at."""

    drain_seconds: Whole = Field(default=60, ge=1, le=86_400)
    """Seconds in which the backlog should be gone at the measured capacity."""
    cpu_utilization: Whole = Field(default=70, ge=1, le=1000)
    """Mean CPU use of the consumers, in percent of what they request."""


class StepPolicy(Fields):
    """At most `value` pods or percent of change within `periodSeconds`."""

    type: PolicyType
    """What value counts: Pods, or Percent of the current number."""
    value: Whole = Field(ge=1, le=100_000)
    """How much may change within the period."""
    period_seconds: Whole = Field(ge=1, le=1800)
    """Length of the period in seconds."""


class Rules(Fields):
    """How fast scaling may go in one direction."""

    stabilization_window_seconds: Whole = Field(default=0, ge=0, le=3600)
    """Seconds over which the most cautious recommendation counts."""
    policies: tuple[StepPolicy, ...] = Field(default=(), min_length=1, max_length=20)
    """Limits per step."""
    select_policy: SelectPolicy = SelectPolicy.MAX
    """Which limit counts if there are several; Disabled forbids this direction."""


class ScaleUp(Rules):
    """How fast scaling may add consumers; the defaults are those of autoscaling/v2."""

    policies: tuple[StepPolicy, ...] = Field(
        default=(
            StepPolicy(type=PolicyType.PODS, value=4, period_seconds=15),
            StepPolicy(type=PolicyType.PERCENT, value=100, period_seconds=15),
        ),
        min_length=1,
        max_length=20,
    )
    """Limits per step. Default: 4 pods or 100 percent within 15 seconds."""


class ScaleDown(Rules):
    """How fast scaling may remove consumers; the defaults are those of autoscaling/v2."""

    stabilization_window_seconds: Whole = Field(default=300, ge=0, le=3600)
    """Seconds over which the highest recommendation counts."""
    policies: tuple[StepPolicy, ...] = Field(
        default=(StepPolicy(type=PolicyType.PERCENT, value=100, period_seconds=15),), min_length=1, max_length=20
    )
    """Limits per step. Default: 100 percent within 15 seconds."""


class Behavior(Fields):
    """How fast scaling may go, as in autoscaling/v2."""

    scale_up: ScaleUp = ScaleUp()
    """Adding consumers."""
    scale_down: ScaleDown = ScaleDown()
    """Removing consumers."""


_CRON_FIELDS: Final = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_CRON_PART: Final = re.compile(r"(?:\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?", re.ASCII)


def _cron(text: str) -> str:
    fields = text.split()
    if len(fields) != len(_CRON_FIELDS):
        raise unfit(
            text, f"has {len(fields)} fields", "write minute, hour, day of month, month, day of week: 0 8 * * 1-5"
        )
    for field, (name, least, most, names) in zip(fields, _CRON_FIELDS, strict=True):
        if not all(_is_cron_part(part.lower(), least, most, names) for part in field.split(",")):
            raise unfit(text, f"has a bad {name}", f"use *, {least} to {most}, ranges a-b, steps */n and lists a,b")
    return text


def _is_cron_part(part: str, least: int, most: int, names: tuple[str, ...]) -> bool:
    match = _CRON_PART.fullmatch(part)
    if match is None:
        return False
    bounds = []
    for end in (end for end in match.groups()[:2] if end is not None):
        if end.isdigit():
            bounds.append(int(end))
        elif end in names:
            bounds.append(least + names.index(end))
        else:
            return False
    step = match[3]
    return bounds == sorted(bounds) and all(least <= end <= most for end in bounds) and (step is None or int(step) > 0)


class Schedule(Fields):
    """A floor under the number of consumers from a moment on, until the next schedule's moment."""

    cron: Annotated[str, Field(max_length=100), AfterValidator(_cron), Wanted("five cron fields such as 0 8 * * 1-5")]
    """When the floor begins: minute, hour, day of month, month, day of week."""
    time_zone: Annotated[
        str,
        Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$"),
        Wanted("a name of the time zone database such as Europe/Vienna"),
    ] = "UTC"
    """Time zone of the cron fields, by its name in the IANA database."""
    min: Whole = Field(ge=0, le=striping.MAX_QUEUES)
    """Fewest consumers from then on; the larger of this and consumers.min counts."""


class Autoscaling(Fields):
    """How the number of consumers follows the load."""

    mode: Mode = Mode.OPERATOR
    """Operator decides from backlog, rate and CPU; HPA writes an autoscaler; External leaves /scale to others; Off."""
    targets: Targets = Targets()
    """What the modes Operator and HPA aim at."""
    behavior: Behavior = Behavior()
    """How fast it may go."""
    schedules: tuple[Schedule, ...] = Field(default=(), max_length=100)
    """Floors ahead of forecast peaks."""
