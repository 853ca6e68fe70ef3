"""Keeps this process's seat and passes on every look at the membership. The only place that talks to the store.

A store that does not answer changes nothing but this: no seat is renewed or claimed, and nobody's seat expires here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from lbg.core import membership, seating

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0  # seconds between looks when nothing is reported as changed
RETRY: Final = 0.5


class MembershipLoop:
    """Drives the seat machine against a store."""

    def __init__(
        self,
        store: membership.MembershipStore,
        machine: seating.Seating,
        on_seen: Callable[[membership.Membership], None],
        refresh: Callable[[], membership.Summary],
        clock: Callable[[], float],
    ) -> None:
        self.machine = machine
        self.unreadable_since: float | None = None
        self._store = store
        self._on_seen = on_seen
        self._refresh = refresh
        self._clock = clock
        self._urgent = asyncio.Event()

    def poke(self) -> None:
        """Have something to say at once."""
        self._urgent.set()

    async def run(self) -> None:
        """Look, follow, write, wait; until cancelled."""
        while True:
            pause = LOOK_EVERY
            try:
                await self._look()
            except membership.StoreUnavailable as problem:
                if self.unreadable_since is None:
                    log.warning("membership store: %s; serving on", problem)
                    self.unreadable_since = self._clock()
                self.machine.unreadable()
                pause = RETRY
            await self._wait(pause)

    async def leave(self) -> None:
        """Clear the own seat; give up quietly if the store is away."""
        self.machine.leave()
        with contextlib.suppress(membership.StoreUnavailable):
            await self._look()

    async def _look(self) -> None:
        self._urgent.clear()
        seen = await self._store.observe()
        self.unreadable_since = None
        self.machine.observed(seen, self._clock())
        self._on_seen(seen)
        summary = self._refresh()
        self.machine.report(summary, urgent=not _says_the_same(self.machine.seat, summary))
        while (write := self.machine.next_write(self._clock())) is not None:
            try:
                written = await self._store.replace(write)
            except membership.StaleSeat:
                self._urgent.set()  # somebody else wrote first: look again at once
                return
            self.machine.written(written, self._clock())
        if not _says_the_same(self.machine.seat, summary):
            self._urgent.set()  # a claim starts with an empty report; what is bound follows at once

    async def _wait(self, pause: float) -> None:
        """Return when the store changed, something urgent is to be said, or the pause is over."""
        changed = asyncio.ensure_future(self._store.changed(pause))
        urgent = asyncio.ensure_future(self._urgent.wait())
        try:
            await asyncio.wait({changed, urgent}, return_when=asyncio.FIRST_COMPLETED)
            if changed.done() and changed.exception() is not None:
                await asyncio.sleep(RETRY)
        finally:
            changed.cancel()
            urgent.cancel()


def _says_the_same(seat: membership.Seat | None, summary: membership.Summary) -> bool:
    """Return whether a seat already says what must never be late."""
    if seat is None:
        return True
    said = seat.summary
    return (
        said.connected == summary.connected
        and said.bound == summary.bound
        and said.asks == summary.asks
        and said.epochs == summary.epochs
        and said.stalled == summary.stalled
        and said.blocked == summary.blocked
        and said.answered == summary.answered
    )
