"""Handlers: the three ways to bring code to the events. Each is one awaitable call; errors are raised, never returned.

A handler returns the body of the output record (bytes, or None for an empty one).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from lbg_consumer.events import Event
from lbg_consumer.settings import HandlerSpec

Call = Callable[[Event], Awaitable[bytes | None]]


class HandlerUnusable(Exception):
    """The handler cannot be called at all, e.g. its module does not import; the message is one line with the remedy."""


class Handler(Protocol):
    """A handler that was opened."""

    async def __call__(self, event: Event) -> bytes | None:
        """Handle one event.

        Raises:
            Exception: whatever the user's code raised; the event is tried again, then `onPoison` applies.
        """
        ...

    async def close(self) -> None:
        """Let go of threads and connections. Calls that still run are not waited for."""
        ...


async def open_handler(spec: HandlerSpec, *, lanes: int) -> Handler:
    """Open the one handler that the spec names.

    Raises:
        HandlerUnusable: it cannot be called.
    """
    if spec.python is not None:
        from lbg_consumer.handlers import python

        return python.open_python(spec.python, lanes=lanes)
    if spec.http is not None:
        from lbg_consumer.handlers import posting

        return posting.HttpHandler(spec.http, timeout=spec.http_timeout, lanes=lanes)
    from lbg_consumer.handlers import republish

    return republish.RepublishHandler()
