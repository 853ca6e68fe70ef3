"""An answer that one thread waits for and another gives, safe under Ctrl-C.

`concurrent.futures.Future` and `threading.Condition` take their locks in Python code, where KeyboardInterrupt can
strike between taking a lock and the `with` that would give it back. The event loop's thread would then wait for that
lock for ever, and no event would be sent again. A lock of the interpreter itself, entered by `with`, has no such gap.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LOOK: Final = 1.0
"""Seconds between two looks at whether somebody is there to answer."""


class Reply(Generic[T]):
    """One value or error, given once.

    Args:
        is_served: False once nobody will answer any more.
    """

    __slots__ = ("_answered", "_error", "_is_served", "_values")

    def __init__(self, is_served: Callable[[], bool]) -> None:
        self._is_served = is_served
        self._answered = threading.Lock()
        self._answered.acquire()
        self._values: list[T] = []
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Tell whether it was answered."""
        return bool(self._values) or self._error is not None

    def set_result(self, value: T, /) -> None:
        """Answer."""
        self._values.append(value)
        self._answered.release()

    def set_exception(self, error: BaseException, /) -> None:
        """Answer with an error, raised where it is waited for."""
        self._error = error
        self._answered.release()

    def result(self, within: float | None = None) -> T:
        """Wait for the answer.

        Raises:
            TimeoutError: none within so many seconds.
            ConnectionAbortedError: nobody will answer.
            BaseException: the error that was answered.
        """
        deadline = None if within is None else time.monotonic() + within
        while not self._answered.acquire(timeout=_LOOK if deadline is None else self._step(deadline)):
            if not self._is_served() and not self.done():
                raise ConnectionAbortedError("nobody is left to answer")
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._values[0]

    @staticmethod
    def _step(deadline: float) -> float:
        return min(_LOOK, max(0.0, deadline - time.monotonic()))
