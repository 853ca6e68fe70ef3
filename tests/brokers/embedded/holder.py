"""A consumer process for tests to kill, stop and resume: binds one queue, keeps what it gets, says so line by line.

    python holder.py URL PREFIX QUEUE WINDOW [ack]

Lines: `got BODY` for each delivery, `lost REASON` at the end. With `ack`, each delivery is acknowledged at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from lbg.brokers import base, registry


class Telling:
    """A listener that prints."""

    def __init__(self, *, acks: bool) -> None:
        self.acks = acks
        self.link: base.Link | None = None

    def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
        for delivery in deliveries:
            print("got", delivery.message.body.decode(), flush=True)
        if self.acks:
            assert self.link is not None, "delivered before bind returned"
            self.link.ack([delivery.tag for delivery in deliveries])

    def on_lost(self, reason: str) -> None:
        print("lost", reason, flush=True)


async def main(url: str, prefix: str, queue: str, window: str, *options: str) -> None:
    session = await registry.adapter(url).open_session(url, name="holder")
    listener = Telling(acks="ack" in options)
    listener.link = await session.bind(prefix, int(queue), name="holder", window=int(window), listener=listener)
    await session.lost


asyncio.run(main(*sys.argv[1:]))
