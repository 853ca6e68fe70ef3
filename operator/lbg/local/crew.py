"""Consumers as processes: the seam "create, remove a chosen one, list" on one machine.

Here lives what a ReplicaSet does on Kubernetes: unique names, replacing who died, and patience with who dies at once.
How many consumers there should be is decided in `lbg.core.plan`; this module applies it.

Patience: a consumer that dies within `YOUNG` seconds of its start delays the next start by `BACKOFF`, doubling up to
`MAX_BACKOFF`; one that lived longer is replaced at once. The first early death costs nothing, since it is mostly
somebody's SIGKILL. `STUBBORN` early deaths in a row, with no consumer ever connected, are a group that cannot start.
"""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from lbg.core import run_log
from lbg.core.observed import Consumer
from lbg.local import journal, store
from lbg.local.children import Child
from lbg.local.errors import LocalError
from lbg.local.journal import Journal

YOUNG: Final = 10.0
BACKOFF: Final = 0.5
MAX_BACKOFF: Final = 30.0
STUBBORN: Final = 3

_REAPED_WITHIN: Final = 2.0  # a killed process is gone at once, unless it hangs in the kernel

Spawn = Callable[[str, str], Awaitable[Child]]
"""Starts the consumer of a name and a uid."""


@dataclass(slots=True)
class Member:
    """One consumer process and what was done to it."""

    child: Child
    uid: str
    since_ms: int
    ready: bool = False
    leaving: bool = False
    outdated: bool = False
    killed: bool = False  # on purpose, and noted already

    @property
    def name(self) -> str:
        """Return the consumer's name."""
        return self.child.name

    @property
    def identity(self) -> str:
        """Return name and uid, the part of a holder that survives a restart."""
        return f"{self.name}_{self.uid}"


class Crew:
    """The consumer processes of a run."""

    def __init__(self, spawn: Spawn, notes: Journal, on_change: Callable[[], None], first_number: int = 1) -> None:
        self._spawn = spawn
        self._journal = notes
        self._on_change = on_change
        self._next_number = first_number
        self._members: dict[str, Member] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._early_deaths = 0
        self._not_before = 0.0
        self._has_connected = False
        self.trouble: str | None = None  # why consumers die at once, while they do

    @property
    def members(self) -> tuple[Member, ...]:
        """Return the living members in order of their start."""
        return tuple(self._members.values())

    def look(self) -> tuple[Consumer, ...]:
        """Return the living consumers as `plan` wants to see them."""
        return tuple(
            Consumer(m.name, m.identity, m.child.born, m.ready, m.leaving, m.outdated) for m in self._members.values()
        )

    def records(self) -> tuple[store.Process, ...]:
        """Return the living processes as other terminals see them."""
        return tuple(
            store.Process(m.name, m.uid, m.child.pid, m.child.started, m.since_ms, _phase(m))
            for m in self._members.values()
        )

    def member(self, name: str) -> Member:
        """Return a living member. Raises LocalError when there is none of that name."""
        try:
            return self._members[name]
        except KeyError:
            names = ", ".join(self._members) or "none"
            raise LocalError(f"no consumer {name} is running; running: {names}") from None

    async def add(self, count: int) -> None:
        """Start consumers, or none of them while early deaths ask for patience."""
        if time.monotonic() < self._not_before:
            return
        for _ in range(count):
            name, uid = f"consumer-{self._next_number}", uuid.uuid4().hex[:8]
            self._next_number += 1
            child = await self._spawn(name, uid)
            self._members[name] = Member(child, uid, int(time.time() * 1000))
            self._journal.note(run_log.CONSUMER_STARTED, name, pid=child.pid)
            watch = asyncio.create_task(self._watch(self._members[name]), name=f"watch {name}")
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)

    def remove(self, name: str) -> None:
        """Tell a consumer to leave; it hands over first. Idempotent."""
        member = self._members.get(name)
        if member is not None and not member.leaving:
            member.leaving = True
            member.child.send(signal.SIGTERM)

    def kill(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one consumer; SIGTERM means `remove`. Raises LocalError when it is not there."""
        member = self.member(name)
        if number is signal.SIGTERM:
            self.remove(name)
            return
        if number is signal.SIGKILL:
            # Noted first: the log must not say that a queue moved by itself before its owner was killed.
            self._journal.note(run_log.CONSUMER_KILLED, name, signal=number.name)
            member.killed = True
        else:
            self._journal.note(journal.NOTE, name, signal=number.name)
        member.child.send(number)

    def mark_outdated(self) -> int:
        """Mark every consumer that stays for replacement; return how many."""
        staying = [member for member in self._members.values() if not member.leaving]
        for member in staying:
            member.outdated = True
        return len(staying)

    def show_connected(self, names: Collection[str]) -> None:
        """Note which consumers are connected and able to bind."""
        for member in self._members.values():
            member.ready = member.name in names
            if member.ready and not self._has_connected:
                self._has_connected = True
        if any(member.ready for member in self._members.values()):
            self.trouble = None

    @property
    def cannot_start(self) -> bool:
        """Return whether consumers die at once and none has ever connected."""
        return self._early_deaths >= STUBBORN and not self._has_connected

    async def stop_all(self, grace: float) -> None:
        """Tell all to leave, kill who has not left after `grace` seconds, and wait until the last is gone."""
        for member in self.members:
            self.remove(member.name)
        if self._watches:
            await asyncio.wait(self._watches, timeout=grace)
        for member in self.members:
            self._journal.note(run_log.CONSUMER_KILLED, member.name, signal="SIGKILL", why="drain budget exceeded")
            member.killed = True
            member.child.kill()
        if self._watches:
            await asyncio.wait(self._watches)

    async def kill_all(self) -> None:
        """Kill everything now and note nothing; the run ends in disorder."""
        for member in self.members:
            member.killed = True
            member.child.kill()
        if self._watches:
            await asyncio.wait(self._watches, timeout=_REAPED_WITHIN)

    async def _watch(self, member: Member) -> None:
        code = await member.child.process.wait()
        del self._members[member.name]
        lived = time.monotonic() - member.child.born
        if member.killed:
            self._early_deaths = 0
        elif member.leaving and code in (0, -signal.SIGTERM):  # the latter before it could handle anything
            self._journal.note(run_log.CONSUMER_STOPPED, member.name)
        else:
            why = member.child.ending()
            self._journal.note(run_log.CONSUMER_DIED, member.name, code=code, why=why)
            self._be_patient(lived, why)
        self._on_change()

    def _be_patient(self, lived: float, why: str) -> None:
        self._early_deaths = self._early_deaths + 1 if lived < YOUNG else 0
        if self._early_deaths < 2:
            return
        delay = min(MAX_BACKOFF, BACKOFF * 2.0 ** (self._early_deaths - 2))
        self._not_before = time.monotonic() + delay
        if self._early_deaths >= STUBBORN:
            self.trouble = why
            self._journal.note(
                journal.CRASH_LOOP, None, deaths=self._early_deaths, next_start_in=f"{delay:g}s", why=why
            )


def _phase(member: Member) -> str:
    return "stopping" if member.leaving else "ready" if member.ready else "starting"
