"""The health and metrics endpoints of a running consumer."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import aiohttp

from tests.consumer import group as groups


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_ready_follows_the_broker_and_live_does_not(tmp_path: Path) -> None:
    """Without a broker a pod is unready and alive; metrics count what was handled."""

    async def story() -> None:
        port = free_port()
        async with groups.running_group(tmp_path) as group, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:

            async def status(path: str) -> int:
                async with http.get(path) as answer:
                    return answer.status

            group.start("a", http_port=port)
            await group.scale(1)
            await group.publish(["one", "two", "two"])
            await group.outputs(3)
            assert (await status("/livez"), await status("/readyz")) == (200, 200)
            async with http.get("/metrics") as answer:
                assert 'lbg_events_handled_total{group="orders"} 3.0' in await answer.text()
            group.broker.kill()
            await group.until(lambda: not group.store.seats[0].summary.connected)
            assert (await status("/livez"), await status("/readyz")) == (200, 503)
            group.broker = await group.relaunched()
            await group.until(lambda: group.store.seats[0].summary.connected)
            assert await status("/readyz") == 200

    asyncio.run(story())
