"""Which runs the soak makes: their shape, their seeds, and the group that each of them runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xxhash import xxh64_intdigest

from bench import handlers
from lbg.brokers.base import HandoverAbility

MOST_CONSUMERS: Final = 6
QUEUES: Final = 12
MAX_ATTEMPTS: Final = 100
"""Above the kills of any run: an event that was in hand in every death must not end as poison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a kind of run looks like."""

    steps: int
    least_ms: int  # of a handler
    most_ms: int
    window: int
    lanes: int
    rate: int  # events per second
    burst: int  # events at the beginning, so that there is a backlog all the time
    keys: int
    fewest: int  # consumers: below it the load would outgrow the group for good
    most_pause: float  # seconds between two steps; some follow at once and meet a move on its way
    patience: float  # seconds for the backlog to be handled in the end


SHORT: Final = Shape(
    steps=40,
    least_ms=0,
    most_ms=100,
    window=20,
    lanes=8,
    rate=100,
    burst=0,
    keys=200,
    fewest=1,
    most_pause=2.5,
    patience=60.0,
)
LONG: Final = Shape(
    steps=25,
    least_ms=3000,
    most_ms=3000,
    window=50,
    lanes=16,
    rate=8,
    burst=300,
    keys=1000,
    fewest=2,
    most_pause=5.0,
    patience=120.0,
)
SHAPES: Final = (SHORT, SHORT, SHORT, SHORT, LONG)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the soak. The seed decides about steps and handler times, not about what the machine makes of them."""

    ability: HandoverAbility
    number: int  # from 1
    seed: int
    shape: Shape

    @property
    def name(self) -> str:
        """Return the name by which it is replayed."""
        return f"{self.ability}/{self.number}"

    @property
    def replay(self) -> str:
        """Return the command that makes this run again."""
        return f'make soak SOAK_ARGS="--only {self.name} --run-seed {self.seed}"'

    @property
    def in_hand_bound(self) -> int:
        """Return how many events one death may repeat: as many handled as being confirmed (`lbg.core.lanes`)."""
        return 2 * self.shape.lanes

    @property
    def environment(self) -> dict[str, str]:
        """Return what its handlers are told."""
        return {
            handlers.LEAST_VARIABLE: str(self.shape.least_ms),
            handlers.MOST_VARIABLE: str(self.shape.most_ms),
            handlers.SEED_VARIABLE: str(self.seed),
        }

    @property
    def publisher(self) -> list[str]:
        """Return the arguments of its publisher."""
        shape = self.shape
        values = {"rate": shape.rate, "burst": shape.burst, "keys": shape.keys, "seed": self.seed}
        return [word for name, value in values.items() for word in (f"--{name}", str(value))]

    @property
    def group(self) -> str:
        """Return the group's YAML."""
        return _GROUP.format(
            queues=QUEUES,
            fewest=self.shape.fewest,
            most=MOST_CONSUMERS,
            window=self.shape.window,
            lanes=self.shape.lanes,
            attempts=MAX_ATTEMPTS,
        )


def all_runs(seed: int) -> Iterator[Run]:
    """Iterate over the runs of a whole soak, the abilities in turn, so that half a soak has met all of them."""
    for number, shape in enumerate(SHAPES, start=1):
        for ability in HandoverAbility:
            own = xxh64_intdigest(f"{ability}/{number}".encode(), seed) % 1_000_000
            yield Run(ability, number, own, shape)


_GROUP: Final = """
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {{name: soak}}
spec:
  hashing: {{count: 256}}
  queues: {{count: {queues}}}
  consumers:
    replicas: {fewest}
    min: {fewest}
    max: {most}
    window: {window}
    lanes: {lanes}
    handler: {{python: 'bench.handlers:waits'}}
    output: {{to: out}}
    retry: {{maxAttempts: {attempts}, backoff: 10ms}}
    drainBudget: 30s
  autoscaling: {{mode: External}}
"""
