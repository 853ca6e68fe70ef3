"""One consumer process of a local run: `python -m lbg.local.pod --run DIR --name NAME --uid UID --parent PID`.

Composition only: the state file as membership store, the broker's adapter, the consumer runtime. Everything that it
prints goes to its log in the run folder, and its last line says why it ended, since the supervisor repeats that line.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lbg.brokers import base, registry
from lbg.core import seating
from lbg.core.membership import StoreUnavailable
from lbg.local import children, folders, store
from lbg_consumer import consumer, handlers, settings

URL_VARIABLE: Final = "LBG_BROKER_URL"
"""Carries the broker's URL: an argument would show its credentials in the list of processes."""

SEAT_TIMING: Final = seating.Timing(duration=30.0, renew_every=1.0, give_up_after=20.0)
"""A renewal a second: the file is local, and the autoscaler's rates are as old as the last renewal."""

EXIT_CONFIGURATION: Final = 78  # EX_CONFIG of sysexits.h: trying again does not help

log = logging.getLogger("lbg.local.pod")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line."""

    run: Path
    name: str
    uid: str
    parent: int


class ReportingAdapter:
    """An adapter that says when this process has a session and when it has lost it."""

    def __init__(self, adapter: base.Adapter, report: Callable[[bool], None]) -> None:
        self._adapter = adapter
        self._report = report

    async def open_admin(self, url: str) -> base.Admin:
        """Connect the control plane."""
        return await self._adapter.open_admin(url)

    async def open_session(self, url: str, *, name: str) -> base.Session:
        """Connect the data plane, and report."""
        session = await self._adapter.open_session(url, name=name)
        self._report(True)
        session.lost.add_done_callback(lambda lost: None if lost.cancelled() else self._report(False))
        return session


def main(argv: list[str] | None = None) -> int:
    """Run one consumer; return its exit code. Unusable input is one line and `EXIT_CONFIGURATION`."""
    arguments = _parsed(argv)
    if not children.die_with(arguments.parent):
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        return asyncio.run(_run(arguments))
    except (handlers.HandlerUnusable, base.BrokerError, StoreUnavailable, ValueError) as unusable:
        print(f"{unusable}", file=sys.stderr, flush=True)  # noqa: T201  # the log's last line is the reason
        return EXIT_CONFIGURATION


async def _run(arguments: Arguments) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    # The order of leaving is the supervisor's: Ctrl-C must not reach a consumer on its own.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    state = store.open_existing(folders.RunFolder(arguments.run).state)

    def report(is_connected: bool) -> None:
        try:
            if is_connected:
                state.report_connected(arguments.name)
            else:
                state.report_lost(arguments.name, time.time() * 1000)
        except StoreUnavailable as problem:
            log.warning("cannot report the connection: %s", problem)

    url = os.environ[URL_VARIABLE]
    process = consumer.Process(
        identity=settings.Identity(arguments.name, arguments.uid, secrets.token_hex(4)),
        broker_url=url,
        adapter=ReportingAdapter(registry.adapter(url), report),
        seat_timing=SEAT_TIMING,
    )
    return await consumer.run(process, store.SqliteMembership(state), stopped)


def _parsed(argv: list[str] | None) -> Arguments:
    parser = argparse.ArgumentParser(prog="python -m lbg.local.pod", description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--uid", required=True)
    parser.add_argument("--parent", type=int, required=True)
    return Arguments(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: it joins handler threads, and a call that never returns would keep a pod that has handed over alive.
    os._exit(code)
