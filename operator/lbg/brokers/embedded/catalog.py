"""What exists on the broker: streams, the groups on them, their queues and logs; who owns what, and what conflicts.

Pure: the engine persists what changes here. A *stream* is the set of groups that share a prefix; it has no object of
its own. The first group declared it; others join. Each group has its own queues, dead letters and outputs, and every
group gets every event of the stream. Since an address, a bind and an observation name the prefix only, they mean the
group of the connection's owner (the `owner` option of the URL), or else the group that declared the stream first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from lbg.brokers import base
from lbg.brokers.embedded import protocol
from lbg.brokers.embedded.queues import ExclusiveQueue

DEAD_LETTERS: Final = ""
"""The name of a group's dead-letter log; outputs cannot be called that."""


@dataclass(slots=True, eq=False)
class HostedQueue:
    """A queue with its place in the store."""

    id: int
    number: int
    machine: ExclusiveQueue
    ledger: base.LedgerEntry | None = None
    ledger_loaded: bool = False


@dataclass(slots=True, eq=False)
class Log:
    """An append-only stream of records: an output, or dead letters. Offsets are dense from 0."""

    id: int
    name: str
    submitted: int = 0  # next offset to give out
    committed: int = 0  # records that can be read


@dataclass(slots=True, eq=False)
class Group:
    """One group on a stream, with everything it owns."""

    id: int
    topology: base.Topology
    queues: list[HostedQueue] = field(default_factory=list)
    logs: dict[str, Log] = field(default_factory=dict)

    @property
    def prefix(self) -> str:
        """Return the prefix of the stream."""
        return self.topology.contract.prefix

    def require_whole(self) -> None:
        """Check that a loaded group has what its topology says.

        Raises:
            ValueError: something is missing; nobody but a person with another tool can have removed it.
        """
        if [queue.number for queue in self.queues] != list(range(self.topology.contract.queues)):
            raise ValueError(f"queues of {self.prefix!r} are missing")
        if not {DEAD_LETTERS, *self.topology.outputs} <= set(self.logs):
            raise ValueError(f"outputs of {self.prefix!r} are missing")


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message to one address goes: queues (one per group on the stream) or one log."""

    queues: tuple[HostedQueue, ...] = ()
    log: Log | None = None


class Catalog:
    """Every group, by prefix, in order of declaration."""

    def __init__(self) -> None:
        self._streams: dict[str, list[Group]] = {}
        # Publishing looks a route up for every message, so they are kept; any change of a group forgets them all.
        self._routes: dict[tuple[protocol.AddressKey, str | None], Route | None] = {}

    def add(self, group: Group) -> None:
        """Add a group that was declared or loaded."""
        self._streams.setdefault(group.prefix, []).append(group)
        self._routes.clear()

    def remove(self, group: Group) -> None:
        """Forget a group."""
        groups = self._streams[group.prefix]
        groups.remove(group)
        if not groups:
            del self._streams[group.prefix]
        self._routes.clear()

    def update(self, group: Group, topology: base.Topology) -> None:
        """Replace what a group may change: size limit, further outputs, hints. Its contract never changes."""
        group.topology = topology
        for queue in group.queues:
            queue.machine.limit = topology.size_limit
        self._routes.clear()

    def groups(self) -> Iterator[Group]:
        """Yield every group, by prefix."""
        for prefix in sorted(self._streams):
            yield from self._streams[prefix]

    def group(self, prefix: str, owner: str | None) -> Group:
        """Return the owner's group on a stream, or else the first one.

        Raises:
            Missing: no such stream.
        """
        groups = self._streams.get(prefix)
        if not groups:
            raise base.Missing(f"stream {prefix!r} does not exist: declare its topology first")
        return self.owned(prefix, owner) or groups[0]

    def owned(self, prefix: str, owner: str | None) -> Group | None:
        """Return the group that this owner has on a stream."""
        return next((g for g in self._streams.get(prefix, ()) if g.topology.owner == owner), None)

    def route(self, address: protocol.AddressKey, owner: str | None) -> Route | None:
        """Return where an address leads, or None when it leads nowhere."""
        key = (address, owner)
        try:
            return self._routes[key]
        except KeyError:
            route = self._routes[key] = self._find_route(*address, owner)
            return route

    def _find_route(self, kind: int, prefix: str, rest: object, owner: str | None) -> Route | None:
        groups = self._streams.get(prefix)
        if not groups:
            return None
        if kind == protocol.TO_SHARD:
            count = groups[0].topology.contract.count  # equal in all groups of a stream
            if not isinstance(rest, int) or not 0 <= rest < count:
                return None
            return Route(queues=tuple(g.queues[rest % len(g.queues)] for g in groups))
        if kind == protocol.TO_OUTPUT:
            # Names of outputs are unique on a stream, so the owner does not matter.
            log = next((g.logs[rest] for g in groups if isinstance(rest, str) and rest in g.logs), None)
            return Route(log=log) if log and rest != DEAD_LETTERS else None
        return Route(log=self.group(prefix, owner).logs[DEAD_LETTERS])

    # Rules of declaration and deletion.

    def merged(self, topology: base.Topology) -> base.Topology:
        """Return the topology to store for a declaration: what its owner has already, and what it asks for.

        Raises:
            Conflict: names every conflict there is.
        """
        prefix, owner = topology.contract.prefix, topology.owner
        own = self.owned(prefix, owner)
        others = [g for g in self._streams.get(prefix, ()) if g is not own]
        conflicts = dict(_contract_conflicts(topology, own, others))
        for other in others:
            for name in topology.outputs:
                if name in other.logs:
                    conflicts[f"output {name}"] = f"output {name!r} belongs to {other.topology.owner}"
        if DEAD_LETTERS in topology.outputs:
            conflicts["output "] = "an output needs a name"
        if conflicts:
            raise base.Conflict(f"stream {prefix!r}: {'; '.join(conflicts.values())}", names=tuple(conflicts))
        if own is None:
            return replace(topology, outputs=tuple(dict.fromkeys(topology.outputs)))
        # Outputs are evidence: a declaration that no longer names one does not delete it.
        return replace(topology, outputs=tuple(dict.fromkeys((*own.topology.outputs, *topology.outputs))))

    def deletable(self, prefix: str, owner: str, *, only_if_empty: bool) -> Group | None:
        """Return the group to delete, None when it is gone already.

        Raises:
            Conflict: the stream belongs to others.
            NotEmpty: messages or dead letters remain, and only an empty group may go.
        """
        groups = self._streams.get(prefix)
        if not groups:
            return None
        group = self.owned(prefix, owner)
        if group is None:
            owners = ", ".join(g.topology.owner for g in groups)
            raise base.Conflict(f"stream {prefix!r} belongs to {owners}, not to {owner}", names=(prefix,))
        if only_if_empty:
            _require_empty(group)
        return group


def _contract_conflicts(topology: base.Topology, own: Group | None, others: list[Group]) -> Iterator[tuple[str, str]]:
    contract = topology.contract
    if others and own is None and not topology.join:
        owners = ", ".join(g.topology.owner for g in others)
        yield contract.prefix, f"it belongs to {owners}; choose another prefix, or join the stream"
    # All groups of a stream agree on what is compared here, so one of them stands for the others.
    for group in [own] if own else others[:1]:
        stored = group.topology.contract
        if stored.count != contract.count:
            yield "count", f"count is {stored.count}, asked for {contract.count}"
        if stored.algorithm != contract.algorithm:
            yield "algorithm", f"algorithm is {stored.algorithm.value}, asked for {contract.algorithm.value}"
        # Each group has its own queues, so their number is nobody else's business.
        if group is own and stored.queues != contract.queues:
            yield "queues", f"queues is {stored.queues}, asked for {contract.queues}"


def _require_empty(group: Group) -> None:
    # What was admitted counts, committed or not: its publisher is about to hear that it was accepted.
    remaining = {
        queue.number: queue.machine.admitted - queue.machine.acked
        for queue in group.queues
        if queue.machine.admitted != queue.machine.acked
    }
    dead_letters = group.logs[DEAD_LETTERS].submitted
    if not remaining and not dead_letters:
        return
    parts = [f"queue {number}: {count}" for number, count in remaining.items()]
    if dead_letters:
        parts.append(f"dead letters: {dead_letters}")
    raise base.NotEmpty(f"stream {group.prefix!r} still holds messages ({', '.join(parts)})", remaining=remaining)
