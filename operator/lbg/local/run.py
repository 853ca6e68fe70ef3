"""`lbg run GROUP.yaml`: one group on this machine until somebody ends it.

Here the run meets its terminal: signals, the live view or plain lines, the exit code. What a run does is in
`lbg.local.supervisor`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lbg.brokers import base, registry
from lbg.brokers.base import HandoverAbility
from lbg.core import spec
from lbg.core.membership import StoreUnavailable
from lbg.core.run_log import RunEvent
from lbg.local import folders, screens, signals, store
from lbg.local.coordinator import Look
from lbg.local.errors import LocalError, StorageRefused
from lbg.local.journal import Journal
from lbg.local.screens import Screen
from lbg.local.supervisor import Setting, Supervisor

EXIT_PIPE_CLOSED: Final = 141  # 128 + SIGPIPE


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `lbg run` was asked for."""

    group: Path
    folder: Path | None = None  # the run folder; None: a new one in .lbg/runs
    under: Path = field(default_factory=Path.cwd)  # where .lbg is
    broker: str | None = None  # URL; None: the embedded broker
    handover: HandoverAbility = HandoverAbility.COOPERATIVE  # which ability the embedded broker plays
    live: bool | None = None  # the live view; None: if standard output is a terminal
    environment: Mapping[str, str] = field(default_factory=dict)  # of the consumers, added to our own


Story = Callable[[Supervisor], Awaitable[int]]
"""Something that goes on while the run is up; the run ends with it, and with its exit code."""


def run(options: Options) -> int:
    """Run a group until Ctrl-C, SIGTERM or `lbg stop`; return the exit code. Only in the main thread.

    Raises:
        spec.SpecError: the YAML is not a group.
        LocalError: the run cannot start or go on; StorageRefused where the machine's storage refuses.
        base.BrokerError: the broker does not start or does not let us in.
        OSError: the YAML cannot be read.
    """
    return to_its_end(prepare(options), screens.choose(options.live))


def prepare(options: Options) -> Setting:
    """Read the group and choose the run folder; nothing is written yet. Raises as `run`."""
    text = options.group.read_text(encoding="utf-8")
    group = spec.load(text, str(options.group))
    if options.broker is not None:
        registry.adapter(options.broker)  # a scheme that nobody knows must not leave a run folder behind
    chosen = folders.RunFolder(options.folder) if options.folder is not None else None
    return Setting(
        group=group,
        text=text,
        source=str(options.group),
        run=chosen or folders.fresh(group.metadata.name, options.under, datetime.now(UTC)),
        broker_url=options.broker,
        handover=options.handover,
        environment=options.environment,
    )


def to_its_end(setting: Setting, screen: Screen, story: Story | None = None) -> int:
    """Run `supervise` on an event loop of its own. Only in the main thread. Raises as `run`."""
    with signals.held():
        return asyncio.run(supervise(setting, screen, story))


async def supervise(setting: Setting, screen: Screen, story: Story | None = None) -> int:
    """Bring a run up, keep it until it is asked to end or its story is over, take it down. Raises as `run`."""
    with signals.caught() as asked, _opened(setting, screen.note) as (state, notes):
        supervisor = Supervisor(setting, notes, state)
        screen.begin(supervisor)
        work = asyncio.ensure_future(_work(supervisor, screen, story))
        await _first_of(work, asked.first)
        ending = asyncio.ensure_future(_end(supervisor, work, asked))
        await _first_of(ending, asked.second)
        screen.end()
        if not ending.done():
            ending.cancel()
            await supervisor.kill(asked.exit_code or 1)
            await asyncio.gather(ending, work, return_exceptions=True)
            return asked.exit_code or 1
        code = ending.result()
        screen.say(f"run folder {setting.run.path}")
        return code


async def _work(supervisor: Supervisor, screen: Screen, story: Story | None) -> int:
    await supervisor.start()

    def look(seen: Look) -> None:
        screen.look(seen)
        if screen.closed:
            supervisor.wanted_end.set()

    supervisor.on_look = look
    serving = asyncio.ensure_future(supervisor.serve())
    telling = asyncio.ensure_future(story(supervisor)) if story is not None else None
    tasks: list[asyncio.Future[Any]] = [task for task in (serving, telling) if task is not None]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if telling is not None and telling.done():
            return telling.result()
        serving.result()
        return EXIT_PIPE_CLOSED if screen.closed else 0
    finally:
        supervisor.wanted_end.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _end(supervisor: Supervisor, work: asyncio.Task[int], asked: signals.Signals) -> int:
    """Stop the work wherever it stands, take the run down, and return its exit code or raise what ended it."""
    if not work.done():
        work.cancel()
    (result,) = await asyncio.gather(work, return_exceptions=True)
    code = asked.exit_code
    if code is None:
        code = result if isinstance(result, int) else exit_code_of(result)
    await supervisor.end(code)
    if asked.exit_code is None and isinstance(result, BaseException):
        raise result
    return code


def exit_code_of(error: BaseException) -> int:
    """Return the exit code that `lbg run` will end with, for the log: it is written before the error has its line.

    The command line has the last word on codes; a test compares the two.
    """
    match error:
        case StorageRefused() | StoreUnavailable() | base.StoreDamaged() | base.LedgerUnreadable():
            return 4
        case base.Conflict() | base.NotEmpty() | base.Missing() | base.BindRefused() | base.Unsupported():
            return 1
        case base.BrokerError():
            return 3
        case LocalError():
            return 1
    return 70


async def _first_of(work: asyncio.Future[int], event: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(event.wait())
    both: list[asyncio.Future[Any]] = [work, waiting]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@contextlib.contextmanager
def _opened(setting: Setting, on_event: Callable[[RunEvent], None]) -> Iterator[tuple[store.State, Journal]]:
    """Create or continue the run folder, and hold it."""
    run = setting.run
    run.create()
    with run.held():
        try:
            with contextlib.closing(store.create(run.state)) as state:
                _refuse_another_group(setting, state)
                run.group.write_text(setting.text, encoding="utf-8")
                with contextlib.closing(Journal(run.events, on_event)) as notes:
                    yield state, notes
        except StoreUnavailable as refused:
            raise StorageRefused(str(refused)) from None


def _refuse_another_group(setting: Setting, state: store.State) -> None:
    view = state.view()
    if view is not None and view.group != setting.group.name:
        remedy = "choose another folder with --dir"
        raise LocalError(f"run folder {setting.run.path} is of group {view.group}, not {setting.group.name}: {remedy}")
