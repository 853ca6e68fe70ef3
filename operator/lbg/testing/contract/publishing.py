"""Contract of publishing: confirms, order, routes, contents, loss."""

from __future__ import annotations

from typing import Final

import pytest

from lbg.brokers import base
from lbg.core import wire
from lbg.core.wire import Message
from lbg.testing.contract.scene import Scene, story

_ALL_KINDS: Final[dict[str, wire.HeaderValue]] = {
    "text": "Žluťoučký ☂",
    "count": 2**53,
    "negative": -1,
    "share": 0.1,
    "yes": True,
    "no": False,
    "bytes": bytes(range(256)),
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}

MESSAGES: Final = {
    "empty body": Message(b""),
    "binary body": Message(bytes(range(256))),
    "body of 1 MB": Message(bytes(1_000_000)),
    "headers of every kind": Message(b"x", _ALL_KINDS, "id", "application/json"),
    "unicode key": wire.stamped(Message(b"x"), "clé ☂", wire.Identity("prodúcer", 2**41, 0, 0), 2**41),
    "foreign and unsequenced": Message(b"x", {"partitionkey": "k", "other": 1}, "uuid", "text/plain"),
    "headers half there": Message(b"x", {wire.KEY: "k", wire.SEQUENCE: 7}),
}


class Publishing:
    """What ACCEPTED means, and what passes through."""

    @story
    async def test_an_accepted_message_is_in_its_queue(self, scene: Scene) -> None:
        """Routes shard s to queue s mod queues, one copy, and says ACCEPTED only then."""
        topology = await scene.declare()
        publisher = (await scene.session()).publisher()
        queues = topology.contract.queues
        shards = range(topology.contract.count)
        outcomes = await publisher.submit(
            [base.Outgoing(base.ToShard(scene.prefix, shard), Message(b"x")) for shard in shards]
        )
        assert outcomes == (base.Outcome.ACCEPTED,) * len(shards)
        assert [await scene.count(queue) for queue in range(queues)] == [len(shards) // queues] * queues

    @story
    async def test_batches_in_flight_keep_the_order_of_submission(self, scene: Scene) -> None:
        """Delivers in the order of submission per address, across many batches that were not awaited."""
        await scene.declare()
        publisher = (await scene.session("publisher")).publisher()
        want = [f"{batch}.{at}" for batch in range(40) for at in range(25)]
        flights = [publisher.submit([scene.outgoing(f"{batch}.{at}") for at in range(25)]) for batch in range(40)]
        for flight in flights:
            assert set(await flight) == {base.Outcome.ACCEPTED}
        taker = await scene.bind(acks=True)
        assert await taker.until(len(want)) == want

    @story
    async def test_an_empty_batch_has_no_outcomes(self, scene: Scene) -> None:
        """Resolves at once with nothing."""
        assert await (await scene.session()).publisher().submit([]) == ()

    @pytest.mark.parametrize("label", MESSAGES)
    @story
    async def test_a_message_passes_through_untouched(self, scene: Scene, label: str) -> None:
        """Delivers body, headers with their types, message id and content type as they were published."""
        await scene.declare()
        message = MESSAGES[label]
        publisher = (await scene.session("publisher")).publisher()
        outcomes = await publisher.submit([base.Outgoing(base.ToShard(scene.prefix, 0), message)])
        assert outcomes == (base.Outcome.ACCEPTED,)
        taker = await scene.bind()
        await taker.until(1)
        got = taker.deliveries[0].message
        assert got == message
        # True == 1 in Python, and a header `true` is no sequence.
        assert {name: type(value) for name, value in got.headers.items()} == {
            name: type(value) for name, value in message.headers.items()
        }
        assert got.identity == message.identity

    @story
    async def test_an_address_that_leads_nowhere_is_unroutable(self, scene: Scene) -> None:
        """Says so for a stream, a shard or an output that does not exist, and accepts what stands beside it."""
        await scene.declare()
        publisher = (await scene.session()).publisher()
        addresses: list[base.Address] = [
            base.ToShard(scene.prefix, 0),
            base.ToShard(scene.prefix + "-absent", 0),
            base.ToShard(scene.prefix, 10_000),
            base.ToOutput(scene.prefix, "absent"),
            base.ToDeadLetters(scene.prefix + "-absent"),
            base.ToShard(scene.prefix, 1),
        ]
        outcomes = await publisher.submit([base.Outgoing(address, Message(b"x")) for address in addresses])
        assert outcomes == (
            base.Outcome.ACCEPTED,
            *[base.Outcome.UNROUTABLE] * 4,
            base.Outcome.ACCEPTED,
        )

    @story
    async def test_dead_letters_are_read_without_being_taken(self, scene: Scene) -> None:
        """Returns the oldest first, up to the limit, again and again."""
        await scene.declare()
        publisher = (await scene.session()).publisher()
        address = base.ToDeadLetters(scene.prefix)
        letters = [Message(body.encode(), {"reason": "poison"}) for body in "abc"]
        outcomes = await publisher.submit([base.Outgoing(address, letter) for letter in letters])
        assert outcomes == (base.Outcome.ACCEPTED,) * 3
        for _ in range(2):
            assert await scene.admin.dead_letters(scene.prefix, limit=2) == tuple(letters[:2])
        assert await scene.admin.dead_letters(scene.prefix) == tuple(letters)

    @story
    async def test_what_was_not_answered_before_the_loss_is_unknown(self, scene: Scene) -> None:
        """Resolves open and later submissions with UNKNOWN, never with an error, and keeps what was accepted."""
        await scene.declare()
        session = await scene.session()
        publisher = session.publisher()
        assert await publisher.submit([scene.outgoing("a")]) == (base.Outcome.ACCEPTED,)
        flight = publisher.submit([scene.outgoing("b"), scene.outgoing("c")])
        await scene.broker.cut(session)
        await session.lost
        assert set(await flight) <= {base.Outcome.UNKNOWN, base.Outcome.ACCEPTED}
        assert await publisher.submit([scene.outgoing("d")]) == (base.Outcome.UNKNOWN,)
        assert await scene.count() in (1, 3)
