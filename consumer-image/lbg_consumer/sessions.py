"""Keeps one broker session open: connects with backoff and jitter, and says when it is up or gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from lbg.brokers import base

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0


class SessionKeeper:
    """Opens sessions one after the other. A session is never reconnected: its links are gone with it."""

    def __init__(
        self,
        adapter: base.Adapter,
        url: str,
        name: str,
        on_up: Callable[[base.Session], None],
        on_gone: Callable[[str], None],
        jitter: Callable[[], float],
    ) -> None:
        self._adapter = adapter
        self._url = url
        self._name = name
        self._on_up = on_up
        self._on_gone = on_gone
        self._jitter = jitter
        self._session: base.Session | None = None

    async def open_first(self) -> base.Session:
        """Open the first session, trying as long as nothing answers.

        Raises:
            Refused: the broker answers and does not let us in; trying again does not help.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                self._session = await self._adapter.open_session(self._url, name=self._name)
            except base.Unreachable as problem:
                log.warning("broker unreachable, trying again in %.1f s: %s", pause, problem)
                await asyncio.sleep(pause * (0.5 + self._jitter()))
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                return self._session

    async def run(self) -> None:
        """Report every session that comes up and goes; until cancelled."""
        session = self._session or await self.open_first()
        while True:
            self._on_up(session)
            reason = await asyncio.shield(session.lost)
            log.warning("broker connection lost: %s", reason)
            self._session = None
            self._on_gone(reason)
            session = await self._reopen()

    async def close(self) -> None:
        """Close the session that is open, if one is."""
        if self._session is not None:
            await self._session.close()

    async def _reopen(self) -> base.Session:
        while True:
            try:
                return await self.open_first()
            except base.BrokerError as problem:
                # It let us in before, so credentials may be in rotation: keep trying, slowly.
                log.error("%s", problem)
                await asyncio.sleep(LONGEST_PAUSE * (0.5 + self._jitter()))
