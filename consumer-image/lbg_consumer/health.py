"""Health and metrics over HTTP: `/livez`, `/readyz`, `/metrics`.

Live means that the event loop makes progress: the answer itself is the proof. An unreachable broker must not restart
every pod, so it only makes a pod unready. Ready means connected, not seated: a rollout without surplus seats would
otherwise wait for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

if TYPE_CHECKING:
    from aiohttp import web


class Observed(Protocol):
    """What the endpoints look at."""

    @property
    def is_connected(self) -> bool:
        """Return whether the broker session is up."""
        ...

    @property
    def registry(self) -> CollectorRegistry:
        """Return the metrics."""
        ...


async def serve(observed: Observed, port: int, host: str = "0.0.0.0") -> web.AppRunner:
    """Serve until the returned runner is cleaned up.

    Raises:
        OSError: the port is taken.
    """
    # Here and not above: it is a third of the CPU time of a start, and a process that replaces a dead one serves no
    # port on one machine.
    from aiohttp import web

    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        if observed.is_connected:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="no connection to the broker\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(observed.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
