"""Python handlers: a callable named as `package.module:callable`, plain or async.

An async callable runs on the consumer's event loop and must not block it; a plain one runs in a thread of its own, one
per lane. A thread cannot be cancelled: a call that never returns keeps its lane and its shard until the process ends.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lbg_consumer import handlers
from lbg_consumer.events import Event


class AsyncHandler:
    """Awaits the user's coroutine function."""

    def __init__(self, function: Callable[[Event], Awaitable[Any]]) -> None:
        self._function = function

    async def __call__(self, event: Event) -> bytes | None:
        """Handle one event."""
        return _as_body(await self._function(event))

    async def close(self) -> None:
        """Nothing to let go of."""


class ThreadHandler:
    """Runs the user's function in threads."""

    def __init__(self, function: Callable[[Event], Any], lanes: int) -> None:
        self._function = function
        # Calls left behind by a lost connection keep their threads, so new ones must not wait for them.
        self._pool = ThreadPoolExecutor(max_workers=2 * lanes, thread_name_prefix="handler")

    async def __call__(self, event: Event) -> bytes | None:
        """Handle one event."""
        return _as_body(await asyncio.get_running_loop().run_in_executor(self._pool, self._call, event))

    async def close(self) -> None:
        """Take no more calls; running ones are left to themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call(self, event: Event) -> Any:
        try:
            return self._function(event)
        except StopIteration as stop:
            # A future cannot carry StopIteration: it would hang the call for ever.
            raise RuntimeError("the handler raised StopIteration") from stop


def open_python(path: str, *, lanes: int) -> handlers.Handler:
    """Import the callable.

    Raises:
        HandlerUnusable: it cannot be imported or called; one line says why.
    """
    module_name, _, names = path.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for name in names.split("."):
            target = getattr(target, name)
    except Exception as problem:  # importing runs the user's code, which may raise anything
        why = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise handlers.HandlerUnusable(
            f"consumers.handler.python: cannot import {path!r} ({why}): check the name and that it is on PYTHONPATH"
        ) from problem
    if not callable(target):
        raise handlers.HandlerUnusable(f"consumers.handler.python: {path!r} is not callable: name a function")
    if inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(getattr(target, "__call__", None)):  # noqa: B004
        return AsyncHandler(target)
    return ThreadHandler(target, lanes)


def _as_body(result: Any) -> bytes | None:
    if result is None or isinstance(result, bytes):
        return result
    if isinstance(result, str):
        return result.encode()
    raise TypeError(f"the handler returned {type(result).__name__}: return bytes, str or None")
