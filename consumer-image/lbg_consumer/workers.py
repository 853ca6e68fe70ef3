"""A worker: everything one consumer does about one queue. Drives the handover machine; the workbench runs the handlers.

Order of things that must not change:

1. First delivery, then the ledger is read and its epoch raised, then the first handler starts. Earlier reads could see
   a ledger that the previous owner still writes.
2. Handler, then output or dead-letter copy confirmed, then mark recorded, then acknowledgement.
3. Release: nothing in hand, ledger written clean, acknowledgements sent, link released; what was buffered goes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from lbg.brokers import base
from lbg.core import handover, lanes
from lbg.core import ledger as ledgers
from lbg.core.membership import Blocked
from lbg.core.roles import Direction
from lbg_consumer import tenures
from lbg_consumer.tenures import Item, Tenure

log = logging.getLogger(__name__)


class Surroundings(Protocol):
    """What a worker needs of the consumer around it."""

    prefix: str
    name: str
    window: int
    ability: handover.Ability
    session: base.Session | None

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def wall_ms(self) -> float:
        """Return ms since the Unix epoch."""
        ...

    def reported(self) -> None:
        """Learn that `bound`, `asks` or the held queues changed: the seat should say so at once."""
        ...

    def handed_over(self, queue: int, seconds: float) -> None:
        """Learn how long a drain took until the broker had taken the release."""
        ...

    def pump(self) -> None:
        """Start what may start."""
        ...

    def spawn(self, work: asyncio.Future[None] | asyncio.Task[None]) -> None:
        """Keep a task alive and report if it fails."""
        ...


class Worker(tenures.LinkOwner):
    """One queue of one consumer."""

    def __init__(self, queue: int, around: Surroundings, bench: lanes.Lanes[Item], timing: handover.Timing) -> None:
        self.queue = queue
        self.machine = handover.Handover(around.ability, timing)
        self.tenure: Tenure | None = None
        self.lost_links = 0
        self._around = around
        self._lanes = bench
        self._timer: asyncio.TimerHandle | None = None
        self._drain_began = 0.0
        self._said = (None, None, None)

    # -- what the consumer asks -----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int | None:
        """Return the epoch under which this consumer is active, or None when it is not."""
        tenure = self.tenure
        return tenure.ledger.epoch if tenure is not None and tenure.is_open else None

    def direct(self, direction: Direction) -> None:
        """Follow a new look at the membership."""
        self._act(self.machine.direct(direction, self._around.now()))

    def connect(self, connected: bool) -> None:
        """Learn that the session is up or gone."""
        self._act(self.machine.connect(connected, self._around.now()))

    def adopt(self) -> None:
        """Bind an orphaned queue."""
        self._act(self.machine.adopt(self._around.now()))

    def stop(self) -> None:
        """Begin to hand over for good."""
        self._act(self.machine.stop(self._around.now()))

    def in_hand_changed(self) -> None:
        """Learn that an event of this queue left the lanes."""
        if self.machine.state is handover.State.DRAINING and not self._lanes.in_hand(self.queue):
            self._act(self.machine.emptied())

    def blocked(self) -> tuple[Blocked, ...]:
        """Return the shards that are blocked here."""
        if self.tenure is None or not self.tenure.is_open:
            return ()
        blocks = self.tenure.ledger.blocks.items()
        return tuple(Blocked(self.queue, s, b.message_id, b.key, b.error[:120], b.since_ms) for s, b in blocks)

    async def save_if_dirty(self) -> None:
        """Write the ledger if something changed since the last write; part of each renewal."""
        tenure = self.tenure
        if tenure is None or not tenure.is_open or not tenure.is_dirty or tenure.stored_clean:
            return
        tenure.ledger.marks.prune(int(self._around.wall_ms()))
        try:
            await tenure.save()
        except base.BrokerError as problem:
            log.warning("queue %d: ledger not written: %s", self.queue, problem)

    # -- what the link reports ------------------------------------------------------------------------------------

    def delivered(self, tenure: Tenure, deliveries: Sequence[base.Delivery]) -> None:
        """Take messages in queue order; before the tenure is open they wait."""
        tenure.unacked += len(deliveries)
        if not tenure.is_open:
            tenure.pending.extend(deliveries)
            if self.machine.state is handover.State.WAITING:
                self._act(self.machine.delivered())
            return
        if tenure.stored_clean:
            # The stored ledger says clean, written before an acknowledgement that emptied us. We were not switched
            # away, so it must say unclean again before a handler starts.
            tenure.is_open = False
            tenure.pending.extend(deliveries)
            self._spawn(self._reopen(tenure))
            return
        self._admit(tenure, deliveries)

    def lost(self, tenure: Tenure, reason: str) -> None:
        """Forget everything that belonged to the link. Calls that still run keep their shards."""
        log.warning("queue %d: link lost: %s", self.queue, reason)
        self.lost_links += 1
        self._end(tenure)
        self._act(self.machine.lost(self._around.now()))

    # -- actions --------------------------------------------------------------------------------------------------

    def _act(self, actions: list[handover.Action]) -> None:
        for action in actions:
            if isinstance(action, handover.Bind):
                self._spawn(self._bind(action.priority))
            elif isinstance(action, handover.Activate):
                assert self.tenure is not None
                self._spawn(self._activate(self.tenure))
            elif isinstance(action, handover.Drain):
                self._drain_began = self._around.now()
                self._lanes.pause(self.queue)
                if not self._lanes.in_hand(self.queue):
                    self._act(self.machine.emptied())
            else:
                assert self.tenure is not None
                self._spawn(self._release(self.tenure, action.clean))
        self._set_timer()
        self._guard_idle()
        said = (self.machine.reports.bound, self.machine.reports.asks, self.epoch)
        if said != self._said:
            self._said = said  # type: ignore[assignment]  # the first value is three times None
            self._around.reported()

    def _guard_idle(self) -> None:
        """Write an idle queue's ledger clean as soon as the broker may switch it away without asking."""
        tenure = self.tenure
        if tenure is None or not tenure.is_open or tenure.unacked or tenure.stored_clean:
            return
        if self.machine.state is handover.State.ACTIVE and self.machine.guards_last_ack:
            tenure.stored_clean = True  # until the write fails: further looks must not start it again
            self._spawn(self._save_idle(tenure))

    async def _save_idle(self, tenure: Tenure) -> None:
        try:
            await tenure.save(clean=True)
        except base.LinkLost:
            log.info("queue %d: the broker had switched already", self.queue)
        except base.BrokerError as problem:
            log.error("queue %d: ledger not written: %s", self.queue, problem)

    async def _bind(self, priority: int) -> None:
        session = self._around.session
        tenure = Tenure(self.queue)
        self.tenure = tenure
        if session is None:
            self._fail_bind(tenure, "not connected")
            return
        try:
            tenure.link = await session.bind(
                self._around.prefix,
                self.queue,
                name=self._around.name,
                window=self._around.window,
                listener=tenures.Listener(self, tenure),
                priority=priority,
            )
        except base.BindRefused:
            tenure.is_over = True
            if self.tenure is tenure:
                self.tenure = None
                self._act(self.machine.refused(self._around.now()))
        except base.BrokerError as problem:
            self._fail_bind(tenure, str(problem))
        else:
            if tenure.is_over:  # lost while the answer was on its way
                return
            self._act(self.machine.bound(self._around.now()))
            if tenure.pending and self.machine.state is handover.State.WAITING:
                self._act(self.machine.delivered())

    def _fail_bind(self, tenure: Tenure, reason: str) -> None:
        if tenure.is_over:
            return
        log.warning("queue %d: bind failed: %s", self.queue, reason)
        self._end(tenure)
        self._act(self.machine.lost(self._around.now()))

    async def _activate(self, tenure: Tenure) -> None:
        assert tenure.link is not None
        try:
            entry = await tenure.link.read_ledger()
            stored = None
            if entry is not None:
                try:
                    stored = ledgers.decode(entry.data)
                except ledgers.DamagedLedger as damage:
                    # The epoch stands outside the damaged part; marks start anew and are in doubt.
                    log.error("queue %d: %s; going on without marks", self.queue, damage)
                    stored = ledgers.Ledger(epoch=entry.epoch, version=entry.version, clean=False)
            tenure.ledger, tenure.is_clean = ledgers.take_over(stored)
            await tenure.save()
        except base.LinkLost as lost:
            await self._give_up(tenure, str(lost))
            return
        except base.BrokerError as problem:
            log.error("queue %d: ledger unreadable: %s; epoch and order are unknown", self.queue, problem)
            tenure.has_ledger = False
            tenure.is_clean = False
        if tenure.is_over:
            return
        self._open(tenure)
        self._act(self.machine.activated(self._around.now()))
        self._around.pump()

    async def _reopen(self, tenure: Tenure) -> None:
        try:
            await tenure.save()
        except base.LinkLost as lost:
            await self._give_up(tenure, str(lost))
            return
        except base.BrokerError as problem:
            log.error("queue %d: ledger not written: %s", self.queue, problem)
            tenure.stored_clean = False
        if not tenure.is_over:
            self._open(tenure)
            self._around.pump()

    def _open(self, tenure: Tenure) -> None:
        tenure.is_open = True
        pending, tenure.pending = tenure.pending, []
        self._admit(tenure, pending)

    async def _release(self, tenure: Tenure, clean: bool) -> None:
        # A guarded acknowledgement, a block or a reopening may still be writing; `save` lines up behind it.
        if clean:
            try:
                await tenure.save(clean=True)
            except base.LinkLost:
                log.info("queue %d: the broker had switched already", self.queue)
            except base.BrokerError as problem:
                log.error("queue %d: released without a clean ledger: %s", self.queue, problem)
        if tenure.is_over:
            return
        tenure.flush()
        tenure.is_over = True
        if tenure.link is not None:
            await tenure.link.release()
        if self.tenure is not tenure:
            return
        if clean:
            self._around.handed_over(self.queue, self._around.now() - self._drain_began)
        self._end(tenure)
        self._act(self.machine.released(self._around.now()))
        self._around.pump()

    async def _give_up(self, tenure: Tenure, reason: str) -> None:
        """Recycle a link whose ownership turned out to be lost while its connection lives."""
        if tenure.is_over:
            return
        tenure.is_over = True
        if tenure.link is not None:
            await tenure.link.release()
        self.lost(tenure, reason)

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _admit(self, tenure: Tenure, deliveries: Sequence[base.Delivery]) -> None:
        attempts = tenure.ledger.attempts
        doubtful = not tenure.is_clean
        for delivery in deliveries:
            message = delivery.message
            message_id = message.message_id or f"unnamed:{self.queue}:{delivery.tag}"
            item = Item(delivery, tenure, message_id, message.identity)
            alone = False
            if doubtful and delivery.redelivered:
                item.journal = True
                held_against = attempts.get(message_id)
                alone = held_against is not None and held_against.journalled
            self._lanes.offer(lanes.Slot(self.queue, message.shard), item, alone=alone)
        self._around.pump()

    def _end(self, tenure: Tenure) -> None:
        tenure.is_over = True
        tenure.pending.clear()
        if self.tenure is tenure:
            self.tenure = None
            self._lanes.drop(self.queue)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.machine.wake_at is not None:
            delay = max(0.0, self.machine.wake_at - self._around.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._act(self.machine.tick(self._around.now()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._around.spawn(asyncio.ensure_future(work))
