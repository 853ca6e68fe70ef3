"""The control plane: declare, delete, find, list, observe, dead letters, by the management HTTP API.

Order of creation and of deletion is what makes an interruption harmless: the stream's exchange is claimed first and
lets events in last (its bindings); on the way out it goes first, and the group's mark goes last, so that a deletion
which was interrupted is found and finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Any, Final

from lbg.brokers import base
from lbg.brokers.rabbitmq import messages, names
from lbg.brokers.rabbitmq import topology as rules
from lbg.brokers.rabbitmq.connection import Connection
from lbg.brokers.rabbitmq.management import Management
from lbg.brokers.rabbitmq.topology import StoredGroup
from lbg.brokers.rabbitmq.urls import Address
from lbg.core.wire import Message

STALE: Final = 6.0
"""Seconds until a count is certainly newer than now: quorum queues report theirs every 5 s, and 0 before that."""

MAX_PREFETCH: Final = 65_535

_LIVE: Final = {"disable_stats": "true", "enable_queue_totals": "true"}
"""Ask the queues and not the statistics: fresher, and a third of the cost."""


class RabbitAdmin:
    """See `base.Admin`."""

    def __init__(self, address: Address) -> None:
        self._api = Management(address)
        self._address = address

    async def open(self) -> None:
        """Connect. Raises as `base.Adapter.open_admin`."""
        await self._api.open()

    @property
    def abilities(self) -> base.Abilities:
        """Return what this broker can do."""
        return self._api.features.abilities

    async def close(self) -> None:
        """Close. Idempotent."""
        await self._api.close()

    # Looking.

    async def _groups(self, prefix: str | None = None) -> tuple[StoredGroup, ...]:
        """Return the groups on a stream or on all, by prefix, the first group of a stream before those that joined."""
        stem = re.escape(prefix) if prefix is not None else "[^:]+"
        exchanges = await self._api.pages("exchanges", f"^{stem}(:@[0-9a-f]{{10}})?:group$", "name,arguments")
        outputs = await self._arguments(f"^{stem}:out:") if exchanges else {}
        found = []
        for exchange in exchanges:
            name, arguments = exchange["name"], exchange["arguments"]
            group = rules.stored_group(name, arguments, ()) if names.is_group(name) else None
            if group is not None:
                own = _outputs_of(group, outputs)
                found.append(replace(group, topology=replace(group.topology, outputs=own)))
        return tuple(sorted(found, key=lambda group: (group.names.prefix, group.names.tag)))

    async def _arguments(self, pattern: str) -> dict[str, dict[str, Any]]:
        """Return arguments by name of the queues that match."""
        found = await self._api.pages("queues", pattern, "name,arguments", disable_stats="true")
        return {queue["name"]: queue["arguments"] for queue in found}

    async def _group(self, prefix: str) -> StoredGroup | None:
        groups = await self._groups(prefix)
        own = [group for group in groups if group.topology.owner == self._address.owner]
        return next(iter(own or groups), None)

    async def find(self, prefix: str) -> base.Topology | None:
        """Return the topology of a stream: the owner's that the URL names, or else the first group's."""
        group = await self._group(prefix)
        return group.topology if group else None

    async def list(self) -> tuple[base.Topology, ...]:
        """Return every topology, by prefix."""
        return tuple(group.topology for group in await self._groups())

    async def observe(self, prefix: str) -> tuple[base.QueueState, ...]:
        """Look at all queues of a stream, in two requests per 500 queues.

        Counts of quorum queues are up to 5 s old, links and their names up to 10 s. `published` is unknown: the
        broker's counter starts again with the broker.
        """
        group = await self._group(prefix)
        if group is None:
            raise base.Missing(f"stream {prefix!r} does not exist: declare its topology first")
        totals, links = await asyncio.gather(
            self._figures(group, "name,messages_ready,messages_unacknowledged", **_LIVE),
            self._figures(group, "name,consumers,single_active_consumer_tag"),
        )
        return tuple(
            _state(number, totals.get(name, {}), links.get(name, {}))
            for number in range(group.topology.contract.queues)
            for name in (group.names.queue(number),)
        )

    async def _figures(self, group: StoredGroup, columns: str, **parameters: str) -> dict[str, dict[str, Any]]:
        stem = re.escape(group.names.prefix + group.names.tag)
        found = await self._api.pages("queues", f"^{stem}:q[0-9]+$", columns, **parameters)
        return {queue["name"]: queue for queue in found}

    async def dead_letters(self, prefix: str, limit: int = 100) -> tuple[Message, ...]:
        """Return the oldest dead letters; they go back to their places, marked as redelivered.

        By a consumer that acknowledges nothing: the management API's `get` does not answer on a quorum queue of
        RabbitMQ 3.10 just after its node was killed and started again. The consumer may find it empty then.
        """
        group = await self._group(prefix)
        if group is None:
            raise base.Missing(f"stream {prefix!r} does not exist: declare its topology first")
        connection = Connection(self._address)
        await connection.open("admin")
        try:
            return tuple(await _peek(connection, group.names.dead, limit))
        finally:
            await connection.close()

    # Declaring.

    async def declare(self, topology: base.Topology) -> None:
        """Create what is missing; see `base.Admin.declare`.

        Raises, beyond that:
            Unsupported: a size limit, outputs or a queue type that this broker does not have.
        """
        rules.require_supported(topology, self._api.features)
        merged, group = await self._checked(topology)
        await self._claim(group.exchange, merged, rules.STREAM)
        await self._claim(group.group, merged, rules.GROUP)
        wanted = rules.queues(merged, group, self._api.features)
        await _all(
            self._api.put("queues", name, {"durable": True, "auto_delete": False, "arguments": arguments})
            for name, arguments in wanted.items()
        )
        await self._bind(merged, group)

    async def _checked(self, topology: base.Topology) -> tuple[base.Topology, names.Names]:
        """Return what to store, under which names."""
        prefix, owner = topology.contract.prefix, topology.owner
        groups, exchange, present = await asyncio.gather(
            self._groups(prefix),
            self._api.get("exchanges", prefix, columns="name,arguments"),
            self._arguments(f"^{re.escape(prefix)}:"),
        )
        marks = exchange["arguments"] if exchange else None
        own = next((group for group in groups if group.topology.owner == owner), None)
        if own is not None:
            # Outputs are evidence: a declaration that no longer names one does not delete it.
            outputs = dict.fromkeys((*own.topology.outputs, *topology.outputs))
            merged, group = replace(topology, outputs=tuple(outputs)), own.names
        else:
            is_first = marks is None or marks.get(rules.OWNER) == owner
            group = names.Names(prefix, "" if is_first else names.joined_tag(owner))
            merged = replace(topology, outputs=tuple(dict.fromkeys(topology.outputs)))
        wanted = rules.queues(merged, group, self._api.features)
        found = rules.conflicts(merged, groups, marks, present, wanted)
        if found:
            raise base.Conflict(f"stream {prefix!r}: {'; '.join(found.values())}", names=tuple(found))
        return merged, group

    async def _claim(self, name: str, topology: base.Topology, kind: str) -> None:
        """Declare an exchange and read back to whom it belongs: of two that declare at once, one has won."""
        marks = rules.exchange_arguments(topology, kind)
        body = {"type": "direct", "durable": True, "auto_delete": False, "internal": False, "arguments": marks}
        await self._api.put("exchanges", name, body)
        there = await self._api.get("exchanges", name, columns="name,arguments")
        arguments = there["arguments"] if there else {}
        joined = kind == rules.STREAM and topology.join
        if arguments.get(rules.KIND) != kind or (arguments.get(rules.OWNER) != topology.owner and not joined):
            owner = arguments.get(rules.OWNER, "somebody else")
            raise base.Conflict(f"exchange {name!r} belongs to {owner}: choose another prefix", names=(name,))

    async def _bind(self, topology: base.Topology, group: names.Names) -> None:
        there: set[tuple[str, str, str]] = set()
        for exchange in (group.exchange, group.group):
            for binding in await self._api.get("exchanges", exchange, "bindings", "source") or ():
                there.add((exchange, binding["destination"], binding["routing_key"]))
        missing = [binding for binding in rules.bindings(topology, group) if binding not in there]
        # Two steps, so that nothing comes in before there is somewhere to put a dead letter.
        for inward in (False, True):
            await _all(
                self._api.post("bindings", "e", exchange, "q", queue, body={"routing_key": key, "arguments": {}})
                for exchange, queue, key in missing
                if (exchange == group.exchange) is inward
            )

    # Deleting.

    async def delete(self, prefix: str, owner: str, *, only_if_empty: bool) -> None:
        """Delete a group's objects; see `base.Admin.delete`. Dead letters count as messages; outputs do not.

        What is published between the last look and the deletion goes with the queue: stop the publishers first.
        """
        groups, exchange = await asyncio.gather(
            self._groups(prefix), self._api.get("exchanges", prefix, columns="name,arguments")
        )
        marks = exchange["arguments"] if exchange else {}
        own = next((group for group in groups if group.topology.owner == owner), None)
        if own is None and groups:
            owners = ", ".join(group.topology.owner for group in groups)
            raise base.Conflict(f"stream {prefix!r} belongs to {owners}, not to {owner}", names=(prefix,))
        group = own.names if own else names.Names(prefix)
        queues = await self._own_queues(group, owner)
        if only_if_empty and own is not None:
            await self._require_empty(own)
        is_stream = marks.get(rules.KIND) == rules.STREAM
        if is_stream and (groups == (own,) or (not groups and marks.get(rules.OWNER) == owner)):
            await self._api.delete("exchanges", group.exchange)
        await _all(self._api.delete("queues", name) for name in queues)
        if own is not None:
            await self._api.delete("exchanges", group.group)

    async def _own_queues(self, group: names.Names, owner: str) -> tuple[str, ...]:
        """Return the queues under the prefix that carry the owner's mark, whatever their number was meant to be."""
        there = await self._arguments(f"^{re.escape(group.prefix)}:")
        return tuple(name for name, arguments in there.items() if arguments.get(rules.OWNER) == owner)

    async def _require_empty(self, group: StoredGroup) -> None:
        counts = {number: group.names.queue(number) for number in range(group.topology.contract.queues)}
        remaining = await self._remaining({**counts, -1: group.names.dead}, group)
        dead = remaining.pop(-1, 0)
        if not remaining and not dead:
            return
        parts = [f"queue {number}: {count}" for number, count in remaining.items()]
        parts += [f"dead letters: {dead}"] if dead else []
        raise base.NotEmpty(f"stream {group.names.prefix!r} still holds messages ({', '.join(parts)})", remaining)

    async def _remaining(self, queues: dict[int, str], group: StoredGroup) -> dict[int, int]:
        """Count messages for certain. A passive declare counts what is ready now, but not what a link holds."""
        connection = Connection(self._address)
        await connection.open("admin")
        try:
            channel = await connection.channel()
            found: dict[int, int] = {}
            held = []
            for number, name in queues.items():
                answer = (await channel.call(channel.raw.queue_declare, queue=name, passive=True)).method
                found[number] = answer.message_count
                if answer.consumer_count:
                    held.append(number)
        except base.Missing:
            return {}  # half deleted already
        finally:
            await connection.close()
        if held:
            await asyncio.sleep(STALE)
            totals = await self._figures(group, "name,messages_ready,messages_unacknowledged", **_LIVE)
            for number in held:
                backlog = _state(number, totals.get(queues[number], {}), {}).backlog
                if backlog is None:
                    raise base.Unreachable(f"queue {queues[number]!r}: its count is unknown: try again in a moment")
                found[number] = max(found[number], backlog)
        return {number: count for number, count in found.items() if count}


