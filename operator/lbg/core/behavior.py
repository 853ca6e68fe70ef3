"""How fast scaling may go: stabilization windows and step policies, with the meaning they have in autoscaling/v2.

The rules are those that the Kubernetes documentation of HorizontalPodAutoscaler v2 states. Two additions:

* A step down takes one consumer at a time (a tenth of a large group), within what the policies allow. Queues move at
  every step, and the next one should be decided on what this one did.
* A step down that had to be taken back within twelve windows makes the window eight times as long, and so on up to 288
  times (a day, for the default): a load that lies between two sizes should move queues once in a while and not all the
  time. It does not hold back a size that would do *comfortably*. Twice the longest window without a step down forgets
  it.

The history keeps only what a window can still ask for: recommendations that a later one has not made irrelevant. So it
has at most one entry per size of the group, however often it is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Final

from lbg.core.spec.autoscaling import PolicyType, Rules, SelectPolicy

MOST_PATIENCE: Final = 288
"""Upper bound of the window's factor: five minutes become a day."""
_GROWING_PATIENCE: Final = 8
_REVERSAL_WINDOWS: Final = 12
_LONGEST_PERIOD: Final = 1800.0  # of a step policy, bound by the spec


@dataclass(frozen=True, slots=True)
class History:
    """What was recommended and what was done, as (monotonic seconds, number) pairs, oldest first."""

    highs: tuple[tuple[float, int], ...] = ()  # falling: the highest recommendation since each moment
    comforts: tuple[
        tuple[float, int], ...
    ] = ()  # falling: the highest size that would do comfortably since each moment
    lows: tuple[tuple[float, int], ...] = ()  # rising: the lowest recommendation since each moment
    steps: tuple[tuple[float, int], ...] = ()  # changes made, with sign
    patience: int = 1  # factor of the scale-down window


@dataclass(frozen=True, slots=True)
class Rule:
    """The two directions of `spec.autoscaling.behavior`."""

    up: Rules
    down: Rules


def recommend(history: History, recommended: int, comfortable: int, current: int, rule: Rule, now: float) -> History:
    """Return the history with a recommendation made now.

    Without any earlier one, the current size counts as recommended: a restart or an outage of the metrics must not
    look like a long time in which fewer consumers would have done.

    Args:
        history: so far.
        recommended: the size that would do.
        comfortable: the size that would do with room to spare, at least `recommended`.
        current: the desired CC that holds.
        rule: windows and policies.
        now: monotonic seconds.
    """
    window, up = rule.down.stabilization_window_seconds, rule.up.stabilization_window_seconds
    if not history.highs:
        high, low = ((now, current),), ((now, current),)
        history = replace(history, highs=high, comforts=high, lows=low)
    return replace(
        history,
        highs=_pushed(history.highs, recommended, now - window * MOST_PATIENCE, now, 1),
        comforts=_pushed(history.comforts, comfortable, now - window, now, 1),
        lows=_pushed(history.lows, recommended, now - up, now, -1),
    )


def _pushed(
    series: tuple[tuple[float, int], ...], value: int, oldest: float, now: float, sign: int
) -> tuple[tuple[float, int], ...]:
    """Return a series without what is too old and what the new value makes irrelevant (sign 1: all that are lower)."""
    kept = [(at, other) for at, other in series if at >= oldest and sign * other > sign * value]
    return (*kept, (now, value))


def _extreme_since(series: tuple[tuple[float, int], ...], moment: float) -> int:
    """Return the highest (of a rising series: lowest) recommendation after a moment; the latest one always counts."""
    return next((value for at, value in series if at > moment), series[-1][1])


def forget(history: History) -> History:
    """Return the history without recommendations: time in which nothing is known must not pass for a quiet one."""
    return replace(history, highs=(), comforts=(), lows=())


def limit(history: History, current: int, rule: Rule, now: float) -> int:
    """Return the size that the latest recommendation leads to now.

    Args:
        history: with the latest recommendation in it.
        current: the desired CC that holds.
        rule: windows and policies.
        now: monotonic seconds.
    """
    window = rule.down.stabilization_window_seconds
    low = _extreme_since(history.lows, now - rule.up.stabilization_window_seconds)
    if low > current:
        return min(low, _most(history, current, rule.up, now))
    patient = _extreme_since(history.highs, now - window * history.patience)
    high = min(patient, _extreme_since(history.comforts, now - window))
    if high < current:
        return max(high, _fewest(history, current, rule.down, now))
    return current


def stepped(history: History, before: int, after: int, rule: Rule, now: float) -> History:
    """Return the history after a change of the desired CC was decided; equal sizes change nothing but old steps."""
    window = rule.down.stabilization_window_seconds
    quiet = 2.0 * MOST_PATIENCE * window
    steps = tuple((at, change) for at, change in history.steps if at >= now - max(_LONGEST_PERIOD, quiet))
    patience = history.patience if any(change < 0 and at >= now - quiet for at, change in steps) else 1
    if before == after:
        return replace(history, steps=steps, patience=patience)
    recently = now - _REVERSAL_WINDOWS * window
    if after > before and any(change < 0 and at >= recently for at, change in steps):
        patience = min(_GROWING_PATIENCE * patience, MOST_PATIENCE)
    return replace(history, steps=(*steps, (now, after - before)), patience=patience)


def _changed(history: History, period: float, now: float, sign: int) -> int:
    return sum(change for at, change in history.steps if at > now - period and change * sign > 0)


def _most(history: History, current: int, rules: Rules, now: float) -> int:
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    limits = []
    for policy in rules.policies:
        start = current - _changed(history, policy.period_seconds, now, 1)
        is_pods = policy.type is PolicyType.PODS
        limits.append(start + policy.value if is_pods else ceil(start * (1 + policy.value / 100)))
    chosen = min(limits) if rules.select_policy is SelectPolicy.MIN else max(limits)
    return max(chosen, current)


def _fewest(history: History, current: int, rules: Rules, now: float) -> int:
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    limits = []
    for policy in rules.policies:
        start = current - _changed(history, policy.period_seconds, now, -1)
        is_pods = policy.type is PolicyType.PODS
        limits.append(start - policy.value if is_pods else floor(start * (1 - policy.value / 100)))
    # Max selects the largest change, which is the smallest size.
    chosen = max(limits) if rules.select_policy is SelectPolicy.MIN else min(limits)
    return min(current, max(chosen, current - max(1, current // 10), 0))
