"""Handlers that tests name by path; what they should do is set from the test."""

from __future__ import annotations

import asyncio
import collections
import os
import signal
import threading

from lbg_consumer.events import Event

failing: collections.Counter[str] = collections.Counter()  # key -> how many more calls fail
calls: list[tuple[str, int, int]] = []  # key, sequence, attempt
gate = asyncio.Event()
threads: set[str] = set()
released = threading.Event()


async def work(seconds: float) -> None:
    """Occupy a lane for a while, as a handler does that waits for its database."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(seconds, done.set_result, None)
    await done


async def fails_on_demand(event: Event) -> bytes:
    """Fail as often as the test asked for this key."""
    calls.append((event.key, event.sequence if event.sequence is not None else -1, event.attempt))
    if failing[event.key] > 0:
        failing[event.key] -= 1
        raise ValueError(f"{event.key} is not for me")
    return event.body


def in_threads(event: Event) -> str:
    """Handle in a thread."""
    threads.add(threading.current_thread().name)
    return event.key


def waits_for_release(event: Event) -> None:
    """Run until the test lets go, whatever happens to the connection."""
    calls.append((event.key, event.sequence if event.sequence is not None else -1, event.attempt))
    if event.key == "stuck":
        released.wait(30)


async def exits(event: Event) -> None:
    """Do what no handler should."""
    if event.key == "bad":
        raise SystemExit(3)


async def kills_its_process(event: Event) -> None:
    """Take the process down on one key, with its neighbours in hand."""
    await work(0.005)
    if event.key == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    await work(0.02)


async def takes_a_moment(_: Event) -> None:
    """Take a few milliseconds."""
    await work(0.003)
