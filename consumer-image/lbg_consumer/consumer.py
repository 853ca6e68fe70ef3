"""One consumer process, composed: session, seat, workers, workbench; started by `run`, ended by SIGTERM.

The order of ending: offer the seat, leave waiting links, hand over queue by queue, clear the seat, close the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry

from lbg.brokers import base, registry
from lbg.core import assignment, handover, lanes, membership, roles, seating, spec
from lbg_consumer import handlers, health, outputs, settings, tally
from lbg_consumer.membership_loop import MembershipLoop
from lbg_consumer.reporting import Reporter
from lbg_consumer.sessions import SessionKeeper
from lbg_consumer.tenures import Item
from lbg_consumer.workbench import Workbench
from lbg_consumer.workers import Worker

log = logging.getLogger(__name__)

ORPHAN_CYCLE: Final = 60.0  # seconds between looks for queues that nobody is bound to
RENEWAL: Final = 10.0  # seconds between writes of dirty ledgers
EXIT_OK: Final = 0
EXIT_HANDLER: Final = 70  # an orphaned call outlived the drain budget
PULSE: Final = 1.0
STALL: Final = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """What the process is given from outside; clocks and randomness included, so that tests own them."""

    identity: settings.Identity
    broker_url: str
    adapter: base.Adapter | None = None  # by URL when None
    http_port: int | None = None  # health and metrics; None: not served
    wall_ms: Callable[[], float] = field(default=lambda: time.time() * 1000.0)
    jitter: Callable[[], float] = random.random
    seat_timing: seating.Timing = field(default_factory=seating.Timing)
    orphan_cycle: float = ORPHAN_CYCLE


async def run(process: Process, store: membership.MembershipStore, stopped: asyncio.Event) -> int:
    """Run one consumer until `stopped` is set and everything was handed over; return the exit code.

    Raises:
        HandlerUnusable: the handler cannot be called.
        Refused: the broker does not let us in.
        SpecError: the group's object in the store cannot be read.
    """
    view = (await _first_look(store)).view
    chosen = settings.from_group(spec.load(view.spec, view.group), view.group)
    consumer = await Consumer.open(process, store, chosen)
    return await consumer.run(stopped)


class Consumer:
    """The composed process. Also the surroundings of its workers and its workbench."""

    def __init__(
        self,
        process: Process,
        store: membership.MembershipStore,
        chosen: settings.Settings,
        handler: handlers.Handler,
        adapter: base.Adapter,
    ) -> None:
        self.settings = chosen
        self.prefix = chosen.contract.prefix
        self.name = process.identity.name
        self.holder = str(process.identity.holder)
        self.window = chosen.window
        self.session: base.Session | None = None
        self.writer: outputs.Writer | None = None
        self.ability = handover.Ability.COOPERATIVE
        self.can_ack_and_publish = False
        self.tally = tally.Tally(chosen.group)
        self.lanes: lanes.Lanes[Item] = lanes.Lanes(chosen.lanes)
        self.workers: list[Worker] = []
        self.exit_code = EXIT_OK
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._handler = handler
        self._adapter = adapter
        self._tasks: set[asyncio.Future[None]] = set()
        self._stopping = False
        self._stop_requested = asyncio.Event()
        self._moved = asyncio.Event()
        self._pulse_at = self._loop.time()
        self._table: tuple[object, assignment.Table] | None = None
        self._bench = Workbench(chosen, handler, self, self.lanes, self.tally)
        self._reporter = Reporter(self.tally, chosen.lanes, self.now)
        self._keeper = SessionKeeper(
            adapter, process.broker_url, self.name, self._session_up, self._session_gone, process.jitter
        )
        self._seating = seating.Seating(process.identity.holder, process.seat_timing)
        self._membership = MembershipLoop(store, self._seating, self._seen, self._summary, self.now)

    @staticmethod
    async def open(process: Process, store: membership.MembershipStore, chosen: settings.Settings) -> Consumer:
        """Open handler and adapter; nothing is connected yet."""
        adapter = process.adapter or registry.adapter(process.broker_url)
        handler = await handlers.open_handler(chosen.handler, lanes=chosen.lanes)
        return Consumer(process, store, chosen, handler, adapter)

    async def run(self, stopped: asyncio.Event) -> int:
        """Serve until told to stop, then hand everything over."""
        session = await self._keeper.open_first()
        self.ability = handover.Ability(session.abilities.handover.value)
        # Where the broker switches by itself, the last acknowledgement must wait for the ledger, and one that is on its
        # way together with an output cannot be told from the last.
        self.can_ack_and_publish = session.abilities.ack_and_publish and self.ability is not handover.Ability.BROKER
        self.workers = [
            Worker(queue, self, self.lanes, self.settings.timing) for queue in range(self.settings.contract.queues)
        ]
        site = await health.serve(self, self._process.http_port) if self._process.http_port is not None else None
        background = [
            asyncio.ensure_future(work)
            for work in (
                self._keeper.run(),
                self._membership.run(),
                self._renew(),
                self._adopt_orphans(),
                self._watch(),
            )
        ]
        try:
            ended = asyncio.ensure_future(_first_of(stopped, self._stop_requested))
            await asyncio.wait({ended, *background}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            for task in background:
                if task.done():
                    task.result()  # a bug: let it end the process with its own message
            await self._hand_over_everything()
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self._keeper.close()
            await self._handler.close()
            if site is not None:
                await site.cleanup()
        return self.exit_code

    # -- surroundings of workers and workbench --------------------------------------------------------------------

    @property
    def ordinal(self) -> int:
        """Return the claimed ordinal, -1 without a seat."""
        return -1 if self._seating.ordinal is None else self._seating.ordinal

    @property
    def is_connected(self) -> bool:
        """Return whether the broker session is up: what readiness means."""
        return self.session is not None

    @property
    def registry(self) -> CollectorRegistry:
        """Return the metrics of this process."""
        return self.tally.registry

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._loop.time()

    def wall_ms(self) -> float:
        """Return ms since the Unix epoch."""
        return self._process.wall_ms()

    def reported(self) -> None:
        """Have the seat say what changed, at once."""
        self._membership.poke()
        self._moved.set()

    def handed_over(self, queue: int, seconds: float) -> None:
        """Count a handover."""
        log.info("queue %d: handed over in %.1f ms", queue, seconds * 1000.0)
        self.tally.handovers.inc()
        self.tally.handover_seconds.observe(seconds)
        self._reporter.handovers_ms = [*self._reporter.handovers_ms[-7:], seconds * 1000.0]

    def pump(self) -> None:
        """Start what may start, unless the process was paused so long that its links may be gone."""
        if self._loop.time() - self._pulse_at > STALL:
            # SIGSTOP or a blocked loop: what is buffered may belong to somebody else by now. Let the loop read what
            # the broker has to say first; the pulse pumps again.
            return
        self._bench.pump()

    def in_hand_changed(self, queue: int) -> None:
        """Pass on that an event of a queue left the lanes."""
        self.workers[queue].in_hand_changed()

    def guards_last_ack(self, queue: int) -> bool:
        """Return whether the queue's ledger must be clean before its last acknowledgement."""
        return self.workers[queue].machine.guards_last_ack

    def spawn(self, work: asyncio.Future[None] | asyncio.Task[None]) -> None:
        """Keep a task alive until it ends; a failure is a bug and ends the process."""
        self._tasks.add(work)
        work.add_done_callback(self._ended)

    # -- what happens ---------------------------------------------------------------------------------------------

    def _session_up(self, session: base.Session) -> None:
        self.session = session
        self.writer = outputs.Writer(session.publisher())
        self.tally.connected.set(1)
        for worker in self.workers:
            worker.connect(True)
        self.reported()

    def _session_gone(self, reason: str) -> None:
        self.session = self.writer = None
        self.tally.connected.set(0)
        for worker in self.workers:
            if worker.tenure is not None and not worker.tenure.is_over:
                worker.lost(worker.tenure, reason)  # an adapter may report the session before its links
            worker.connect(False)
        self.reported()

    def _seen(self, seen: membership.Membership) -> None:
        view = seen.view
        if view.table_version != assignment.TABLE_VERSION:
            log.error("assignment table version %d is not known here: use a newer image", view.table_version)
            return
        chosen = self.settings
        shape = (chosen.contract.queues, view.effective, chosen.policy, chosen.standbys)
        if self._table is None or self._table[0] != shape:
            queues, effective, policy, standbys = shape
            self._table = shape, assignment.assign(queues, effective, chosen.group, policy, standbys)
        table = self._table[1]
        for worker, direction in zip(self.workers, roles.directions(seen, table, self.holder), strict=True):
            worker.direct(direction)
        for request in view.requests:
            if request.kind == "skip" and request.id not in self._reporter.answered and self._bench.skip(
                request.target, request.by
            ):  # fmt: skip
                self._reporter.answered[request.id] = "skipped"
        open_requests = {request.id for request in view.requests}
        self._reporter.answered = {i: a for i, a in self._reporter.answered.items() if i in open_requests}

    def _summary(self) -> membership.Summary:
        summary = self._reporter.summarise(self.workers, connected=self.is_connected, in_hand=self.lanes.in_hand())
        self.tally.ordinal.set(self.ordinal)
        self.tally.in_hand.set(self.lanes.in_hand())
        self.tally.buffered.set(self.lanes.buffered())
        self.tally.blocked_shards.set(len(summary.blocked))
        self.tally.show_active(dict(summary.epochs))
        return summary

    # -- background -----------------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Write dirty ledgers now and then, so that a crash finds marks that are not too old."""
        while True:
            await asyncio.sleep(RENEWAL * (0.9 + 0.2 * self._process.jitter()))
            for worker in self.workers:
                await worker.save_if_dirty()

    async def _adopt_orphans(self) -> None:
        """Bind queues that nobody is bound to: the way out when seats or their store fail."""
        while True:
            await asyncio.sleep(self._process.orphan_cycle * (0.9 + 0.2 * self._process.jitter()))
            if self._stopping or not self.is_connected:
                continue
            unreadable = self._membership.unreadable_since
            if self._seating.seat is None and (unreadable is None or self.now() - unreadable < 30.0):
                continue
            for queue in await self._orphans():
                log.warning("queue %d: nobody is bound to it; adopting it", queue)
                self.workers[queue].adopt()

    async def _orphans(self) -> list[int]:
        try:
            admin = await self._adapter.open_admin(self._process.broker_url)
            try:
                states = await admin.observe(self.prefix)
            finally:
                await admin.close()
        except base.BrokerError as problem:
            log.info("cannot look for orphaned queues: %s", problem)
            return []
        return [state.queue for state in states if state.links == 0]

    async def _watch(self) -> None:
        """Beat the pulse; end the process when a call without a link runs on beyond the drain budget."""
        while True:
            await asyncio.sleep(PULSE)
            paused = self.now() - self._pulse_at > STALL
            self._pulse_at = self.now()
            if paused:
                await asyncio.sleep(0.05)  # let the loop read what the broker has to say first
            self._bench.pump()
            since = self._bench.oldest_orphan()
            if since is not None and self.now() - since > self.settings.timing.drain_budget and not self._stopping:
                log.error("a handler call outlived its connection and the drain budget: ending this process")
                self.exit_code = EXIT_HANDLER
                self._stop_requested.set()

    async def _hand_over_everything(self) -> None:
        self._stopping = True
        self._seating.stop()
        self._membership.poke()
        for worker in self.workers:
            worker.stop()
        while not all(worker.machine.is_at_rest for worker in self.workers):
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), PULSE)
        await self._membership.leave()

    def _ended(self, work: asyncio.Future[None]) -> None:
        self._tasks.discard(work)
        if not work.cancelled() and (bug := work.exception()) is not None:
            log.critical("bug in the consumer", exc_info=bug)
            self.exit_code = 1
            self._stop_requested.set()


async def _first_look(store: membership.MembershipStore) -> membership.Membership:
    pause = 0.1
    while True:
        try:
            return await store.observe()
        except membership.StoreUnavailable as problem:
            log.warning("membership store: %s; trying again", problem)
            await asyncio.sleep(pause)
            pause = min(5.0, pause * 2)


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
