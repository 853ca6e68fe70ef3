"""What a group consists of on the broker, and what stands in its way; pure.

Marks are arguments of the objects: the broker keeps arguments that it does not know. On exchanges it does not even
compare them, so a second declaration with other marks succeeds and changes nothing; whoever declares reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lbg.brokers import base
from lbg.brokers.rabbitmq import features, names
from lbg.core import contract, striping

KIND: Final = "lbg-kind"
OWNER: Final = "lbg-owner"
QUEUE_TYPE: Final = "lbg-queue-type"
JOIN: Final = "lbg-join"
PLACE: Final = "lbg-place"  # of an output among its group's outputs
STREAM: Final = "stream"
GROUP: Final = "group"
QUEUE_TYPES: Final = ("quorum", "classic")

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as found on the broker."""

    topology: base.Topology
    names: names.Names


def exchange_arguments(topology: base.Topology, kind: str) -> dict[str, object]:
    """Return the marks of the stream's or the group's exchange: the contract, and to whom it belongs."""
    marks: dict[str, object] = {f"lbg-{name}": value for name, value in topology.contract.to_mapping().items()}
    marks |= {KIND: kind, OWNER: topology.owner}
    if kind == GROUP:
        marks |= {QUEUE_TYPE: topology.queue_type, JOIN: topology.join}
    return marks


def stored_group(exchange: str, arguments: Arguments, outputs: Iterable[str]) -> StoredGroup | None:
    """Read a group back from its exchange; None when that is not ours."""
    if arguments.get(KIND) != GROUP or not isinstance(arguments.get(OWNER), str):
        return None
    try:
        found = contract.from_mapping({name.removeprefix("lbg-"): value for name, value in arguments.items()})
    except ValueError:
        return None
    topology = base.Topology(
        found,
        arguments[OWNER],
        queue_type=str(arguments.get(QUEUE_TYPE)),
        outputs=tuple(outputs),
        join=arguments.get(JOIN) is True,
    )
    return StoredGroup(topology, names.Names(found.prefix, exchange.removeprefix(found.prefix).removesuffix(":group")))


def require_supported(topology: base.Topology, known: features.Features) -> None:
    """Check what this broker cannot do at all.

    Raises:
        Unsupported: a size limit, outputs on a broker without streams, or an unknown queue type.
    """
    if topology.size_limit is not None:
        raise base.Unsupported(
            "queues.sizeLimit: this broker may accept a later message after it refused an earlier one: leave it out"
        )
    if topology.outputs and not known.abilities.outputs:
        raise base.Unsupported("outputs: this broker has no streams: use RabbitMQ 3.10 or later, or no outputs")
    if topology.queue_type not in QUEUE_TYPES:
        raise base.Unsupported(f"queues.type: {topology.queue_type!r} is not known: use {' or '.join(QUEUE_TYPES)}")


def queues(topology: base.Topology, group: names.Names, known: features.Features) -> dict[str, dict[str, object]]:
    """Return name and arguments of every queue of a group."""
    plain: dict[str, object] = {"x-queue-type": topology.queue_type, OWNER: topology.owner}
    if topology.queue_type == "quorum" and known.has_delivery_limit:
        # The default drops a message after 20 returns, and a message only prefetched at a move counts as returned.
        plain["x-delivery-limit"] = -1
    single = {**plain, "x-single-active-consumer": True}
    found: dict[str, dict[str, object]] = {}
    for number in range(topology.contract.queues):
        found[group.queue(number)] = single
        found[group.ledger(number)] = single
    found[group.dead] = plain
    for place, name in enumerate(topology.outputs):
        found[group.output(name)] = {"x-queue-type": "stream", OWNER: topology.owner, PLACE: place}
    return found


def bindings(topology: base.Topology, group: names.Names) -> Iterator[tuple[str, str, str]]:
    """Yield exchange, queue and routing key of every binding. The stream's come last: they let events in."""
    yield group.group, group.dead, names.DEAD
    for name in topology.outputs:
        yield group.group, group.output(name), names.output_key(name)
    for number in range(topology.contract.queues):
        yield group.group, group.ledger(number), names.ledger_key(number)
    for shard in range(topology.contract.count):
        number = striping.queue_of(shard, topology.contract.queues)
        yield group.exchange, group.queue(number), str(shard)


def conflicts(
    topology: base.Topology,
    groups: Iterable[StoredGroup],
    exchange: Arguments | None,
    present: Mapping[str, Arguments],
    wanted: Mapping[str, Arguments],
) -> dict[str, str]:
    """Return what stands in the way of a declaration, by name.

    Args:
        topology: what is asked for.
        groups: the groups on the stream.
        exchange: arguments of the exchange that is named by the prefix; None if there is none.
        present: existing queues under the prefix, with their arguments.
        wanted: the queues to declare.
    """
    found = dict(_exchange_conflicts(topology, exchange))
    everyone = list(groups)
    own = [group for group in everyone if group.topology.owner == topology.owner]
    others = [group for group in everyone if group.topology.owner != topology.owner]
    prefix = topology.contract.prefix
    if others and not own and not topology.join:
        owners = ", ".join(group.topology.owner for group in others)
        found[prefix] = f"it belongs to {owners}; choose another prefix, or join the stream"
    for group in own or others[:1]:
        found |= _contract_conflicts(topology, group.topology, own=bool(own))
    for name, arguments in wanted.items():
        there = present.get(name)
        if there is None:
            continue
        if there.get(OWNER) != topology.owner:
            whose = f"belongs to {there[OWNER]}" if OWNER in there else "exists and is not ours"
            found[name] = f"queue {name!r} {whose}: choose another prefix, or remove it"
        elif any(there.get(key) != value for key, value in arguments.items() if key.startswith("x-")):
            found[name] = f"queue {name!r} was declared with other arguments, which cannot be changed"
    return found


def _exchange_conflicts(topology: base.Topology, exchange: Arguments | None) -> Iterator[tuple[str, str]]:
    prefix = topology.contract.prefix
    if exchange is None:
        return
    if exchange.get(KIND) != STREAM:
        yield prefix, f"exchange {prefix!r} exists and is not ours: choose another prefix, or remove it"
    elif exchange.get(OWNER) != topology.owner and not topology.join:
        yield prefix, f"it belongs to {exchange.get(OWNER)}; choose another prefix, or join the stream"


def _contract_conflicts(topology: base.Topology, stored: base.Topology, *, own: bool) -> dict[str, str]:
    asked, there = topology.contract, stored.contract
    found: dict[str, str] = {}
    if there.count != asked.count:
        found["count"] = f"count is {there.count}, asked for {asked.count}"
    if there.algorithm != asked.algorithm:
        found["algorithm"] = f"algorithm is {there.algorithm.value}, asked for {asked.algorithm.value}"
    # Each group has queues of its own, so their number and type are nobody else's business.
    if own and there.queues != asked.queues:
        found["queues"] = f"queues is {there.queues}, asked for {asked.queues}"
    if own and stored.queue_type != topology.queue_type:
        found["queue_type"] = f"queue type is {stored.queue_type}, asked for {topology.queue_type}"
    return found
