"""Waiting for what was published, with a deadline, and saying what is not confirmed."""

from __future__ import annotations

import asyncio

from lbg.publishing.errors import NotConfirmed, ProducerClosed
from lbg.publishing.pump import Pump


async def flush(pump: Pump, within: float | None) -> None:
    """Wait until everything accepted before this call is confirmed or failed.

    Raises:
        NotConfirmed: of what `send` took since the last flush, something failed; or something is still held after
            `within` seconds, and stays held.
    """
    is_late = False
    try:
        async with asyncio.timeout(within):
            await pump.tally.settled()
    except TimeoutError:
        is_late = True
    count, events = pump.tally.take_failures()
    if is_late:
        held = pump.unconfirmed()
        count, events = count + len(held), events + held
    if events:
        why = f"after {within:g} s: {events[0].reason}" if is_late else events[0].reason
        raise NotConfirmed(count, events, why)


async def close(pump: Pump, within: float) -> None:
    """Flush, then end the producer whatever came of it; callers who still wait for a confirm are told.

    Raises:
        NotConfirmed: as `flush`; what was held is given up.
    """
    try:
        await flush(pump, within)
    finally:
        await pump.stop(ProducerClosed("the producer was closed before the broker confirmed it"))
