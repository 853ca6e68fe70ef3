"""RabbitMQ for the tests: one private node for all of them, and a back door that does not lead through the adapter."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import socket
import urllib.request
from collections.abc import Iterator
from typing import cast

import pika
import pytest

from lbg.brokers import base
from lbg.brokers.rabbitmq import administration, client, urls
from lbg.testing import contract
from tests.brokers.rabbitmq import node as nodes

if not os.environ.get("LBG_TEST_RABBITMQ"):
    # The adapter is being built and cannot be chosen by URL yet; `make test-rabbitmq` installs a node and runs these.
    collect_ignore_glob = ["test_*.py"]

FRESH = 0.6  # seconds: more than two of the intervals in which the test node reports figures of quorum queues


class Tapping(administration.RabbitAdmin):
    """An admin that, for the back door's sake, gives every ledger's copies to a second queue as well."""

    tap: RabbitUnderTest

    async def declare(self, topology: base.Topology) -> None:
        await super().declare(topology)
        self.tap.add(topology)


class TappedAdapter(client.RabbitAdapter):
    """Opens admins that tap."""

    def __init__(self, tap: RabbitUnderTest) -> None:
        self._tap = tap

    async def open_admin(self, url: str) -> Tapping:
        admin = Tapping(urls.parse(url))
        admin.tap = self._tap
        await admin.open()
        return admin


class RabbitUnderTest(contract.BrokerUnderTest):
    """The node, one type of queue, and blocking AMQP as the back door."""

    def __init__(self, node: nodes.Node, queue_type: str) -> None:
        self.node = node
        self.url = node.url
        self.queue_type = queue_type
        self.adapter = TappedAdapter(self)

    def _connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.node.amqp))

    def add(self, topology: base.Topology) -> None:
        prefix = topology.contract.prefix
        if topology.join:
            return
        with self._connect() as connection:
            channel = connection.channel()
            for number in range(4):  # tests use the ledgers of the first queues only
                tap = f"tap/{prefix}/{number}"
                channel.queue_declare(tap, durable=True, arguments={"x-expires": 120_000})
                channel.queue_bind(tap, f"{prefix}:group", f"ledger:{number}")

    async def count_messages(self, prefix: str, queue: int) -> int:
        name = f"{prefix}:q{queue}"
        with self._connect() as connection:
            method = connection.channel().queue_declare(name, passive=True).method
        if method.consumer_count == 0:
            return int(method.message_count)
        # Only statistics know what a consumer holds.
        await asyncio.sleep(FRESH)
        return await asyncio.to_thread(self._count_by_statistics, name)

    def _count_by_statistics(self, name: str) -> int:
        asked = "disable_stats=true&enable_queue_totals=true"
        where = f"http://127.0.0.1:{self.node.http}/api/queues/%2F?{asked}"
        request = urllib.request.Request(where)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        with urllib.request.urlopen(request) as answer:
            return int(next(queue["messages"] for queue in json.load(answer) if queue["name"] == name))

    async def ledger(self, prefix: str, queue: int) -> bytes | None:
        copies: dict[tuple[int, int], bytes] = {}
        with self._connect() as connection:
            channel = connection.channel()  # what it gets goes back when it closes
            while True:
                method, properties, body = channel.basic_get(f"tap/{prefix}/{queue}")
                if method is None:
                    return copies[max(copies)] if copies else None
                if "lbg-ledger-epoch" in properties.headers:
                    at = (properties.headers["lbg-ledger-epoch"], properties.headers["lbg-ledger-version"])
                    copies.setdefault(at, body)

    async def count_records(self, prefix: str, output: str) -> int:
        # Its statistics are late, so read it until nothing comes.
        with self._connect() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1_000)
            records = channel.consume(
                f"{prefix}:out:{output}", arguments={"x-stream-offset": "first"}, inactivity_timeout=FRESH
            )
            return sum(1 for _ in itertools.takewhile(lambda record: record[0] is not None, records))

    async def cut(self, session: base.Session) -> None:
        # The adapter's own loop must not get a chance to say goodbye; pika's abort would wait for a turn of it.
        raw = cast("client.RabbitSession", session).connection.raw
        raw._transport._sock.shutdown(socket.SHUT_RDWR)

    async def restart(self) -> None:
        self.node.kill()
        self.node.start()


@pytest.fixture(scope="session")
def node() -> Iterator[nodes.Node]:
    """Start the node; the tests of this folder share it."""
    node = nodes.Node()
    try:
        yield node
    finally:
        node.stop()
