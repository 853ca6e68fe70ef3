"""The page on publishing does what it says: each of its examples runs, on a broker of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lbg.brokers import base
from lbg.brokers.embedded import client, process
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from tests.publishing.fakes import PATIENCE

PAGE = Path(__file__).parents[2] / "docs" / "publishing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
CONTRACT = Contract("orders", 16, Algorithm.XXH64, 4)


async def prepare(url: str) -> None:
    admin = await client.EmbeddedAdapter().open_admin(url)
    await admin.declare(base.Topology(CONTRACT, "test"))
    await admin.close()


async def published(url: str) -> int:
    admin = await client.EmbeddedAdapter().open_admin(url)
    states = await admin.observe("orders")
    await admin.close()
    return sum(state.published or 0 for state in states)


# By what each prints and how many events it publishes, so that an example cannot lose its point unnoticed.
@pytest.mark.parametrize(
    ("example", "says", "events"),
    list(
        zip(
            EXAMPLES,
            [
                r"\S+:\d+:\d+:0 is at the broker",
                "",
                "",
                "16 shards by xxh64",
                r"set aside: event \S+ was not published: the broker refuses it",
                "Options",
                "3 rows confirmed",
            ],
            [1, 1, 1_000, 0, 1, 0, 3],
            strict=True,
        )
    ),
    ids=["async", "sync", "send", "contract", "restart", "options", "rows"],
)
def test_each_example_runs(tmp_path: Path, example: str, says: str, events: int) -> None:
    """As a script of its own, without a word on standard error."""
    (tmp_path / "contract.json").write_text(json.dumps(CONTRACT.to_mapping()))
    broker = process.launch_and_wait(tmp_path / "store.db", f"embedded://{tmp_path}/socket")
    try:
        asyncio.run(prepare(broker.url))
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", example],
            cwd=tmp_path,
            env={**os.environ, "LBG_BROKER": broker.url},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert re.search(says, result.stdout)
        assert asyncio.run(published(broker.url)) == events
    finally:
        broker.stop()
