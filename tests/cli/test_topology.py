"""`lbg create`, `list` and `delete` against a broker: what is in use is refused and named, what is gone is gone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lbg.brokers import base, registry
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.wire import Message

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

GROUP = """\
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {name: orders}
spec:
  hashing: {count: 64}
  queues: {count: 3, sizeLimit: 100}
  consumers: {handler: {republish: {to: out}}}
"""


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """A good group in a file."""
    file = tmp_path / "orders.yaml"
    file.write_text(GROUP)
    return file


async def declared_elsewhere(url: str, prefix: str) -> None:
    """Have somebody else own a stream."""
    admin = await registry.adapter(url).open_admin(url)
    await admin.declare(base.Topology(Contract(prefix, 8, Algorithm.XXH64, 2), "uid-1/shop/orders"))
    await admin.close()


async def published(url: str, prefix: str) -> None:
    """Put one event into the stream."""
    session = await registry.adapter(url).open_session(url, name="test")
    message = Message(b"x", {"lbg-key": "a", "lbg-shard": 0}, None, None)
    (outcome,) = await session.publisher().submit([base.Outgoing(base.ToShard(prefix, 0), message)])
    assert outcome is base.Outcome.ACCEPTED
    await session.close()


def streams(lbg: Lbg) -> list[dict[str, object]]:
    """What `lbg list -o json` shows."""
    found: list[dict[str, object]] = json.loads(lbg("list", "-o", "json").out)["streams"]
    return found


@pytest.mark.usefixtures("broker")
def test_created_stream_is_listed(lbg: Lbg, group: Path) -> None:
    """The contract, limits and outputs of the YAML are on the broker, with our mark."""
    created = json.loads(lbg("create", group, "-o", "json").out)
    assert set(created) == {"prefix", "count", "algorithm", "queues", "owner", "created"}
    assert created["created"] is True
    (stream,) = streams(lbg)
    owner = created["owner"]
    assert stream == {
        "prefix": "orders",
        "count": 64,
        "algorithm": "xxh64",
        "queues": 3,
        "owner": owner,
        "size_limit": 100,
        "outputs": ["out"],
        "backlog": 0,
        "links": 0,
    }


@pytest.mark.usefixtures("broker")
def test_creating_again_changes_nothing(lbg: Lbg, group: Path) -> None:
    """The same group twice is no error, and JSON says that it was there."""
    assert lbg("create", group).code == 0
    again = lbg("create", group, "-o", "json")
    assert again.code == 0
    assert json.loads(again.out)["created"] is False
    assert len(streams(lbg)) == 1


@pytest.mark.usefixtures("broker")
def test_other_contract_under_the_same_name_is_refused(lbg: Lbg, group: Path) -> None:
    """A stream's HC cannot change under the publishers that know it."""
    lbg("create", group)
    group.write_text(GROUP.replace("count: 64", "count: 128"))
    ran = lbg("create", group)
    assert ran.code == 1
    assert "orders" in ran.line()
    assert [stream["count"] for stream in streams(lbg)] == [64]


def test_name_in_use_is_refused_and_its_owner_named(lbg: Lbg, group: Path, broker: str) -> None:
    """Somebody else's stream is left alone, and the line says whose it is."""
    asyncio.run(declared_elsewhere(broker, "orders"))
    ran = lbg("create", group)
    assert ran.code == 1
    assert "uid-1/shop/orders" in ran.line()
    assert [stream["count"] for stream in streams(lbg)] == [8]


@pytest.mark.usefixtures("broker")
def test_delete_asks_first(lbg: Lbg, group: Path) -> None:
    """No, or no answer at all, deletes nothing; y, or --yes, deletes."""
    lbg("create", group)
    assert lbg("delete", "orders", stdin="n\n").code == 1
    assert lbg("delete", "orders", stdin="").code == 2
    assert len(streams(lbg)) == 1
    assert lbg("delete", "orders", stdin="y\n").code == 0
    assert streams(lbg) == []
    lbg("create", group)
    answer = json.loads(lbg("delete", "orders", "--yes", "-o", "json").out)
    assert answer == {"prefix": "orders", "deleted": True, "backlog": 0}
    assert streams(lbg) == []


def test_stream_with_events_is_deleted_by_force_only(lbg: Lbg, group: Path, broker: str) -> None:
    """The refusal names the queue that is not empty."""
    lbg("create", group)
    asyncio.run(published(broker, "orders"))
    refused = lbg("delete", "orders", "--yes")
    assert refused.code == 1
    assert "1" in refused.line()
    assert [stream["backlog"] for stream in streams(lbg)] == [1]
    assert lbg("delete", "orders", "--yes", "--force").code == 0
    assert streams(lbg) == []


def test_stream_of_another_owner_is_deleted_on_his_name_only(lbg: Lbg, broker: str) -> None:
    """The line names the owner, and naming him is how to mean it."""
    asyncio.run(declared_elsewhere(broker, "orders"))
    refused = lbg("delete", "orders", "--yes")
    assert refused.code == 1
    assert "uid-1/shop/orders" in refused.line()
    assert lbg("delete", "orders", "--yes", "--owner", "uid-1/shop/orders").code == 0
    assert streams(lbg) == []


@pytest.mark.usefixtures("broker")
def test_unknown_stream_cannot_be_deleted(lbg: Lbg) -> None:
    """A typing error is told, not swallowed."""
    ran = lbg("delete", "ordres", "--yes")
    assert ran.code == 1
    assert "ordres" in ran.line()


def test_table_has_a_row_per_stream(lbg: Lbg, group: Path, broker: str) -> None:
    """A person sees the same as JSON says."""
    lbg("create", group)
    asyncio.run(declared_elsewhere(broker, "bills"))
    rows = [line.split() for line in lbg("list").out.splitlines()]
    assert [row[0] for row in rows] == ["prefix", "bills", "orders"]
    assert "uid-1/shop/orders" in rows[1]


def test_broker_comes_from_a_file(lbg: Lbg, tmp_path: Path, broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file holds the URL on one line; the environment comes after it."""
    monkeypatch.setenv("LBG_BROKER", "embedded:///nowhere/lbg.sock")
    file = tmp_path / "broker"
    file.write_text(f"{broker}\n")
    assert lbg("list", "--broker-file", file).code == 0
    assert lbg("list", "--broker", broker).code == 0
    assert lbg("list").code == 3


@pytest.mark.parametrize(
    "url",
    [
        "amqp://shop:geheim@host:5672/v",
        "embedded+tcp://shop:geheim@host",
        "embedded://shop:ge@heim@host/x",
        "shop:geheim@host:5672",
        "amqp://shop:geheim@host /v",
        "://geheim@",
        "nonsense://shop:geheim@host",
    ],
)
def test_password_of_a_url_is_never_shown(lbg: Lbg, tmp_path: Path, url: str) -> None:
    """Whatever is wrong with a URL, the line does not repeat its password, from wherever it came."""
    file = tmp_path / "broker"
    file.write_text(url)
    for ran in (
        lbg("list", "--broker", url),
        lbg("list", "--broker-file", file),
        lbg("list", env={"LBG_BROKER": url}),
        lbg("list", "--broker", url, "--no-such-option"),
        lbg("list", env={"LBG_BROKER": url, "LBG_DEBUG": "1"}),
    ):
        assert ran.code in (1, 2, 3)
        assert "heim" not in ran.out + ran.err
