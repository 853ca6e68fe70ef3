"""Which object on the broker has which name.

A colon cannot stand in a prefix, so that no name of one stream can be a name of another: with a dot, the output `dead`
of stream `a` and the dead letters of stream `a.out` could meet. The group that declared a stream has the plain names;
a group that joined has a tag made of its owner.

    orders                  direct exchange of the stream: publishers; routing key = shard; carries the contract
    orders:group            direct exchange of the group: dead letters, outputs, ledgers; carries the ownership mark
    orders:q3               exclusive queue
    orders:q3:ledger        its ledger
    orders:dead             dead letters
    orders:out:NAME         output; the name is the stream's, so it is unique among its groups
    orders:@0123456789:q3   as above, of a group that joined
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from lbg.brokers import base

DEAD = "dead"
_GROUP = re.compile(r"^[^:]+(:@[0-9a-f]{10})?:group$")


def joined_tag(owner: str) -> str:
    """Return the part of a name that tells a joined group's objects from the first group's."""
    return ":@" + hashlib.sha256(owner.encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one group on one stream."""

    prefix: str
    tag: str = ""  # of a group that joined

    @property
    def exchange(self) -> str:
        """Return the exchange of the stream, shared by its groups."""
        return self.prefix

    @property
    def group(self) -> str:
        """Return the exchange of the group."""
        return f"{self.prefix}{self.tag}:group"

    def queue(self, number: int) -> str:
        """Return an exclusive queue."""
        return f"{self.prefix}{self.tag}:q{number}"

    def ledger(self, number: int) -> str:
        """Return the ledger of a queue."""
        return f"{self.queue(number)}:ledger"

    @property
    def dead(self) -> str:
        """Return the dead-letter queue."""
        return f"{self.prefix}{self.tag}:{DEAD}"

    def output(self, name: str) -> str:
        """Return an output."""
        return f"{self.prefix}:out:{name}"


def ledger_key(number: int) -> str:
    """Return the routing key of a ledger at the group's exchange."""
    return f"ledger:{number}"


def output_key(name: str) -> str:
    """Return the routing key of an output at the group's exchange."""
    return f"out:{name}"


def is_group(exchange: str) -> bool:
    """Say whether an exchange has the name of a group's exchange."""
    return _GROUP.match(exchange) is not None


def route(names: Names, address: base.Address) -> tuple[str, str]:
    """Return exchange and routing key of an address."""
    if isinstance(address, base.ToShard):
        return names.exchange, str(address.shard)
    if isinstance(address, base.ToOutput):
        return names.group, output_key(address.name)
    return names.group, DEAD
