"""The server around the engine, in this process: clients that do not read, and its own end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lbg.brokers import base
from lbg.brokers.base import HandoverAbility
from lbg.brokers.embedded import protocol, server
from lbg.brokers.embedded.protocol import Frame, Op
from lbg.brokers.embedded.store import Store
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm

HANG_LIMIT = 60.0

TOPOLOGY = base.Topology(Contract("p", 4, Algorithm.XXH64, 1), "tests", outputs=("out",))


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[server.Server]:
    """Serve a socket in the folder."""
    store = Store(folder / "store.db")
    running = server.Server(store, HandoverAbility.COOPERATIVE)
    await running.listen_unix(str(folder / "socket"))
    try:
        yield running
    finally:
        await running.stop()
        store.close()


class RawClient:
    """A client that reads only when it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = protocol.FrameReader()
        self.unread: list[Frame] = []

    @classmethod
    async def connect(cls, folder: Path) -> RawClient:
        client = cls(*await asyncio.open_unix_connection(str(folder / "socket"), limit=1024))
        client.send(Op.HELLO, 1, protocol.VERSION, "raw", None)
        await client.read(Op.REPLY)
        return client

    def send(self, *frame: Any) -> None:
        self.writer.write(protocol.encode(list(frame)))

    async def read(self, *ops: Op) -> Frame:
        """Read on to the next frame of these kinds, and drop what comes before it."""
        while True:
            while self.unread:
                frame = self.unread.pop(0)
                if frame[0] in ops:
                    return frame
            self.unread += self.frames.feed(await self.reader.read(65_536))

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def _publish(client: RawClient, kind: int, rest: object, count: int, size: int) -> None:
    for number in range(count):
        fresh = [[kind, kind, "p", rest]] if not number else []
        client.send(Op.PUBLISH, number + 1, 1, fresh, [kind], [bytes(size)])
        assert (await client.read(Op.OUTCOMES))[2] is None


def test_a_client_that_does_not_read_is_sent_no_more_than_a_bound(folder: Path) -> None:
    """Keeps a large window and a long output out of memory until the client reads, and then sends all of it."""

    async def main() -> None:
        async with serving(folder) as running:
            publisher, lazy = [await RawClient.connect(folder) for _ in range(2)]
            publisher.send(Op.DECLARE, 2, protocol.topology_to_mapping(TOPOLOGY))
            await publisher.read(Op.REPLY)
            await _publish(publisher, protocol.TO_SHARD, 0, 60, 500_000)
            await _publish(publisher, protocol.TO_OUTPUT, "out", 60, 500_000)
            lazy.send(Op.BIND, 2, 1, "p", 0, "lazy", 100, 0)
            lazy.send(Op.FOLLOW, 3, 2, "p", "out", 0, 1_000)
            while not any(peer.client.is_congested for peer in running.peers):
                publisher.send(Op.LIST, 9)
                await publisher.read(Op.REPLY)
            waiting = sum(_unsent(peer) for peer in running.peers)
            assert waiting < 3 * server.UNSENT_LIMIT
            delivered = recorded = 0
            while delivered < 60 or recorded < 60:
                frame = await lazy.read(Op.DELIVER, Op.RECORDS)
                if frame[0] == Op.DELIVER:
                    delivered += len(frame[4])
                else:
                    recorded += len(frame[3])
            await publisher.close()
            await lazy.close()

    asyncio.run(asyncio.wait_for(main(), HANG_LIMIT))


def test_a_stop_answers_what_was_taken(folder: Path) -> None:
    """Confirms, before it hangs up, every message that had arrived."""

    async def main() -> None:
        async with serving(folder) as running:
            client = await RawClient.connect(folder)
            client.send(Op.DECLARE, 2, protocol.topology_to_mapping(TOPOLOGY))
            await client.read(Op.REPLY)
            client.send(Op.PUBLISH, 1, 1, [[0, protocol.TO_SHARD, "p", 0]], [0], [b"x"])
            while not _admitted(running):  # noqa: ASYNC110  # nothing announces it before the commit
                await asyncio.sleep(0)
            await running.stop()
            assert (await client.read(Op.OUTCOMES))[2] is None
            await client.close()

    asyncio.run(asyncio.wait_for(main(), HANG_LIMIT))


def _unsent(peer: server.Peer) -> int:
    assert peer._transport is not None
    return peer._transport.get_write_buffer_size()


def _admitted(running: server.Server) -> int:
    return sum(queue.machine.admitted for group in running.engine.catalog.groups() for queue in group.queues)
