"""Whether a step up helped: throughput before and after, compared only when the comparison means something.

Throughput says what consumers can do only while work waits, so a step is judged if work waited before it and still
waits once the larger group has settled. If nothing waits any more, the step was enough. A gain of less than 10 % says
that the bottleneck is elsewhere (a database, a machine without a free core), and more consumers may make that worse.
From nine consumers to ten 10 % cannot be gained, so the bar is never above half of what the step could gain.

While a step is being judged no further one is made. Steps taken before the first one has settled are judged together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lbg.core import loads

LEAST_GAIN: Final = 0.1
_SETTLED: Final = 2.0  # time constants after which a rate means the holders that serve now
_CERTAIN_SECONDS: Final = 10.0  # least time before a step counts as failed: a consumer's first seconds are its slowest
_FORGIVEN: Final = 40.0
"""Time constants (ten minutes for the default target) after which a step that did not help is forgiven: the bottleneck
may be mended. Each further failure doubles it."""
_MOST_DOUBLINGS: Final = 5


@dataclass(frozen=True, slots=True)
class Flow:
    """What goes through the group now."""

    throughput: float  # events per second
    waiting: float  # events that more consumers could take on
    is_enough: bool  # the size meets the targets

    @property
    def is_backed_up(self) -> bool:
        """Return whether so much waits that throughput is all that the group can do."""
        return self.throughput > 0 and self.waiting >= loads.BACKLOGGED_SECONDS * self.throughput


@dataclass(frozen=True, slots=True)
class Step:
    """A step up made while work waited, not judged yet."""

    base: int  # effective CC before it
    throughput: float  # before it
    to: int
    since: float


@dataclass(frozen=True, slots=True)
class Ineffective:
    """A step up that did not help."""

    base: int
    consumers: int
    throughput: float
    since: float
    forgiven_after: float  # seconds


@dataclass(frozen=True, slots=True)
class Effect:
    """What is known of the last steps up."""

    step: Step | None = None
    ineffective: Ineffective | None = None
    failures: int = 0  # since the size was last enough, or a step helped

    def allowed(self, wanted: int, current: int, effective: int) -> int:
        """Return how much of a wanted size may be asked for: less is always allowed, more only where it may help."""
        is_judging = self.step is not None and (effective >= self.step.to or self.failures > 0)
        if self.ineffective is not None or is_judging:
            return min(wanted, current)
        # After a failure one consumer is enough to find out whether the bottleneck is gone.
        return min(wanted, current + 1) if self.failures else wanted


def judge(
    effect: Effect, flow: Flow, current: int, effective: int, *, settled_for: float, smoothing: float, now: float
) -> Effect:
    """Return what is known after another look at what goes through.

    A step that helped is seen as soon as rates have settled. That it did not help is believed later, since a step that
    is taken for a failure costs minutes.

    Args:
        effect: what was known.
        flow: the look.
        current: desired CC.
        effective: the CC that handles the flow.
        settled_for: seconds since its holders last changed.
        smoothing: time constant of the throughput in seconds.
        now: monotonic seconds.
    """
    failed, step, forgiven = effect.ineffective, effect.step, _FORGIVEN * smoothing
    if flow.is_enough or (failed is not None and flow.throughput >= failed.throughput * (1 + LEAST_GAIN)):
        effect = Effect(step)
    elif failed is not None and (current < failed.consumers or now - failed.since >= failed.forgiven_after):
        effect = replace(effect, ineffective=None)
    if step is None:
        return effect
    if current <= step.base or not flow.is_backed_up or now - step.since >= forgiven:
        return replace(effect, step=None)
    if effective <= step.base or settled_for < _SETTLED * smoothing:
        return effect
    bar = min(LEAST_GAIN, (effective / step.base - 1) / 2)
    if flow.throughput >= step.throughput * (1 + bar):
        has_arrived = effective >= step.to
        return Effect(None if has_arrived else replace(step, base=effective, throughput=flow.throughput))
    if settled_for < _CERTAIN_SECONDS:
        return effect
    wait = forgiven * 2 ** min(effect.failures, _MOST_DOUBLINGS)
    return Effect(None, Ineffective(step.base, effective, flow.throughput, now, wait), effect.failures + 1)


def stepped(effect: Effect, flow: Flow, current: int, desired: int, effective: int, now: float) -> Effect:
    """Return what is known after the desired CC was decided: a step up while work waits will have to prove itself."""
    if desired <= current or effective < 1 or not flow.is_backed_up:
        return effect
    if effect.step is not None:
        return replace(effect, step=replace(effect.step, to=desired))
    return replace(effect, step=Step(effective, flow.throughput, desired, now))
