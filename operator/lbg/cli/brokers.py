"""Which broker a command talks to, and the event loop in which it does so.

The URL may hold a password. It is taken from the environment or a file as well as from the command line, which other
users of the machine can read; once known, its password is hidden from everything that is written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar

import typer

from lbg.cli import redaction
from lbg.cli.errors import BadInput, Ended
from lbg.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from lbg.brokers import base

T = TypeVar("T")

VARIABLE: Final = "LBG_BROKER"
_LONGEST: Final = 10_000

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        help=f"Broker's URL; also from {VARIABLE}. Without any: that of the run going on here.",
    ),
]
UrlFile: TypeAlias = Annotated[
    Path | None, typer.Option("--broker-file", metavar="FILE", help="File that holds the broker's URL on one line.")
]


def named(url: str | None, file: Path | None) -> str | None:
    """Return the URL that stands on the command line or in the file, and hide its password from now on.

    Raises:
        BadInput: both are given, or what is given is no URL.
        OSError: the file cannot be read.
    """
    if url is not None and file is not None:
        raise BadInput("--broker-file: stands beside --broker: give one of them")
    if file is not None:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return _checked(opened.read(_LONGEST).strip(), str(file))
    return None if url is None else _checked(url, "--broker")


def _checked(url: str, source: str) -> str:
    redaction.remember(url)
    # What is wrong with it is not shown: half of a URL may be the half with the password.
    if "://" not in url or any(c.isspace() for c in url):
        raise BadInput(f"{source}: is no URL of a broker: write one such as embedded:///run/lbg.sock")
    return url


def elsewhere(url: str | None, file: Path | None) -> str | None:
    """Return the URL named, or that of the environment. Raises as `named`."""
    found = named(url, file)
    fallback = os.environ.get(VARIABLE)
    return _checked(fallback, VARIABLE) if found is None and fallback else found


def chosen(url: str | None, file: Path | None) -> str:
    """Return the URL named, or that of the environment, or that of the only run that is live here.

    Raises:
        BadInput: there is none; see also `named`.
    """
    from lbg.cli import runs

    found = elsewhere(url, file) or runs.broker_of_the_live_run()
    if found is None:
        raise BadInput(f"--broker: is missing: name the broker's URL here, in --broker-file or in {VARIABLE}")
    return found


def adapter(url: str) -> base.Adapter:
    """Return the adapter for a URL.

    Raises:
        Ended: no adapter knows the scheme, or what it needs is not installed; the line says which extra to install.
    """
    from lbg.brokers import base, registry

    try:
        return registry.adapter(url)
    except base.Unsupported as refused:
        # A scheme that the registry knows is refused for one reason only.
        is_known = url.partition("://")[0] in registry.ADAPTERS
        raise Ended(str(refused), ExitCode.MISSING_EXTRA if is_known else ExitCode.USAGE) from refused


@contextlib.asynccontextmanager
async def admin(url: str) -> AsyncIterator[base.Admin]:
    """Open the control plane of the broker at a URL.

    Raises:
        Ended: as `adapter`.
        BrokerError: nothing answers, or it does not let us in.
    """
    opened = await adapter(url).open_admin(url)
    try:
        yield opened
    finally:
        await opened.close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, with what libraries log about it as single lines on standard error."""
    import asyncio

    from lbg.cli import diagnostics

    with diagnostics.on_standard_error():
        return asyncio.run(main)