def _outputs_of(group: StoredGroup, outputs: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    stem = group.names.output("")
    own = {
        name.removeprefix(stem): arguments.get(rules.PLACE, 0)
        for name, arguments in outputs.items()
        if name.startswith(stem) and arguments.get(rules.OWNER) == group.topology.owner
    }
    return tuple(sorted(own, key=lambda name: (own[name], name)))


def _state(number: int, totals: dict[str, Any], links: dict[str, Any]) -> base.QueueState:
    active = links.get("single_active_consumer_tag")
    return base.QueueState(
        number,
        ready=totals.get("messages_ready"),
        unacknowledged=totals.get("messages_unacknowledged"),
        links=links.get("consumers"),
        active=active if isinstance(active, str) and active else None,
    )


async def _peek(connection: Connection, queue: str, limit: int) -> list[Message]:
    channel = await connection.channel()
    found: list[Message] = []
    whole = asyncio.Event()
    there = (await channel.call(channel.raw.queue_declare, queue=queue, passive=True)).method.message_count
    count = min(limit, there)
    if count < 1:
        return found

    def take(_: object, __: object, properties: Any, body: bytes) -> None:
        if len(found) < count:
            found.append(messages.from_properties(properties, body))
        if len(found) == count:
            whole.set()

    await channel.call(channel.raw.basic_qos, prefetch_count=min(count, MAX_PREFETCH))
    await channel.call(channel.raw.basic_consume, queue=queue, on_message_callback=take)
    # Another reader may hold some of them; then those that came are the answer.
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(whole.wait(), STALE)
    return found


async def _all(calls: Iterable[Awaitable[object]]) -> None:
    """Run calls together; the client bounds how many are under way."""
    await asyncio.gather(*calls)
