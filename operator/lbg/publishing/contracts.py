"""Where a producer's contract comes from: the broker, or the file that the group's publisher ConfigMap mounts.

It is read, never typed: two publishers with different shard counts put events of one key into two queues, and nothing
downstream can tell. Where both sources exist they are compared, and a difference is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias

from lbg.brokers import base
from lbg.core import contract
from lbg.core.contract import Contract
from lbg.publishing.errors import ContractMismatch, ContractUnknown

Stream: TypeAlias = str | Path | Contract
"""A stream by its prefix, by its contract file, or by a contract that was read elsewhere."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """A contract to publish under."""

    contract: Contract
    is_limited: bool  # a queue may refuse for lack of room, or that is not known
    is_stored: bool  # the broker holds it


def read(path: Path) -> Contract:
    """Read a contract file: one JSON object of prefix, count, algorithm and queues.

    Raises:
        ContractUnknown: the file is missing, unreadable or no contract; the message names it and the field.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ContractUnknown(f"contract file {path}: {why}: mount the group's publisher ConfigMap there") from None
    except (ValueError, RecursionError):
        raise ContractUnknown(f"contract file {path}: not JSON: mount the group's publisher ConfigMap there") from None
    if not isinstance(values, dict):
        raise ContractUnknown(f"contract file {path}: expected one JSON object, got {type(values).__name__}")
    try:
        return contract.from_mapping(values)
    except ValueError as error:
        raise ContractUnknown(f"contract file {path}: {error}") from None


async def agree(adapter: base.Adapter, url: str, stream: Stream) -> Agreed:
    """Find the contract of a stream, and compare the two sources where there are two.

    A contract given by file or value is enough where the broker stores none, or lets publishers not read it.

    Raises:
        ContractUnknown: the broker knows no such stream and no contract was given.
        ContractMismatch: the broker's contract differs from the given one.
        base.Unreachable: nothing answers.
        base.Refused: the broker lets us not read it, and no contract was given.
    """
    given = read(stream) if isinstance(stream, Path) else stream
    prefix = given if isinstance(given, str) else given.prefix
    try:
        topology = await _find(adapter, url, prefix)
    except (base.Refused, base.Unsupported):
        if isinstance(given, str):
            raise
        topology = None
    if topology is None:
        if isinstance(given, str):
            raise ContractUnknown(
                f"stream {prefix!r} is unknown to the broker: create its group first, or give its contract file"
            )
        return Agreed(given, is_limited=True, is_stored=False)
    if isinstance(given, Contract) and given != topology.contract:
        raise ContractMismatch(_difference(given, topology.contract))
    return Agreed(topology.contract, is_limited=topology.size_limit is not None, is_stored=True)


async def _find(adapter: base.Adapter, url: str, prefix: str) -> base.Topology | None:
    admin = await adapter.open_admin(url)
    try:
        return await admin.find(prefix)
    finally:
        await admin.close()


def _difference(given: Contract, stored: Contract) -> str:
    differing = [field.name for field in fields(Contract) if getattr(given, field.name) != getattr(stored, field.name)]
    here = ", ".join(f"{name} {getattr(given, name)}" for name in differing)
    there = ", ".join(f"{name} {getattr(stored, name)}" for name in differing)
    return f"stream {stored.prefix!r}: the contract here ({here}) is not the broker's ({there}): read it anew"
