"""The workbench: runs handlers in lanes, and does with each event what its outcome asks for.

One event's way: judge it against the marks (a duplicate is acknowledged and dropped), journal it where a crash is being
investigated, call the handler, write the output record, record the mark, acknowledge. A failure holds the shard for the
backoff and tries again; after `maxAttempts` `onPoison` applies. Between a handler's return and the acknowledgement
nothing of the shard starts, so the output stream keeps the shard's order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from lbg.brokers import base
from lbg.core import lanes, marks, wire
from lbg.core import ledger as ledgers
from lbg.core.outputs import OutputRecord
from lbg_consumer import descriptions, handlers, outputs
from lbg_consumer.events import Event
from lbg_consumer.settings import Settings
from lbg_consumer.tally import Tally
from lbg_consumer.tenures import Item, Tenure

log = logging.getLogger(__name__)


class Surroundings(Protocol):
    """What the workbench needs of the consumer around it."""

    writer: outputs.Writer | None
    can_ack_and_publish: bool
    holder: str

    @property
    def ordinal(self) -> int:
        """Return the claimed ordinal, -1 without a seat."""
        ...

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def wall_ms(self) -> float:
        """Return ms since the Unix epoch."""
        ...

    def in_hand_changed(self, queue: int) -> None:
        """Learn that an event of a queue left the lanes."""
        ...

    def guards_last_ack(self, queue: int) -> bool:
        """Return whether the ledger must be clean before the link is left without unacknowledged events."""
        ...

    def reported(self) -> None:
        """Learn that the seat has something to say at once."""
        ...

    def spawn(self, work: asyncio.Future[None] | asyncio.Task[None]) -> None:
        """Keep a task alive."""
        ...


class Workbench:
    """Runs what the lanes let start."""

    def __init__(
        self,
        settings: Settings,
        handler: handlers.Handler,
        around: Surroundings,
        bench: lanes.Lanes[Item],
        tally: Tally,
    ) -> None:
        self.tally = tally
        self._calls: dict[int, tuple[Item, float]] = {}  # running handler calls by id of their item, since when
        self._pumping = False
        self._settings = settings
        self._handler = handler
        self._around = around
        self._lanes = bench
        self._held: dict[lanes.Slot, Item] = {}

    def pump(self) -> None:
        """Start what may start."""
        if self._pumping:
            return  # an event that ends at once comes back here: the loop below goes on, the stack does not grow
        self._pumping = True
        try:
            while (start := self._lanes.take()) is not None:
                self._start(*start)
        finally:
            self._pumping = False

    def skip(self, message_id: str, by: str) -> bool:
        """Skip a blocked event on somebody's request; False if it does not block a shard here."""
        for slot, item in list(self._held.items()):
            ledger = item.tenure.ledger
            block = ledger.blocks.get(slot.shard)
            if block is not None and block.message_id == message_id and not item.tenure.is_over:
                ledger.skipped[message_id] = by
                del ledger.blocks[slot.shard]
                self._resume(slot)
                return True
        return False

    def oldest_orphan(self) -> float | None:
        """Return since when (monotonic) the oldest call runs whose link is gone, or None."""
        return min((since for item, since in self._calls.values() if item.tenure.is_over), default=None)

    # -- starting -------------------------------------------------------------------------------------------------

    def _start(self, slot: lanes.Slot, item: Item, alone: bool) -> None:
        tenure = item.tenure
        if tenure.is_over:
            self._leave(slot)
            return
        identity = item.identity
        if identity is None:
            self._note(tenure, marks.Violation.UNSEQUENCED)
        elif tenure.has_ledger:
            judgement = tenure.ledger.marks.judge(identity)
            if judgement.is_duplicate:
                tenure.ledger.duplicates += 1
                tenure.is_dirty = True
                self.tally.duplicates.inc()
                self._acknowledge(slot, item)
                return
            if judgement.violation is not None and not item.failures:
                self._note(tenure, judgement.violation)
        if item.message_id in tenure.ledger.skipped:
            self._around.spawn(asyncio.ensure_future(self._skipped(slot, item)))
            return
        block = tenure.ledger.blocks.get(slot.shard)
        if block is not None and block.message_id == item.message_id:
            self._hold(slot, item)
            return
        if block is not None:
            # What blocked the shard is gone (acknowledged by a predecessor after it wrote): nothing blocks it now.
            del tenure.ledger.blocks[slot.shard]
        held_against = tenure.ledger.attempts.get(item.message_id)
        if held_against is not None and held_against.count >= self._settings.retry.max_attempts:
            self._around.spawn(asyncio.ensure_future(self._set_aside(slot, item, held_against.error)))
            return
        asyncio.ensure_future(self._run(slot, item, alone)).add_done_callback(_raise_bug)

    async def _run(self, slot: lanes.Slot, item: Item, alone: bool) -> None:
        tenure = item.tenure
        if item.journal and not await self._journal(item, alone):
            self._leave(slot)
            return
        event = descriptions.event_of(slot, item)
        tenure.handled_any = True
        started = self._around.wall_ms()
        self._calls[id(item)] = item, self._around.now()
        try:
            body = await self._handler(event)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # the user's code may raise anything, SystemExit included
            self.tally.handler_failed()
            self._failed(slot, item, f"{type(error).__name__}: {error}")
            return
        finally:
            del self._calls[id(item)]
        ended = self._around.wall_ms()
        self.tally.handled(ended - started)
        if tenure.is_over:
            # The call outlived its link. Its event goes to whoever owns the queue now; here it only frees its shard.
            self._leave(slot)
            return
        output = self._settings.output
        if output is not None:
            self._lanes.settle(slot)
            self.pump()
            record = self._record(item, event, started, ended)
            if not await self._write_output(slot, item, output, record, body):
                return
        self._done(slot, item)

    async def _journal(self, item: Item, alone: bool) -> bool:
        """Write down that the event starts; False if ownership was lost over it."""
        attempt = item.tenure.ledger.attempts.setdefault(item.message_id, ledgers.Attempt())
        attempt.journalled, attempt.alone = True, alone
        try:
            await item.tenure.save()
        except base.LinkLost:
            return False
        except base.BrokerError as problem:
            log.error("journal not written: %s", problem)
        return True

    # -- outcomes -------------------------------------------------------------------------------------------------

    async def _write_output(
        self, slot: lanes.Slot, item: Item, output: str, record: OutputRecord, body: bytes | None
    ) -> bool:
        """Write the output record; where possible together with the acknowledgement. False: nothing more to do."""
        message = wire.Message(body or b"", record.to_headers(), record.message_id, item.delivery.message.content_type)
        outgoing = base.Outgoing(base.ToOutput(self._settings.contract.prefix, output), message)
        link = item.tenure.link
        if self._settings.handler.republish is not None and link is not None and self._around.can_ack_and_publish:
            try:
                await link.ack_and_publish(item.delivery.tag, outgoing)
            except base.BrokerError as problem:
                log.info("queue %d: output not written: %s", slot.queue, problem)
                self._leave(slot)
                return False
            item.tenure.unacked -= 1
            self._settle(item)
            self._leave(slot)
            return False
        return await self._publish(slot, item, outgoing)

    async def _publish(self, slot: lanes.Slot, item: Item, outgoing: base.Outgoing) -> bool:
        """Publish until the broker has taken it; False, with the lane freed, if the link was lost first."""
        pause = self._settings.retry.backoff
        taken = False
        while not (taken or item.tenure.is_over):
            writer = self._around.writer
            try:
                if writer is None:
                    break
                await writer.write(outgoing)
            except outputs.NotAccepted as refused:
                if refused.outcome is base.Outcome.UNKNOWN:
                    break
                log.error("queue %d: %s; trying again in %.1f s", slot.queue, refused, pause)
                await asyncio.sleep(pause)
                pause = min(self._settings.retry.max_backoff, pause * 2)
            else:
                taken = True
        return self._leave(slot) if item.tenure.is_over or not taken else True

    def _done(self, slot: lanes.Slot, item: Item) -> None:
        self._settle(item)
        self._acknowledge(slot, item)

    def _settle(self, item: Item) -> None:
        """Record the mark: from here on a copy of this event is a duplicate."""
        ledger = item.tenure.ledger
        identity = item.identity
        if identity is not None:
            ledger.marks.record(identity, int(self._around.wall_ms()))
        if ledger.attempts:
            ledger.attempts.pop(item.message_id, None)
        item.tenure.is_dirty = True

    def _acknowledge(self, slot: lanes.Slot, item: Item) -> None:
        tenure = item.tenure
        if tenure.unacked == 1 and tenure.has_ledger and self._around.guards_last_ack(slot.queue):
            self._around.spawn(asyncio.ensure_future(self._acknowledge_guarded(slot, item)))
            return
        tenure.ack(item.delivery.tag)
        self._leave(slot)

    async def _acknowledge_guarded(self, slot: lanes.Slot, item: Item) -> None:
        try:
            await item.tenure.save(clean=True)
        except base.LinkLost:
            pass  # switched away or disconnected: the event was handled, the next owner may see it again
        except base.BrokerError as problem:
            log.error("queue %d: ledger not written: %s", slot.queue, problem)
        item.tenure.ack(item.delivery.tag)
        self._leave(slot)

    def _failed(self, slot: lanes.Slot, item: Item, error: str) -> None:
        tenure = item.tenure
        if tenure.is_over:
            self._leave(slot)
            return
        item.failures += 1
        attempt = tenure.ledger.attempts.setdefault(item.message_id, ledgers.Attempt())
        attempt.failures += 1
        attempt.error = attempt.error or error[: ledgers.MAX_ERROR]
        attempt.journalled = attempt.alone = False
        tenure.is_dirty = True
        log.warning("queue %d shard %d: attempt %d of %s failed: %s", slot.queue, slot.shard, attempt.count,
                    item.message_id, error)  # fmt: skip
        if attempt.count >= self._settings.retry.max_attempts:
            self._around.spawn(asyncio.ensure_future(self._set_aside(slot, item, attempt.error)))
            return
        self._hold(slot, item)
        self._around.spawn(asyncio.ensure_future(self._retry(slot, item, attempt.count)))

    async def _retry(self, slot: lanes.Slot, item: Item, count: int) -> None:
        try:
            await item.tenure.save()  # attempts survive the death of the process
        except base.BrokerError as problem:
            log.info("queue %d: attempt not written: %s", slot.queue, problem)
        await asyncio.sleep(self._settings.retry.delay(count))
        if not item.tenure.is_over:
            self._resume(slot)

    # -- poison ---------------------------------------------------------------------------------------------------

    async def _set_aside(self, slot: lanes.Slot, item: Item, error: str) -> None:
        """Apply `onPoison` to an event that failed often enough. Its shard stays occupied meanwhile."""
        if self._settings.on_poison == "DeadLetter":
            await self._dead_letter(slot, item, error)
        else:
            await self._block(slot, item, error)

    async def _block(self, slot: lanes.Slot, item: Item, error: str) -> None:
        tenure = item.tenure
        since = int(self._around.wall_ms())
        key = item.delivery.message.key or ""
        tenure.ledger.blocks.setdefault(slot.shard, ledgers.Block(item.message_id, key, error, since))
        try:
            await tenure.save()  # before it is held: a new owner must block at once
        except base.BrokerError as problem:
            log.error("queue %d: block not written: %s", slot.queue, problem)
        if tenure.is_over:
            self._leave(slot)
            return
        self._hold(slot, item)
        self._around.reported()

    async def _dead_letter(self, slot: lanes.Slot, item: Item, error: str) -> None:
        reasons: Mapping[str, wire.HeaderValue] = {
            "lbg-dead-reason": error[: ledgers.MAX_ERROR],
            "lbg-dead-queue": slot.queue,
            "lbg-dead-at": int(self._around.wall_ms()),
        }
        copy = wire.set_aside(item.delivery.message, reasons)
        outgoing = base.Outgoing(base.ToDeadLetters(self._settings.contract.prefix), copy)
        if await self._publish(slot, item, outgoing):
            self.tally.dead_letters.inc()
            await self._finish_aside(slot, item, "dead-lettered")

    async def _skipped(self, slot: lanes.Slot, item: Item) -> None:
        """Set aside an event that somebody asked to skip; the request stands in the ledger first."""
        try:
            await item.tenure.save()
        except base.LinkLost:
            self._leave(slot)
            return
        except base.BrokerError as problem:
            log.error("queue %d: skip of %s not recorded: %s", slot.queue, item.message_id, problem)
        await self._finish_aside(slot, item, "skipped")
        self._around.reported()

    async def _finish_aside(self, slot: lanes.Slot, item: Item, outcome: str) -> None:
        if self._settings.output is not None:
            now = self._around.wall_ms()
            record = replace(self._record(item, descriptions.event_of(slot, item), now, now), outcome=outcome)
            message = wire.Message(b"", record.to_headers(), record.message_id)
            to = base.ToOutput(self._settings.contract.prefix, self._settings.output)
            if not await self._publish(slot, item, base.Outgoing(to, message)):
                return
        self._done(slot, item)

    # -- pieces ---------------------------------------------------------------------------------------------------

    def _hold(self, slot: lanes.Slot, item: Item) -> None:
        self._held[slot] = item
        self._lanes.hold(slot, item)
        self._after(slot)

    def _resume(self, slot: lanes.Slot) -> None:
        self._held.pop(slot, None)
        self._lanes.resume(slot)
        self.pump()

    def _leave(self, slot: lanes.Slot) -> bool:
        """Free the lane. Returns False, for callers that end with it."""
        self._lanes.finish(slot)
        self._after(slot)
        return False

    def _after(self, slot: lanes.Slot) -> None:
        self._around.in_hand_changed(slot.queue)
        self.pump()

    def _note(self, tenure: Tenure, violation: marks.Violation) -> None:
        tenure.ledger.count(violation)
        tenure.is_dirty = True
        self.tally.violated(violation.value)

    def _record(self, item: Item, event: Event, started: float, ended: float) -> OutputRecord:
        return descriptions.record_of(item, event, self._around.holder, self._around.ordinal, started, ended)


def _raise_bug(task: asyncio.Task[None]) -> None:
    # A handler's failure never ends here; what does is ours, and hiding it would leave a shard occupied for ever.
    if not task.cancelled() and (bug := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "bug in the consumer", "exception": bug, "task": task})
