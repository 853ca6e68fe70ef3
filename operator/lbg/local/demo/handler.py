"""The demo's handler: it waits, as a handler that calls a database does, for a stated time per event."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from lbg_consumer.events import Event

COST_VARIABLE: Final = "LBG_DEMO_COST_MS"
COST_SECONDS: Final = float(os.environ.get(COST_VARIABLE, "4")) / 1000


async def handle(event: Event) -> bytes:
    """Wait for the stated cost and return the event's body."""
    await asyncio.sleep(COST_SECONDS)
    return event.body
