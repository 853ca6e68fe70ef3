"""The control-plane operations of the embedded broker: declare, delete, find, list, observe, dead letters.

Rules of ownership and conflict are in `catalog`; here they are applied to the engine and written down. Declarations and
deletions are answered once they are durable.
"""

from __future__ import annotations

from lbg.brokers import base
from lbg.brokers.embedded import catalog, protocol, queues, store
from lbg.brokers.embedded.catalog import DEAD_LETTERS, Group, HostedQueue, Log
from lbg.brokers.embedded.engine import Client, Engine
from lbg.brokers.embedded.protocol import Frame, Op


class Administration:
    """Handlers around one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.register(
            {
                Op.DECLARE: self.declare,
                Op.DELETE: self.delete,
                Op.FIND: self.find,
                Op.LIST: self.list,
                Op.OBSERVE: self.observe,
                Op.DEAD_LETTERS: self.dead_letters,
            }
        )

    def declare(self, client: Client, frame: Frame) -> None:
        """Create or extend a group, or refuse with every conflict.

        The answer waits for the commit also where nothing changes: an equal declaration may still be on its way there.
        """
        _, request, values = frame
        topology = protocol.topology_from_mapping(values)
        known = self._engine.catalog
        merged = known.merged(topology)
        group = known.owned(merged.contract.prefix, merged.owner)
        if group is None:
            self._create(merged)
        elif group.topology != merged:
            known.update(group, merged)
            self._add_logs(group)
            self._write_group(group)
        self._engine.answer(client, [Op.REPLY, request, None])

    def _create(self, topology: base.Topology) -> None:
        engine = self._engine
        group = Group(engine.next_id(), topology)
        for number in range(topology.contract.queues):
            machine = queues.ExclusiveQueue(engine.ability, limit=topology.size_limit)
            queue = HostedQueue(engine.next_id(), number, machine, ledger_loaded=True)
            engine.adopt(group, queue)
            engine.touch(queue)
        self._add_logs(group)
        engine.catalog.add(group)
        self._write_group(group)

    def _add_logs(self, group: Group) -> None:
        for name in (DEAD_LETTERS, *group.topology.outputs):
            if name not in group.logs:
                log = group.logs[name] = Log(self._engine.next_id(), name)
                self._engine.writes.logs.append(store.LogRow(log.id, group.id, name))

    def _write_group(self, group: Group) -> None:
        values = protocol.topology_to_mapping(group.topology)
        self._engine.writes.groups.append(store.GroupRow(group.id, group.prefix, group.topology.owner, values))

    def delete(self, client: Client, frame: Frame) -> None:
        """Delete a group with all it holds; its links and followers learn that they have ended."""
        _, request, prefix, owner, only_if_empty = frame
        group = self._engine.catalog.deletable(prefix, owner, only_if_empty=only_if_empty)
        if group is not None:
            self._drop(group)
        self._engine.answer(client, [Op.REPLY, request, None])

    def _drop(self, group: Group) -> None:
        # Links first: ending one looks its queue up, and gives back what will be deleted with the queue.
        engine = self._engine
        reason = f"stream {group.prefix!r} was deleted by {group.topology.owner}"
        for queue in group.queues:
            for link in tuple(queue.machine.links):
                client, link_id = engine.served[link]
                engine.end_link(client.links.pop(link_id))
                client.send([Op.LOST, link_id, reason])
            engine.disown(queue)
        for log in group.logs.values():
            for follower in engine.followers.pop(log, ()):
                del follower.client.followers[follower.id]
                follower.client.send([Op.ENDED, follower.id, reason])
        engine.catalog.remove(group)
        engine.writes.dropped.append((group.id, [q.id for q in group.queues], [log.id for log in group.logs.values()]))

    def find(self, client: Client, frame: Frame) -> None:
        """Answer with the topology of a stream or None; of several groups, the owner's or the first one's."""
        _, request, prefix = frame
        try:
            group = self._engine.catalog.group(prefix, client.owner)
        except base.Missing:
            client.reply(request)
        else:
            client.reply(request, protocol.topology_to_mapping(group.topology))

    def list(self, client: Client, frame: Frame) -> None:
        """Answer with every topology."""
        groups = self._engine.catalog.groups()
        client.reply(frame[1], [protocol.topology_to_mapping(group.topology) for group in groups])

    def observe(self, client: Client, frame: Frame) -> None:
        """Answer with the figures of every queue of a group.

        Exact at this moment: what is published counts from its commit on, what is acknowledged from its arrival on.
        """
        _, request, prefix = frame
        client.reply(request, [_state(queue) for queue in self._engine.catalog.group(prefix, client.owner).queues])

    def dead_letters(self, client: Client, frame: Frame) -> None:
        """Answer with the oldest dead letters, as many as one frame may carry."""
        _, request, prefix, limit = frame
        log = self._engine.catalog.group(prefix, client.owner).logs[DEAD_LETTERS]
        stop = min(limit, log.committed)
        letters: list[bytes] = []
        size = 0
        while len(letters) < stop and size < protocol.MAX_FRAME // 2:
            letters += (data for _, data in self._engine.store.records(log.id, len(letters), stop))
            size = sum(map(len, letters))
        client.reply(request, letters)


def _state(queue: catalog.HostedQueue) -> list[object]:
    machine = queue.machine
    active = machine.active.name if machine.active else None
    ready = machine.backlog - machine.unacknowledged
    return [queue.number, ready, machine.unacknowledged, len(machine.links), active, machine.published]
