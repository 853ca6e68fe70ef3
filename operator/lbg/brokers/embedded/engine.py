"""The heart of the embedded broker: operations of clients in, frames to clients and one write batch at a time out.

No sockets, threads or clocks: the server calls `handle` for each frame, `settle` after a burst of them, and drives the
commit cycle.

Theory of operation
-------------------
Operations take effect in memory when they arrive, in order. What they change on disk is collected; what a client could
rely on later waits for it::

    handle: publish   positions are given out        -> rows, outcomes        (collected)
            ack       the window opens, space frees  -> deletions, counters   (collected)
            release   the next link is active        -> answer                (collected)
    seal:   everything collected becomes one transaction; collecting starts anew
    committed: published messages become deliverable, outcomes and answers leave

Only one transaction is under way, so transactions are durable in the order of the operations in them. That is why an
answer stands for everything that came before it on any connection.

An acknowledgement takes effect before it is durable. If the broker dies in between, the message comes back, and all
that were delivered after it come back behind it: a suffix is repeated, in order, which is what a crash may do. If a
commit *fails*, memory is ahead of the store and the only safe thing is to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lbg.brokers import base
from lbg.brokers.embedded import catalog, protocol, queues, store
from lbg.brokers.embedded.catalog import HostedQueue, Log
from lbg.brokers.embedded.protocol import Frame, Op
from lbg.brokers.embedded.queues import BoundLink, Entry

ACCEPTED: Final = protocol.OUTCOME_CODES[base.Outcome.ACCEPTED]
FULL: Final = protocol.OUTCOME_CODES[base.Outcome.FULL]


class Binding(NamedTuple):
    """A link and the queue it is bound to, as its client knows them."""

    queue: HostedQueue
    link: BoundLink


@dataclass(slots=True, eq=False)
class Follower:
    """One reader of a log: where it is, and how many pages it may be sent before it asks for more."""

    client: Client
    id: int
    log: Log
    next: int
    credit: int


@dataclass(slots=True, eq=False)
class Client:
    """One connection as the engine sees it."""

    send: Callable[[Frame], None]
    name: str = ""
    owner: str | None = None
    is_congested: bool = False  # it does not read what it was sent: nothing new until it has
    addresses: dict[int, protocol.AddressKey] = field(default_factory=dict)
    blocked: set[tuple[int, int]] = field(default_factory=set)  # (publisher, address id) after a refusal
    links: dict[int, Binding] = field(default_factory=dict)
    followers: dict[int, Follower] = field(default_factory=dict)
    # The numbers that are keys here are the client's own: it never waits for the broker to name something.

    def reply(self, request: int, value: object = None) -> None:
        """Answer a request now."""
        self.send([Op.REPLY, request, value])


@dataclass(slots=True)
class Sealed:
    """One transaction on its way, and what happens once it is durable.

    `writes` is None when answers have only waited for an earlier transaction; nothing is to be written then.
    """

    writes: store.WriteBatch | None
    appended: dict[HostedQueue, list[Entry]]
    recorded: dict[Log, list[Entry]]
    announced: list[tuple[HostedQueue, int]]
    answers: list[tuple[Client, Frame]]


class Engine:
    """Everything the broker knows. See the module for the cycle that drives it."""

    def __init__(self, opened: store.Store, ability: base.HandoverAbility) -> None:
        self.store = opened
        self.ability = ability
        self.catalog = catalog.Catalog()
        self.served: dict[BoundLink, tuple[Client, int]] = {}
        self.followers: dict[Log, list[Follower]] = {}
        self.writes = store.WriteBatch()
        self._appended: dict[HostedQueue, list[Entry]] = {}
        self._recorded: dict[Log, list[Entry]] = {}
        self._touched: dict[HostedQueue, None] = {}  # their rows are written with the next transaction
        self._answers: list[tuple[Client, Frame]] = []
        self._hot: dict[HostedQueue, None] = {}  # queues whose deliveries may have changed
        self._groups: dict[HostedQueue, int] = {}  # id of the group; a queue that is not in here was deleted
        self._last_id = 0
        self._handlers: dict[int, Callable[[Client, Frame], None]] = {}
        self._load()

    def register(self, handlers: Mapping[Op, Callable[[Client, Frame], None]]) -> None:
        """Add handlers of operations."""
        self._handlers.update({int(op): handler for op, handler in handlers.items()})

    def _load(self) -> None:
        contents = self.store.contents()
        try:
            groups = {
                row.id: catalog.Group(row.id, protocol.topology_from_mapping(row.topology)) for row in contents.groups
            }
            for queue in contents.queues:
                self._load_queue(groups[queue.group], queue)
            for log in contents.logs:
                groups[log.group].logs[log.name] = Log(log.id, log.name, log.records, log.records)
            for group in groups.values():
                group.require_whole()
                self.catalog.add(group)
        except (ValueError, KeyError) as error:
            raise self.store.damaged(f"holds a group that this program cannot read: {error}") from None
        ids = (row.id for rows in (contents.groups, contents.queues, contents.logs) for row in rows)
        self._last_id = max(ids, default=0)

    def _load_queue(self, group: catalog.Group, row: store.QueueRow) -> None:
        machine = queues.ExclusiveQueue(
            self.ability,
            limit=group.topology.size_limit,
            published=row.published,
            acked=row.acked,
            announced=row.announced,
        )
        self.adopt(group, HostedQueue(row.id, row.number, machine))

    def adopt(self, group: catalog.Group, queue: HostedQueue) -> None:
        """Add a queue to its group."""
        group.queues.append(queue)
        self._groups[queue] = group.id

    def disown(self, queue: HostedQueue) -> None:
        """Forget a deleted queue, and what was about to be written for it: its rows go with the same transaction."""
        del self._groups[queue]
        for changes in (self._touched, self._hot, self._appended):
            changes.pop(queue, None)

    def next_id(self) -> int:
        """Return a fresh id for a group, queue or log."""
        self._last_id += 1
        return self._last_id

    # What arrives.

    def handle(self, client: Client, frame: Frame) -> None:
        """Take one operation. Broker errors go back to the client as an answer.

        Raises:
            StoreDamaged: the store failed and the broker must stop.
            Exception: of any kind for a malformed frame; the connection must be closed.
        """
        handler = self._handlers[frame[0]]
        try:
            handler(client, frame)
        except base.StoreDamaged:
            raise
        except base.BrokerError as error:
            extra: Any = None
            if isinstance(error, base.Conflict):
                extra = error.names
            elif isinstance(error, base.NotEmpty):
                extra = list(error.remaining.items())
            client.send([Op.ERROR, frame[1], type(error).__name__, error.message, extra])

    def disconnect(self, client: Client) -> None:
        """End everything a client had; idempotent."""
        for binding in client.links.values():
            self.end_link(binding)
        client.links.clear()
        for follower in client.followers.values():
            self.followers[follower.log].remove(follower)
        client.followers.clear()

    def end_link(self, binding: Binding) -> None:
        """Unbind a link; what it held goes back in order, and the next link is active from here on."""
        self.served.pop(binding.link, None)
        binding.queue.machine.unbind(binding.link)
        self._hot[binding.queue] = None

    # What changes.

    def append(self, route: catalog.Route, data: bytes) -> int:
        """Admit a message on its route, and return the outcome code: accepted (once committed) or full.

        A stream of several groups admits to all of their queues or to none: a message that one group got and another
        did not could not be sent again without repeating it for the first.
        """
        if route.log is not None:
            log = route.log
            self._recorded.setdefault(log, []).append((log.submitted, data))
            log.submitted += 1
            return ACCEPTED
        if any(queue.machine.is_full for queue in route.queues):
            return FULL
        for queue in route.queues:
            entry = (queue.machine.admit(), data)
            # The usual case by far is a further message for a queue of this batch.
            try:
                self._appended[queue].append(entry)
            except KeyError:
                self._appended[queue] = [entry]
        return ACCEPTED

    def acknowledge(self, binding: Binding, tags: list[int]) -> int:
        """Acknowledge what the link holds of these tags, and return how many that were."""
        positions = binding.queue.machine.ack(binding.link, tags)
        if positions:
            self.writes.acked.setdefault(binding.queue.id, []).extend(positions)
            self.touch(binding.queue)
        return len(positions)

    def look_at(self, queue: HostedQueue) -> None:
        """Have the deliveries of a queue looked at in the next `settle`."""
        self._hot[queue] = None

    def touch(self, queue: HostedQueue) -> None:
        """Have the row of a queue written with the next transaction, and its deliveries looked at."""
        self._touched[queue] = None
        self._hot[queue] = None

    def answer(self, client: Client, frame: Frame) -> None:
        """Send a frame once everything up to here is durable."""
        self._answers.append((client, frame))

    # What leaves.

    def settle(self) -> None:
        """Send every delivery that is due."""
        while self._hot:
            queue, _ = self._hot.popitem()
            self._deliver(queue)

    def _deliver(self, queue: HostedQueue) -> None:
        machine = queue.machine
        # In turns, since each may make the other possible: hand out what is in memory, fetch what is in the store.
        while not self._is_held_back(machine.active):
            push = machine.pump(protocol.FRAME_TARGET)
            if push is not None:
                client, link_id = self.served[push.link]
                blobs = [data for _, data in push.entries]
                client.send([Op.DELIVER, link_id, push.first_tag, push.redelivered, blobs])
                continue
            after = machine.missing()
            if after is None:
                break
            machine.load(*self.store.messages(queue.id, after, machine.published))
        if machine.wants_announcement:
            # The mark must be in the store before the messages leave; `committed` looks at this queue again.
            self._touched[queue] = None

    def _is_held_back(self, link: BoundLink | None) -> bool:
        return link is not None and self.served[link][0].is_congested

    def look_again(self, client: Client) -> None:
        """Go on with a client that was congested."""
        for binding in client.links.values():
            self.look_at(binding.queue)
        for follower in client.followers.values():
            self.feed(follower)

    def feed(self, follower: Follower) -> None:
        """Send a follower what it may have now.

        Always from the store, also what has just been committed: the page is in the cache of the operating system, and
        a follower that is behind and one that is not are the same case.
        """
        client = follower.client
        while follower.credit > 0 and follower.next < follower.log.committed and not client.is_congested:
            page = self.store.records(follower.log.id, follower.next, follower.log.committed)
            client.send([Op.RECORDS, follower.id, follower.next, [data for _, data in page]])
            follower.next += len(page)
            follower.credit -= 1

    # The commit cycle.

    def seal(self) -> Sealed | None:
        """Close the open write batch and return it, or None when there is nothing to do.

        The caller writes and commits it and then calls `committed`; only one may be on its way.
        """
        self._touched.update(dict.fromkeys(self._appended))
        announced: list[tuple[HostedQueue, int]] = []
        writes = self.writes
        for queue in self._touched:
            machine, group = queue.machine, self._groups[queue]
            machine.wants_announcement = False
            mark = machine.next_announcement()
            announced.append((queue, mark))
            # `admitted`, not `published`: whatever was admitted is in this transaction or in an earlier one.
            writes.queues.append(store.QueueRow(queue.id, group, queue.number, machine.admitted, machine.acked, mark))
        for queue, entries in self._appended.items():
            writes.messages[queue.id] = entries
        for log, records in self._recorded.items():
            writes.records[log.id] = records
        is_empty = not (self._touched or writes.records or writes.ledgers or writes.has_topology)
        if is_empty and not self._answers:
            return None
        sealed = Sealed(None if is_empty else writes, self._appended, self._recorded, announced, self._answers)
        self.writes = store.WriteBatch()
        self._appended, self._recorded, self._touched, self._answers = {}, {}, {}, []
        return sealed

    def committed(self, sealed: Sealed) -> None:
        """Let out what a transaction held back, now that it is durable (or held nothing)."""
        for queue, entries in sealed.appended.items():
            queue.machine.commit(entries)
            self._hot[queue] = None
        for queue, announced in sealed.announced:
            queue.machine.announced = announced
            self._hot[queue] = None
        for client, frame in sealed.answers:
            client.send(frame)
        for log, records in sealed.recorded.items():
            log.committed += len(records)
            for follower in self.followers.get(log, ()):
                self.feed(follower)
        self.settle()

    def retire(self) -> None:
        """Have exact marks written with the last transaction: nothing will be delivered after it."""
        for queue in self._groups:
            if queue.machine.announced > queue.machine.mark or queue.machine.active is not None:
                queue.machine.is_retired = True
                self.touch(queue)
