"""The settings of a producer: bounds, delays, and what to do at the bound."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from lbg.publishing.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from `first` to `most` seconds, each shortened by up to half at random.

    The jitter keeps publishers that lost the same broker from coming back in step.
    """

    first: float
    most: float

    def delay(self, attempt: int, rng: random.Random) -> float:
        """Return the seconds to wait before attempt n, from 0."""
        # The exponent is bounded: a float overflows after 1,023 attempts.
        return min(self.most, self.first * 2.0 ** min(attempt, 60)) * (0.5 + rng.random() / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a producer buffers, sends and waits.

    Raises:
        InvalidOption: a setting is out of bounds; the message names it.
    """

    max_events: int = 10_000  # held: waiting and in flight
    max_bytes: int = 64 * 1024 * 1024  # of bodies, keys and headers held
    when_full: Literal["wait", "raise"] = "wait"
    max_body: int = 8 * 1024 * 1024  # a broker may close the connection on a larger message, which never ends
    batch: int = 200  # events per submit
    max_in_flight: int = 2_000  # events sent and not answered
    reconnect: Backoff = Backoff(0.05, 5.0)  # seconds between attempts to connect
    retry: Backoff = Backoff(0.02, 1.0)  # seconds between attempts of a shard whose queue is full
    close_timeout: float = 10.0  # seconds that close gives to what is unconfirmed

    def __post_init__(self) -> None:
        for field in ("max_events", "max_bytes", "max_body", "batch", "max_in_flight"):
            if getattr(self, field) < 1:
                raise InvalidOption(f"{field}: {getattr(self, field)} is out of bounds: use at least 1")
        for field in ("reconnect", "retry"):
            backoff: Backoff = getattr(self, field)
            if not 0 < backoff.first <= backoff.most:
                raise InvalidOption(f"{field}: {backoff.first} to {backoff.most} s: use 0 < first <= most")
        if self.close_timeout < 0:
            raise InvalidOption(f"close_timeout: {self.close_timeout} s is out of bounds: use 0 or more")
        if self.when_full not in ("wait", "raise"):
            raise InvalidOption(f"when_full: {self.when_full!r} is unknown: use 'wait' or 'raise'")
