"""The contract of a stream: what publishers and consumers must agree on, and may never type twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lbg.core.hashing import Algorithm


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
        if not self.prefix:
            raise ValueError("prefix is empty: give the stream a name")
        if not 1 <= self.queues <= self.count:
            raise ValueError(f"queues {self.queues} must be between 1 and count {self.count}")

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
