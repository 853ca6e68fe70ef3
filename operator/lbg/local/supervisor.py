"""The supervisor of a run: brings the parts up, keeps them going, and takes them down in order.

The order of coming: broker, then pass after pass of `Coordinator`, which starts the consumers. The order of going:
consumers hand over and leave, the output is read to its end, the broker goes last.
Whatever fails on the way, `end` takes down what is there; `kill` does it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lbg.brokers import base, registry
from lbg.core import run_log, spec
from lbg.core.conditions import Finding, Status, Type
from lbg.core.membership import StoreUnavailable
from lbg.local import children, control, coordinator, folders, journal, orders, pod, sampling, store, tailer
from lbg.local.broker import EmbeddedBroker, shown
from lbg.local.children import Child
from lbg.local.coordinator import Coordinator, Look
from lbg.local.crew import Crew
from lbg.local.errors import LocalError, StorageRefused
from lbg.local.folders import RunFolder
from lbg.local.journal import Journal
from lbg.local.lines import Lines
from lbg.local.sampling import Sampler

PASS_SECONDS: Final = 0.2
"""Longest pause between two passes; what happens in between ends it early."""
LEAST_PAUSE: Final = 0.03
STATUS_SECONDS: Final = 0.5
STORE_PATIENCE: Final = 5.0  # how long the state file may be unavailable before the run ends
GRACE_BEYOND_BUDGET: Final = 15.0
OUTPUT_PATIENCE: Final = 2.0  # how long the last records of the output are waited for
_QUIET: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a run is started with."""

    group: spec.LoadBalancedGroup
    text: str  # the group's YAML, as the consumers will read it
    source: str  # where it came from, for the ownership mark
    run: RunFolder
    broker_url: str | None = None  # None: the embedded broker
    handover: base.HandoverAbility = base.HandoverAbility.COOPERATIVE
    environment: Mapping[str, str] = field(default_factory=dict)  # of the consumers, added to our own


