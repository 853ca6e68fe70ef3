"""What a broker can refuse, in the words of the contract; adapters raise these and nothing else.

They are part of the contract and used as `base.Conflict`; they stand here because the contract is long.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class BrokerError(Exception):
    """Base of all broker errors: one line for a person, with the remedy."""

    message: str

    def __str__(self) -> str:
        return self.message


class Unreachable(BrokerError):
    """Nothing answers at the address, or it went away."""


class Refused(BrokerError):
    """The broker answers and says no: credentials, permission, version."""


@dataclass(eq=False)
class Conflict(BrokerError):
    """A name is in use by somebody else, or an existing object differs."""

    names: tuple[str, ...] = field(default=())


class Missing(BrokerError):
    """The stream, queue or output does not exist."""


@dataclass(eq=False)
class NotEmpty(BrokerError):
    """Deletion was refused because messages remain."""

    remaining: dict[int, int] = field(default_factory=dict)


class BindRefused(BrokerError):
    """Another link holds the exclusive queue."""


class LinkLost(BrokerError):
    """The link or its connection is gone, and ownership with it."""


class LedgerUnreadable(BrokerError):
    """The ledger cannot be read or written now; the link itself may be fine."""


class Unsupported(BrokerError):
    """The broker lacks an optional ability."""


class StoreDamaged(BrokerError):
    """The embedded store cannot be used: corrupt, wrong schema, read-only or full."""
