"""Control of a live run from another terminal: orders are filed in the run's state file, and the supervisor answers.

There is no second path: no socket, no signal. What can be asked here is asked through the same file that the consumers
read, so whoever can write the run folder can control the run, and nobody else can.
"""

from __future__ import annotations

import contextlib
import getpass
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from lbg.core.membership import Blocked, StoreUnavailable
from lbg.local import folders, store
from lbg.local.errors import LocalError
from lbg.local.folders import RunFolder

T = TypeVar("T")

SCALE: Final = "scale"
KILL: Final = "kill"
ROLLOUT: Final = "rollout"
SKIP: Final = "skip"
STOP: Final = "stop"

STATUS: Final = "status"
"""Name of the document that holds the last status."""

_POLL_SECONDS: Final = 0.02


def scale(group_or_dir: str, replicas: int, *, base: Path | None = None) -> str:
    """Ask for a number of consumers; return what was decided. Where autoscaling decides, it overrides this.

    Raises:
        LocalError: there is no such live run, or it refuses.
    """
    return _ask(group_or_dir, base, SCALE, {"replicas": replicas})


def kill(group_or_dir: str, consumer: str, number: signal.Signals = signal.SIGKILL, *, base: Path | None = None) -> str:
    """Send a signal to one consumer, noted in the run's log. Raises as `scale`."""
    return _ask(group_or_dir, base, KILL, {"consumer": consumer, "signal": number.name})


def rollout(group_or_dir: str, *, base: Path | None = None) -> str:
    """Replace all consumers one by one, and return when the last one is replaced. Raises as `scale`."""
    return _ask(group_or_dir, base, ROLLOUT, {})


def skip(group_or_dir: str, message_id: str, *, base: Path | None = None) -> str:
    """Have a blocked event acknowledged without handling it; recorded with who asked. Raises as `scale`."""
    return _ask(group_or_dir, base, SKIP, {"message_id": message_id})


def stop(group_or_dir: str, *, base: Path | None = None) -> str:
    """Stop a run in order, and return when its supervisor has gone. Raises as `scale`."""
    return _ask(group_or_dir, base, STOP, {})


def status(group_or_dir: str, *, base: Path | None = None) -> dict[str, Any]:
    """Return the group's status in the shape of the object's `status`.

    Raises:
        LocalError: there is no such live run, or it has not looked at its group yet.
    """
    run = folders.find(group_or_dir, base or Path.cwd())
    with _opened(run) as state:
        found = state.document(STATUS)
    if found is None:
        raise LocalError(f"the run in {run.path} is starting, ask again in a moment")
    return dict(found)


def blocked(group_or_dir: str, *, base: Path | None = None) -> tuple[Blocked, ...]:
    """List blocked events, as their queues' active consumers report them. Raises as `status`."""
    run = folders.find(group_or_dir, base or Path.cwd())
    with _opened(run) as state:
        seats = state.membership().seats
    found = {b.message_id: b for seat in seats for b in seat.summary.blocked}
    return tuple(sorted(found.values(), key=lambda b: (b.queue, b.shard)))


def _ask(group_or_dir: str, base: Path | None, kind: str, arguments: Mapping[str, Any]) -> str:
    run = folders.find(group_or_dir, base or Path.cwd())
    with _opened(run) as state:
        number = _retried(lambda: state.file_order(kind, arguments, getpass.getuser(), int(time.time() * 1000)))
        order = _answered(run, state, number)
    if order.refused:
        raise LocalError(order.answer)
    return order.answer


def _answered(run: RunFolder, state: store.State, number: int) -> store.Order:
    """Wait for the answer for as long as the supervisor lives; a stop is answered by its end."""
    while True:
        alive = folders.is_live(run)  # before the look: an answer given in its last moment still counts
        order = _retried(lambda: state.order(number))
        if order.done and (order.kind != STOP or not alive):
            return order
        if not alive:
            if order.kind == STOP:
                return store.Order(order.id, STOP, {}, order.by, order.at_ms, done=True, answer="stopped")
            raise LocalError(f"the run in {run.path} ended before it did that")
        time.sleep(_POLL_SECONDS)


def _retried(call: Callable[[], T]) -> T:
    """Call again while another process holds the file for a moment."""
    for _ in range(20):
        with contextlib.suppress(StoreUnavailable):
            return call()
        time.sleep(_POLL_SECONDS)
    return call()


@contextlib.contextmanager
def _opened(run: RunFolder) -> Iterator[store.State]:
    try:
        with contextlib.closing(store.open_existing(run.state)) as state:
            yield state
    except StoreUnavailable as gone:
        raise LocalError(str(gone)) from None
