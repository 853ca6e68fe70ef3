"""The contract of a stream: what publishers and consumers must agree on, and may never type twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lbg.core import hashing, striping
from lbg.core.hashing import Algorithm

MAX_PREFIX: Final = 200
"""Longest prefix: queue names grow from it, and AMQP's short strings end at 255 bytes."""

PREFIX_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""What a prefix is made of: safe as a topic level, an exchange name, a queue name and a file name (so not `..`)."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Prefix, HC, algorithm and QC of a stream. Immutable for the life of the stream.

    Raises:
        ValueError: a bound is broken; the message names the field and the remedy.
    """

    prefix: str
    count: int  # HC
    algorithm: Algorithm
    queues: int  # QC

    def __post_init__(self) -> None:
        if not 1 <= len(self.prefix) <= MAX_PREFIX or re.fullmatch(PREFIX_PATTERN, self.prefix) is None:
            raise ValueError(
                f"prefix: use 1 to {MAX_PREFIX} letters, digits, dots, dashes, underscores; first a letter or digit"
            )
        if not 1 <= self.count <= hashing.MAX_COUNT:
            raise ValueError(f"count: {self.count} is out of bounds: use 1 to {hashing.MAX_COUNT}")
        most = min(self.count, striping.MAX_QUEUES)
        if not 1 <= self.queues <= most:
            raise ValueError(f"queues: {self.queues} is out of bounds: use 1 to {most}, with count {self.count}")

    def to_mapping(self) -> dict[str, object]:
        """Return `{"prefix", "count", "algorithm", "queues"}`, the published form."""
        return {
            "prefix": self.prefix,
            "count": self.count,
            "algorithm": self.algorithm.value,
            "queues": self.queues,
        }


def from_mapping(values: Mapping[str, object]) -> Contract:
    """Read the published form; unknown fields are ignored.

    Raises:
        ValueError: a field is missing or wrong; the message names it.
    """
    prefix, count, queues = values.get("prefix"), values.get("count"), values.get("queues")
    if not isinstance(prefix, str):
        raise ValueError("prefix: expected a string")
    if not isinstance(count, int) or isinstance(count, bool):
        raise ValueError("count: expected an integer")
    if not isinstance(queues, int) or isinstance(queues, bool):
        raise ValueError("queues: expected an integer")
    try:
        algorithm = Algorithm(str(values.get("algorithm")))
    except ValueError:
        raise ValueError(f"algorithm: expected one of {', '.join(Algorithm)}") from None
    return Contract(prefix, count, algorithm, queues)
