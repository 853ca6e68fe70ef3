"""How large a demo is: events, time, and the handler whose cost makes the peak too much for one consumer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lbg.local.demo import curve, flights

MOST_CONSUMERS: Final = 4
CONSUMERS_AT_PEAK: Final = 2.62
"""Consumers that the peak would occupy in full. With a fifth in reserve, as scaling wants it, that takes four."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a demo."""

    rows: int
    seconds: float  # of load
    lanes: int
    calm_seconds: float  # between reaching four consumers, the kill, and the rollout
    drain_seconds: int  # target of the autoscaling; how soon it acts follows from it
    settle_seconds: int  # before it takes a consumer away

    @property
    def peak(self) -> float:
        """Return the highest rate in events per second."""
        return curve.fitted(curve.BLACK_FRIDAY, self.rows, self.seconds).peak

    @property
    def capacity(self) -> float:
        """Return what one consumer can do at best, in events per second: all lanes always waiting in handlers."""
        return self.lanes / self.cost_ms * 1000

    @property
    def cost_ms(self) -> float:
        """Return how long the handler waits for each event."""
        return round(self.lanes * 1000 * CONSUMERS_AT_PEAK / self.peak, 1)


FULL: Final = Scale(rows=flights.ROWS, seconds=125.0, lanes=16, calm_seconds=10.0, drain_seconds=8, settle_seconds=5)
FAST: Final = Scale(rows=4_000, seconds=14.0, lanes=4, calm_seconds=0.5, drain_seconds=4, settle_seconds=2)


def group_yaml(scale: Scale) -> str:
    """Return the demo's group. Windows are short, since a whole day is pressed into two minutes."""
    return f"""\
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata:
  name: flights
spec:
  hashing: {{count: 256, algorithm: xxh64}}
  queues: {{count: 12}}
  consumers:
    min: 1
    max: {MOST_CONSUMERS}
    window: 100
    lanes: {scale.lanes}
    handler: {{python: "lbg.local.demo.handler:handle"}}
    output: {{to: handled}}
  autoscaling:
    mode: Operator
    targets: {{drainSeconds: {scale.drain_seconds}}}
    behavior:
      scaleDown: {{stabilizationWindowSeconds: {scale.settle_seconds}}}
"""