class Supervisor:
    """One run, from `start` to `end`."""

    def __init__(self, setting: Setting, notes: Journal, state: store.State) -> None:
        self.setting = setting
        self.journal = notes
        self.wanted_end = asyncio.Event()
        self.look: Look | None = None
        self.broker: EmbeddedBroker | None = None
        self._state = state
        self._wake = asyncio.Event()
        self._url = setting.broker_url or ""
        self.crew = Crew(self._spawn, notes, self._wake.set, _next_number(setting.run))
        self.sampler = Sampler(setting.run.metrics)
        self.output = Lines(setting.run.output)
        self._coordinator: Coordinator | None = None
        self._orders: orders.Orders | None = None
        self._background: list[asyncio.Task[None]] = []
        self._recorded: tuple[store.Process, ...] | None = None
        self._status_at = 0.0
        self._began = time.monotonic()
        self._store_away_since: float | None = None
        self.on_look: Callable[[Look], None] = lambda _: None

    @property
    def broker_url(self) -> str:
        """Return where the broker serves; it may carry credentials."""
        return self._url

    @property
    def facts(self) -> sampling.Facts:
        """Return what the screen says about the whole run."""
        where = "the embedded broker" if self.broker is not None else shown(self._url)
        return sampling.Facts(self.setting.group, where, str(self.setting.run.path), self._began)

    async def start(self) -> None:
        """Bring up the broker and make the first pass.

        Raises:
            BrokerError: the broker does not start, does not answer, or does not let us in.
            LocalError: the group is refused, e.g. since its names are in use.
        """
        if self.setting.broker_url is None:
            self._refuse_lost_broker()
            self.broker = EmbeddedBroker(self.setting.run, self.setting.handover, self.journal, self._wake.set)
            await self.broker.start()
            self._url = self.broker.url
            self._background.append(asyncio.create_task(self.broker.keep(), name="broker"))
        self._write_run(exit_code=None)
        adapter = registry.adapter(self._url)
        await (await adapter.open_admin(self._url)).close()  # says at once what is wrong with the address
        where = coordinator.Broker(adapter, self._url, self._topology())
        setting = self.setting
        made = Coordinator(setting.group, setting.text, where, self._state, self.crew, self.journal)
        self._coordinator = made
        self._orders = orders.Orders(self._state, made, self.crew, self.journal, self.wanted_end.set)
        self._orders.refuse_left_overs()
        self.journal.note(journal.RUN_STARTED, group=setting.group.name, broker=shown(self._url), pid=os.getpid())
        self.journal.note(run_log.CONTRACT, **spec.contract(setting.group).to_mapping())
        if (stream := setting.group.spec.consumers.output_to) is not None:
            follow = tailer.follow(self._connect_tailer, setting.group.prefix, stream, self.output)
            self._background.append(asyncio.create_task(follow, name="output"))
        await self._first_pass(made)

    async def serve(self) -> None:
        """Make pass after pass until the run is asked to end.

        Raises:
            StorageRefused: the run folder cannot be written any more.
            LocalError: no consumer can start.
        """
        while not self.wanted_end.is_set():
            await self._pass()
            await self._pause()

    async def end(self, exit_code: int) -> None:
        """Take everything down in order: consumers, output, broker. Idempotent; never gives up half way."""
        made, self._coordinator = self._coordinator, None
        if made is not None:
            self.journal.note(journal.RUN_STOPPING)
            grace = self.setting.group.spec.consumers.drain_budget + GRACE_BEYOND_BUDGET
            deadline = time.monotonic() + grace
            with contextlib.suppress(StoreUnavailable, LocalError):
                await self._hand_over(made, deadline)
            await self.crew.stop_all(max(1.0, deadline - time.monotonic()))
            await self._finish_output()
            await made.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self.broker is not None:
            await self.broker.stop()
        self._close(exit_code)

    async def kill(self, exit_code: int) -> None:
        """Take everything down at once."""
        for task in self._background:
            task.cancel()  # first, or the broker would be started again
        if self.broker is not None:
            self.broker.kill()
        await self.crew.kill_all()
        self._close(exit_code)

    def ask(self, kind: str, arguments: Mapping[str, Any]) -> int:
        """File an order as another terminal would; return its number."""
        number = self._state.file_order(kind, arguments, "this run", int(time.time() * 1000))
        self._wake.set()
        return number

    def answer_to(self, number: int) -> store.Order:
        """Return an order with its answer so far."""
        return self._state.order(number)

    def trouble(self) -> str | None:
        """Return what a person should know first, or None."""
        if self.crew.trouble is not None:
            return f"consumers die at once: {self.crew.trouble}"
        if self.broker is not None and self.broker.trouble is not None:
            return self.broker.trouble
        if self.look is None:
            return None
        bad = [c.finding for c in self.look.plan.conditions if _is_bad(c.finding)]
        return bad[0].message if bad else None

    def _refuse_lost_broker(self) -> None:
        run = self.setting.run
        if self.output.count and not run.broker.exists():
            raise LocalError(f"{run.broker} is gone and {run.output} is not: start a new run in another folder")

    async def _first_pass(self, made: Coordinator) -> None:
        self.look = await made.step()
        while (why := coordinator.refusal(self.look.plan)) is None and self.look.plan.requeue_after == 0.0:
            self.look = await made.step()
        if why is not None:
            self._coordinator = None  # nothing was started that would have to hand over
            raise LocalError(f"group {self.setting.group.name}: {why}")

    async def _pass(self) -> None:
        made, asked = self._coordinator, self._orders
        assert made is not None
        assert asked is not None
        try:
            asked.take()
            self.look = await made.step()
            asked.answer()
            self._publish(self.look)
            self._store_away_since = None
        except StoreUnavailable as away:
            self._store_away_since = self._store_away_since or time.monotonic()
            if time.monotonic() - self._store_away_since > STORE_PATIENCE or not self.setting.run.state.exists():
                raise StorageRefused(str(away)) from None
            return
        self.sampler.sample(self.look)
        self._raise_failures()
        self.on_look(self.look)

    def _raise_failures(self) -> None:
        for failure in (self.journal.failure, self.sampler.failure):
            if failure is not None:
                raise failure
        for task in self._background:
            if task.done():
                task.result()
        if self.crew.cannot_start:
            log = self.setting.run.path / "logs"
            raise LocalError(f"no consumer of {self.setting.group.name} can start: {self.crew.trouble} (logs in {log})")

    def _publish(self, look: Look) -> None:
        """Write what other terminals read, when it has changed: every commit wakes the consumers."""
        processes = self.crew.records()
        if processes != self._recorded:
            self._state.write_processes(processes)
            self._recorded = processes
        if time.monotonic() - self._status_at >= STATUS_SECONDS:
            self._state.write_document(control.STATUS, look.plan.status.to_mapping())
            self._status_at = time.monotonic()

    async def _pause(self) -> None:
        """Return when something has happened, or the next pass is due."""
        deadline = time.monotonic() + PASS_SECONDS
        await asyncio.sleep(LEAST_PAUSE)
        with contextlib.suppress(StoreUnavailable):
            seen = self._state.data_version()
            while time.monotonic() < deadline and not self._wake.is_set() and not self.wanted_end.is_set():
                if self._state.data_version() != seen:
                    break
                await asyncio.sleep(store.POLL_SECONDS)
        self._wake.clear()

    async def _hand_over(self, made: Coordinator, deadline: float) -> None:
        """Let the plan empty the group: effective falls to 0, consumers hand over, and are told to go."""
        made.suspend()
        while self.crew.members and time.monotonic() < deadline:
            self.look = await made.step()
            self.on_look(self.look)
            await self._pause()

    async def _finish_output(self) -> None:
        """Wait until the last records have been copied: there is no end mark, so until nothing comes for a moment."""
        handled = self.sampler.handled or 0
        deadline, count, quiet_since = time.monotonic() + OUTPUT_PATIENCE, self.output.count, time.monotonic()
        while (now := time.monotonic()) < deadline:
            if self.output.count != count:
                count, quiet_since = self.output.count, now
            if now - quiet_since >= _QUIET and count >= handled:
                return
            await asyncio.sleep(tailer.FLUSH_SECONDS)

    async def _connect_tailer(self) -> base.Session:
        return await registry.adapter(self._url).open_session(self._url, name="output")

    async def _spawn(self, name: str, uid: str) -> Child:
        run = self.setting.run
        arguments = [sys.executable, "-m", "lbg.local.pod", "--run", str(run.path.absolute()), "--name", name]
        arguments += ["--uid", uid, "--parent", str(os.getpid())]
        environment = {**self.setting.environment, pod.URL_VARIABLE: self._url}
        return await children.spawn(name, arguments, run.log(name), environment)

    def _topology(self) -> base.Topology:
        group = self.setting.group
        stream = group.spec.consumers.output_to
        return base.Topology(
            contract=spec.contract(group),
            owner=f"{os.uname().nodename}/{Path(self.setting.source).absolute()}",
            queue_type=group.spec.queues.type.value,
            size_limit=group.spec.queues.size_limit,
            outputs=() if stream is None else (stream,),
            join=group.spec.stream.join,
        )

    def _write_run(self, exit_code: int | None) -> None:
        now, group = int(time.time() * 1000), self.setting.group.name
        ended = None if exit_code is None else now
        started = folders.started(os.getpid()) or 0
        self._state.write_run(store.Run(group, os.getpid(), started, now, shown(self._url), ended, exit_code))

    def _close(self, exit_code: int) -> None:
        self.journal.note(journal.RUN_ENDED, exit_code=exit_code)
        with contextlib.suppress(StoreUnavailable):
            self._write_run(exit_code)
        with contextlib.suppress(StorageRefused):
            self.output.flush()
        for part in (self.output, self.sampler, self.journal, self._state):
            part.close()


def _next_number(run: RunFolder) -> int:
    """Return a number that no consumer of this folder had: names must be unique over restarts of the supervisor."""
    numbers = [path.stem.removeprefix("consumer-") for path in (run.path / "logs").glob("consumer-*.log")]
    return max((int(number) for number in numbers if number.isdigit()), default=0) + 1


def _is_bad(finding: Finding) -> bool:
    if finding.type in (Type.QUEUE_BLOCKED, Type.HANDOVER_STALLED, Type.LEDGER_UNREADABLE):
        return finding.status is Status.TRUE
    return finding.type is Type.BROKER_REACHABLE and finding.status is Status.FALSE
