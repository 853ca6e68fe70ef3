"""Virtual time: a heap of what happens when, and processes written as generators that yield how long they pause."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Nap:
    """A pause that `Process.wake` ends early."""

    seconds: float


Script: TypeAlias = Generator[float | Nap, None, None]


class Clock:
    """Runs what is due, in order of time and then of scheduling. Nothing ever waits for real."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = itertools.count()

    def call(self, delay: float, action: Callable[..., object], *arguments: Any) -> None:
        """Call after a delay in seconds."""
        self.call_at(self.now + delay, action, *arguments)

    def call_at(self, at: float, action: Callable[..., object], *arguments: Any) -> None:
        """Call at a moment; what was asked for first comes first."""
        heapq.heappush(self._due, (max(at, self.now), next(self._count), action, arguments))

    def run(self, until: float) -> None:
        """Let time pass up to a moment."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(self._due)
            action(*arguments)
        self.now = max(self.now, until)


class Process:
    """One process of the world: it can be paused (SIGSTOP) and killed (SIGKILL) at any time."""

    def __init__(self, clock: Clock) -> None:
        self.is_dead = False
        self._clock = clock
        self._script: Script | None = None
        self._paused_until = 0.0
        self._unheard: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._turn = 0
        self._naps = False
        self._was_woken = False

    def start(self, script: Script) -> None:
        """Run a script from now on."""
        self._script = script
        self._sleep(0.0)

    def pause(self, seconds: float) -> None:
        """Do nothing for a while; whatever falls due meanwhile is done afterwards."""
        self._paused_until = max(self._paused_until, self._clock.now + seconds)
        self._clock.call_at(self._paused_until, self._catch_up)

    def kill(self) -> None:
        """End at once; nothing that was on its way here is heard."""
        self.is_dead = True

    def wake(self) -> None:
        """End a nap, or else the next one."""
        if self._naps:
            self._naps = False
            self._sleep(0.0)
        else:
            self._was_woken = True

    def hear(self, action: Callable[..., object], *arguments: Any) -> None:
        """Do something that came from outside: now, after a pause, or never."""
        if self.is_dead:
            return
        if self._clock.now < self._paused_until or self._unheard:
            self._unheard.append((action, arguments))
        else:
            action(*arguments)

    def _catch_up(self) -> None:
        while self._unheard and self._clock.now >= self._paused_until and not self.is_dead:
            action, arguments = self._unheard[0]
            action(*arguments)
            self._unheard.popleft()  # only now: what it causes at once comes behind

    def _sleep(self, seconds: float) -> None:
        self._turn += 1
        self._clock.call(seconds, self.hear, self._step, self._turn)

    def _step(self, turn: int) -> None:
        if turn != self._turn or self._script is None:
            return  # woken meanwhile
        pause = next(self._script, None)
        if pause is None:
            self._script = None
            return
        if isinstance(pause, Nap):
            self._naps = not self._was_woken
            self._sleep(0.0 if self._was_woken else pause.seconds)
            self._was_woken = False
        else:
            self._naps = False
            self._sleep(pause)


class Pipe:
    """One direction of a connection: everything arrives, late and in order."""

    def __init__(self, clock: Clock, delay: Callable[[], float]) -> None:
        self._clock = clock
        self._delay = delay
        self._last = 0.0

    def send(self, action: Callable[..., object], *arguments: Any) -> None:
        """Call at the other end, after all that was sent before."""
        self._last = max(self._last, self._clock.now + self._delay())
        self._clock.call_at(self._last, action, *arguments)
