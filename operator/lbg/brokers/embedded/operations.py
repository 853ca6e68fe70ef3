"""The data-plane operations of the embedded broker: publish, bind, acknowledge, ledgers, following of outputs.

Each takes a client and a frame as `protocol.Op` lays it out, changes the engine, and answers at once, or after the
commit where the contract promises durability. What they may raise to the client are broker errors; anything else means
that the frame was malformed.
"""

from __future__ import annotations

from typing import Final

from lbg.brokers import base
from lbg.brokers.embedded import protocol, queues
from lbg.brokers.embedded.catalog import DEAD_LETTERS
from lbg.brokers.embedded.engine import ACCEPTED, Binding, Client, Engine, Follower
from lbg.brokers.embedded.protocol import Frame, Op

_BLOCKED: Final = protocol.OUTCOME_CODES[base.Outcome.BLOCKED]
_UNROUTABLE: Final = protocol.OUTCOME_CODES[base.Outcome.UNROUTABLE]
_REFUSED: Final = protocol.OUTCOME_CODES[base.Outcome.REFUSED]


class Operations:
    """Handlers around one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.register(
            {
                Op.PUBLISH: self.publish,
                Op.RESUME: self.resume,
                Op.BIND: self.bind,
                Op.ACK: self.ack,
                Op.ACK_PUBLISH: self.ack_and_publish,
                Op.RELEASE: self.release,
                Op.READ_LEDGER: self.read_ledger,
                Op.WRITE_LEDGER: self.write_ledger,
                Op.FOLLOW: self.follow,
                Op.CREDIT: self.credit,
                Op.UNFOLLOW: self.unfollow,
            }
        )

    # Publishing.

    def publish(self, client: Client, frame: Frame) -> None:
        """Admit a batch of messages in order; the outcomes leave after the commit.

        Refusals are decided here, on what is admitted so far, so that the order of outcomes is the order of arrival.
        """
        _, batch, publisher, fresh, ids, blobs = frame
        for address_id, kind, prefix, rest in fresh:
            client.addresses[address_id] = (kind, prefix, rest)
        codes = [
            self._submit(client, (publisher, address_id), data) for address_id, data in zip(ids, blobs, strict=True)
        ]
        # Almost every batch is accepted as a whole, and then says so in one word.
        self._engine.answer(client, [Op.OUTCOMES, batch, codes if any(codes) else None])

    def _submit(self, client: Client, lane: tuple[int, int], data: bytes | None) -> int:
        if lane in client.blocked:
            return _BLOCKED
        route = self._engine.catalog.route(client.addresses[lane[1]], client.owner)
        if data is None or len(data) > protocol.MAX_MESSAGE:
            code = _REFUSED
        elif route is None:
            code = _UNROUTABLE
        else:
            code = self._engine.append(route, data)
        if code != ACCEPTED:
            # Whatever the reason, a later message must not overtake the refused one.
            client.blocked.add(lane)
        return code

    def resume(self, client: Client, frame: Frame) -> None:
        """Lift the block on an address of a publisher."""
        _, publisher, address_id = frame
        client.blocked.discard((publisher, address_id))

    # Links.

    def bind(self, client: Client, frame: Frame) -> None:
        """Bind a link; the answer leaves before its first delivery.

        It rests on no transaction: links are not stored, and a restart of the broker ends them all.
        """
        _, request, link_id, prefix, number, name, window, priority = frame
        group = self._engine.catalog.group(prefix, client.owner)
        if not 0 <= number < len(group.queues):
            raise base.Missing(f"stream {prefix!r} has queues 0 to {len(group.queues) - 1}, and no queue {number}")
        queue = group.queues[number]
        if any(binding.queue is queue for binding in client.links.values()):
            raise base.BindRefused(f"queue {number} of {prefix!r}: this session is bound to it already")
        if not queue.machine.can_bind():
            holder = queue.machine.links[0].name
            raise base.BindRefused(f"queue {number} of {prefix!r} is held by {holder}: bind again when it has let go")
        link = queues.BoundLink(name, window, priority)
        client.links[link_id] = Binding(queue, link)
        self._engine.served[link] = (client, link_id)
        queue.machine.bind(link)
        client.reply(request)
        self._engine.look_at(queue)

    def ack(self, client: Client, frame: Frame) -> None:
        """Acknowledge. No effect for a link that has ended meanwhile: what it held belongs to another by now."""
        binding = client.links.get(frame[1])
        if binding is not None:
            self._engine.acknowledge(binding, frame[2])

    def ack_and_publish(self, client: Client, frame: Frame) -> None:
        """Acknowledge one delivery and append one message, in the same transaction or not at all."""
        _, request, link_id, tag, kind, prefix, rest, data = frame
        binding = self._binding(client, link_id)
        if tag not in binding.link.held:
            raise base.LinkLost(f"delivery {tag} is not held by this link any more")
        route = self._engine.catalog.route((kind, prefix, rest), client.owner)
        if route is None:
            raise base.Missing(f"nothing of stream {prefix!r} takes messages for {rest!r}: declare it first")
        # The append may still be refused and the acknowledgement cannot, so this order needs no undoing.
        if self._engine.append(route, data) != ACCEPTED:
            raise base.Refused(f"the queue behind {prefix!r} {rest!r} is at its size limit: the event stays held")
        self._engine.acknowledge(binding, [tag])
        self._engine.answer(client, [Op.REPLY, request, None])

    def release(self, client: Client, frame: Frame) -> None:
        """End a link; the answer leaves when what it acknowledged is durable."""
        _, request, link_id = frame
        binding = client.links.pop(link_id, None)
        if binding is not None:
            self._engine.end_link(binding)
        self._engine.answer(client, [Op.REPLY, request, None])

    # Ledgers.

    def read_ledger(self, client: Client, frame: Frame) -> None:
        """Answer with the ledger of the link's queue.

        It may be one whose write is still under way. If that fails, the broker stops, and with it this link.
        """
        _, request, link_id = frame
        binding = self._active(client, link_id)
        entry = self._ledger(binding)
        client.reply(request, None if entry is None else [entry.epoch, entry.version, entry.data])

    def write_ledger(self, client: Client, frame: Frame) -> None:
        """Replace the ledger of the link's queue, if the entry is newer and the link still active.

        Two fences, for two kinds of former owner: one whose link has ended is stopped by the link, one that came back
        under a new link with an old state is stopped by (epoch, version).
        """
        _, request, link_id, epoch, version, data = frame
        binding = self._active(client, link_id)
        stored = self._ledger(binding)
        if stored is not None and (epoch, version) <= (stored.epoch, stored.version):
            raise base.LinkLost(
                f"ledger of queue {binding.queue.number} is at epoch {stored.epoch} version {stored.version} already: "
                f"epoch {epoch} version {version} comes from a former owner"
            )
        binding.queue.ledger = base.LedgerEntry(epoch, version, data)
        self._engine.writes.ledgers[binding.queue.id] = binding.queue.ledger
        self._engine.answer(client, [Op.REPLY, request, None])

    def _ledger(self, binding: Binding) -> base.LedgerEntry | None:
        queue = binding.queue
        if not queue.ledger_loaded:
            queue.ledger = self._engine.store.ledger(queue.id)
            queue.ledger_loaded = True
        return queue.ledger

    def _binding(self, client: Client, link_id: int) -> Binding:
        binding = client.links.get(link_id)
        if binding is None:
            raise base.LinkLost("the link has ended: its queue was deleted")
        return binding

    def _active(self, client: Client, link_id: int) -> Binding:
        binding = self._binding(client, link_id)
        if binding.queue.machine.active is not binding.link:
            raise base.LinkLost(f"the link is not active on queue {binding.queue.number}: another one owns it")
        # On other brokers the first delivery is the only sign of ownership: what reads earlier here fails there.
        if not binding.link.last_tag:
            raise base.LinkLost(
                f"the link has had no delivery of queue {binding.queue.number}: it is not its owner yet"
            )
        return binding

    # Outputs.

    def follow(self, client: Client, frame: Frame) -> None:
        """Start to send an output from an offset on, as credit allows."""
        _, request, follower_id, prefix, name, start, credit = frame
        route = self._engine.catalog.route((protocol.TO_OUTPUT, prefix, name), client.owner)
        if route is None or route.log is None or name == DEAD_LETTERS:
            raise base.Missing(f"stream {prefix!r} has no output {name!r}: declare it first")
        follower = Follower(client, follower_id, route.log, start, credit)
        client.followers[follower_id] = follower
        self._engine.followers.setdefault(route.log, []).append(follower)
        client.reply(request)
        self._engine.feed(follower)

    def credit(self, client: Client, frame: Frame) -> None:
        """Allow a follower more records."""
        follower = client.followers.get(frame[1])
        if follower is not None:
            follower.credit += frame[2]
            self._engine.feed(follower)

    def unfollow(self, client: Client, frame: Frame) -> None:
        """Stop sending to a follower."""
        follower = client.followers.pop(frame[1], None)
        if follower is not None:
            self._engine.followers[follower.log].remove(follower)
