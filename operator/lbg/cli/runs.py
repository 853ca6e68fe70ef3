"""Which local run a command means: the one that is named, or the only live one here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from lbg.cli.errors import NotNow

if TYPE_CHECKING:
    from lbg.local.folders import RunFolder

_HELP: Final = "Group or run folder of a live run"

Named: TypeAlias = Annotated[str, typer.Argument(metavar="GROUP", help=f"{_HELP}.")]
Optional: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="GROUP", help=f"{_HELP}; not needed while only one is live here.")
]


def meant(run: str | None) -> str:
    """Return the group or folder that was named, or the folder of the only live run here.

    Raises:
        NotNow: none is named, and no run or more than one is live.
    """
    if run is not None:
        return run
    found = list(live())
    if len(found) == 1:
        return str(found[0].path)
    if not found:
        raise NotNow("no run is live here: start one with `lbg run GROUP.yaml`, or name its folder")
    raise NotNow(f"{len(found)} runs are live, name one by its folder: {', '.join(str(run.path) for run in found)}")


def live() -> Iterator[RunFolder]:
    """Iterate over the live runs below the nearest folder of runs: in the working directory, or above it."""
    from lbg.local import folders

    here = Path.cwd()
    nearest = next((base / folders.RUNS for base in (here, *here.parents) if (base / folders.RUNS).is_dir()), None)
    if nearest is not None:
        # Relative where possible: it is what a person types.
        root = folders.RUNS if nearest == here / folders.RUNS else nearest
        candidates = (folders.RunFolder(state.parent) for state in sorted(root.glob("*/state.db")))
        yield from (run for run in candidates if folders.is_live(run))


def find(group_or_dir: str) -> RunFolder:
    """Return the live run of a group, or in a folder. Raises LocalError as `folders.find`."""
    from lbg.local import folders

    return folders.find(group_or_dir, Path.cwd())


def broker_of(run: RunFolder) -> str | None:
    """Return the URL of a run's embedded broker; None for another broker, whose URL in the folder lacks credentials."""
    from lbg.brokers.embedded.connection import TCP_SCHEME, UNIX_SCHEME
    from lbg.local import store

    with contextlib.closing(store.open_existing(run.state)) as state:
        url = state.run().broker
    return url if url.partition("://")[0] in (UNIX_SCHEME, TCP_SCHEME) else None


def broker_of_the_live_run() -> str | None:
    """Return the URL of the embedded broker of the only live run here, or None."""
    found = list(live())
    return broker_of(found[0]) if len(found) == 1 else None
