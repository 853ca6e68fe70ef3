"""`lbg verify`: the validator's verdict on an output. What it means is defined in `lbg.validator`."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lbg.cli import errors, inputs, output, stopping
from lbg.cli.exit_codes import ExitCode
from lbg.cli.panels import CHECK, examples
from lbg.core.hashing import Algorithm

if TYPE_CHECKING:
    from lbg import validator


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=CHECK,
        epilog=examples(
            "lbg verify orders                                   # the newest run of this group",
            "lbg verify out.jsonl --source orders.csv --key account --group orders.yaml",
            "lbg verify .lbg/runs/orders-20260101T120000Z --follow",
            "lbg verify out.jsonl -o json | jq .order_errors",
        ),
    )(verify)


def verify(
    recorded: Annotated[
        str,
        typer.Argument(
            metavar="OUTPUT", help="Run folder, group (its newest run here), or file of output records; - is stdin."
        ),
    ],
    source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What was published: CSV, JSON lines or a manifest.")
    ] = None,
    key: Annotated[
        str, typer.Option(metavar="COLUMN[,COLUMN]", help="Column(s) of the source that make the key.")
    ] = "key",
    missing: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="A value of the source that means no key; may be repeated."),
    ] = None,
    missing_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key under which rows without one were published.")
    ] = None,
    group: Annotated[
        Path | None, typer.Option(metavar="GROUP.yaml", help="Take HC and algorithm of the source's stream from here.")
    ] = None,
    count: Annotated[int | None, typer.Option(metavar="HC", help="Number of shards of the source's stream.")] = None,
    algorithm: Annotated[Algorithm, typer.Option(help="Hash of the source's stream.")] = Algorithm.XXH64,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The run's log; by default the one beside OUTPUT.")
    ] = None,
    in_hand: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Events that one consumer may have in hand when it dies.")
    ] = None,
    allow_unsequenced: Annotated[
        bool, typer.Option("--allow-unsequenced", help="Leave out events that carry no sequence.")
    ] = False,
    shown: Annotated[int, typer.Option("--examples", metavar="N", min=0, help="Faults to show of each kind.")] = 10,
    held: Annotated[bool, typer.Option("--held", help="Also show which consumer held which queue, and when.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on while the output grows, until its run ends or Ctrl-C.")
    ] = False,
    idle: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="With --follow: end after so long without news.")
    ] = None,
    form: output.Output = output.Format.TEXT,
) -> ExitCode:
    """Check what consumers wrote: order, gaps, duplicates.

    Also counts the moves of queues and what each cost. OUTPUT is read in arrival order and never sorted. The exit code
    is 0 only if the verdict is ok. With --follow a verdict is printed whenever there is news, as one JSON value a line
    with -o json.
    """
    from lbg import validator

    if idle is not None and not follow:
        raise errors.BadInput("--idle: says when --follow ends: give --follow too, or leave it out")
    options = validator.Options(in_hand_bound=in_hand, allow_unsequenced=allow_unsequenced, examples=shown)
    arguments: dict[str, Any] = {"log": log, "options": options, "source": None}
    if source is not None:
        chosen = _source(source, key, group, count, algorithm)
        arguments["source"] = replace(chosen, missing=chosen.missing | set(missing or ()), missing_key=missing_key)
    elif group is not None or count is not None:
        raise errors.BadInput("--source: is missing: the stream's contract is needed to read a source only")
    recorded = _found(inputs.not_empty(recorded, "OUTPUT"))
    if follow:
        return _follow(recorded, arguments, idle, held, form)
    verdict = validator.verify_path(recorded, **arguments)
    _write(verdict, held, form)
    return ExitCode(verdict.exit_code)


def _found(recorded: str) -> str:
    """Return what to read: a path as it is, or else the newest run folder of the group of that name."""
    if recorded == "-" or os.sep in recorded or Path(recorded).exists():
        return recorded
    from lbg.local import folders

    run = folders.latest(recorded, Path.cwd())
    return recorded if run is None else str(run.path)


def _source(path: Path, key: str, group: Path | None, count: int | None, algorithm: Algorithm) -> validator.SourceFile:
    from lbg import validator
    from lbg.core import hashing, spec

    if group is not None:
        contract = spec.contract(inputs.read_group(group))
        count, algorithm = contract.count, contract.algorithm
    if count is not None:
        with errors.inputs_refused_as("--"):
            hashing.sharder(count, algorithm)
    return validator.SourceFile(path=path, key=inputs.columns(key), count=count, algorithm=algorithm)


def _write(verdict: validator.Verdict, held: bool, form: output.Format) -> None:
    from lbg import validator

    if form is output.Format.JSON:
        output.write_json(validator.to_json(verdict))
    else:
        output.write(validator.render_text(verdict, held=held))


def _follow(recorded: str, arguments: dict[str, Any], idle: float | None, held: bool, form: output.Format) -> ExitCode:
    from lbg import validator

    latest, news_at = None, time.monotonic()
    with stopping.on_signals() as signals:

        def stop() -> bool:
            is_idle = idle is not None and time.monotonic() - news_at >= idle
            return signals.asked or is_idle or _run_has_ended(Path(recorded))

        for latest in validator.follow_path(recorded, stop=stop, wait=signals.wait, **arguments):
            news_at = time.monotonic()
            if form is output.Format.JSON:
                output.write_json_line(validator.to_json(latest))
            else:
                output.write_now(_one_line(latest))
        if latest is not None and form is output.Format.TEXT:
            output.write(validator.render_text(latest, held=held))
        if signals.asked:
            output.note("interrupted, this is the verdict on what there was")
            return signals.code
    return ExitCode.NOT_OK if latest is None else ExitCode(latest.exit_code)


def _one_line(verdict: validator.Verdict) -> str:
    names = ("events", "keys", "order_errors", "gaps", "duplicates", "duplicates_on_planned_moves", "moves")
    return "  ".join(f"{name.replace('_', ' ')} {getattr(verdict, name):,}" for name in names)


def _run_has_ended(recorded: Path) -> bool:
    """Tell whether the output is a run's and the run is over; false for any other output, and before the run began."""
    from lbg.local import folders

    run = folders.RunFolder(recorded if recorded.is_dir() else recorded.parent)
    return run.state.exists() and not folders.is_live(run)
