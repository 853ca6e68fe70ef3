"""A tenure: one link's time with a queue, and what must not outlive it.

Everything that belongs to a link hangs here (delivery tags, the ledger, acknowledgements not yet sent), so that a call
which returns after its link was lost finds a closed tenure and can do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lbg.brokers import base
from lbg.core import ledger as ledgers
from lbg.core import wire


class Tenure:
    """One link, from bind to its end. Mutable; owned by the queue's worker."""

    def __init__(self, queue: int) -> None:
        self.queue = queue
        self.link: base.Link | None = None
        self.ledger = ledgers.Ledger()
        self.is_open = False  # handlers may be started
        self.is_over = False  # the link is gone: nothing may be acknowledged or written any more
        self.has_ledger = True  # False: unreadable, work goes on without epoch and order check
        self.is_clean = True  # the takeover was clean
        self.handled_any = False
        self.stored_clean = False  # the stored ledger says clean while we are active (guarded last acknowledgement)
        self.pending: list[base.Delivery] = []  # arrived before the tenure was open
        self.unacked = 0
        self.is_dirty = False
        self._acks: list[int] = []
        self._flushing = False
        self._writing = asyncio.Lock()

    def ack(self, tag: int) -> None:
        """Acknowledge one delivery; sent with the others of this turn of the event loop."""
        if self.is_over:
            return
        self.unacked -= 1
        self._acks.append(tag)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Send the acknowledgements collected so far."""
        self._flushing = False
        if self._acks and self.link is not None and not self.is_over:
            acks, self._acks = self._acks, []
            self.link.ack(acks)

    async def save(self, *, clean: bool = False) -> None:
        """Write the ledger; durable on return. Writes of one tenure follow each other.

        Raises:
            LinkLost: ownership is gone.
            LedgerUnreadable: the store does not answer now.
        """
        if not self.has_ledger or self.link is None:
            return
        async with self._writing:
            if self.is_over:
                raise base.LinkLost("the link ended before its ledger was written")
            ledger = self.ledger
            ledger.clean, ledger.version = clean, ledger.version + 1
            self.is_dirty = False
            self.stored_clean = clean
            entry = base.LedgerEntry(ledger.epoch, ledger.version, ledgers.encode(ledger))
            try:
                await self.link.write_ledger(entry)
            except base.BrokerError:
                self.is_dirty = True
                raise


@dataclass(slots=True)
class Item:
    """One delivered event on its way through the lanes."""

    delivery: base.Delivery
    tenure: Tenure
    message_id: str
    identity: wire.Identity | None
    journal: bool = False  # write to the ledger that it starts, before it starts
    failures: int = 0


class Listener:
    """Passes what one link reports to its worker, as long as that link is the worker's current one."""

    def __init__(self, worker: LinkOwner, tenure: Tenure) -> None:
        self._worker = worker
        self._tenure = tenure

    def on_deliveries(self, deliveries: Sequence[base.Delivery]) -> None:
        """Pass on what arrived, unless the tenure is over."""
        if not self._tenure.is_over:
            self._worker.delivered(self._tenure, deliveries)

    def on_lost(self, reason: str) -> None:
        """Pass on the loss, once."""
        if not self._tenure.is_over:
            self._worker.lost(self._tenure, reason)


class LinkOwner:
    """What a listener needs of a worker."""

    def delivered(self, tenure: Tenure, deliveries: Sequence[base.Delivery]) -> None:
        """Take messages in queue order."""
        raise NotImplementedError

    def lost(self, tenure: Tenure, reason: str) -> None:
        """Learn that the tenure is over."""
        raise NotImplementedError
