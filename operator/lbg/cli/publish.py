"""`lbg publish`: the rows of a file as events. How they are read and sent is the business of `lbg.publishing`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from lbg.cli import brokers, errors, inputs, output, progress, runs
from lbg.cli.exit_codes import ExitCode
from lbg.cli.panels import BROKER, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbg.local.folders import RunFolder
    from lbg.publishing import feeding
    from lbg.publishing.contracts import Stream
    from lbg.publishing.rows import Layout, Row


class Kind(StrEnum):
    """The formats of a file of rows."""

    CSV = "csv"
    JSONL = "jsonl"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=BROKER,
        epilog=examples(
            "lbg publish orders.csv --key account                    # to the run that is live here",
            "lbg publish orders.csv --key account --order placed_at --group orders --rate 500",
            "zcat orders.jsonl.gz | lbg publish - --format jsonl --key account --group orders.yaml",
            "lbg publish flights.csv --key tailnum --missing NA --missing-key no-tailnum -o json",
        ),
    )(publish)


def publish(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV with a header, or JSON lines; - is standard input.")
    ],
    key: Annotated[str, typer.Option(metavar="COLUMN[,COLUMN]", help="Column(s) that make the key.")],
    order: Annotated[
        str | None, typer.Option(metavar="COLUMN[,COLUMN]", help="Refuse a row that is not in the order of these.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME|GROUP.yaml", help="Where to: a stream, a run, or a file."),
    ] = None,
    broker: brokers.Url = None,
    broker_file: brokers.UrlFile = None,
    kind: Annotated[Kind | None, typer.Option("--format", help="Where the file's name does not tell it.")] = None,
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHARACTER", help="Of CSV. Default: a comma, in .tsv a tab.")
    ] = None,
    missing: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="A value that means no key, such as NA; may be repeated.")
    ] = None,
    missing_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key of rows without one. Default: such a row is refused.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Rows per second. Default: as fast as the broker confirms.")
    ] = None,
    producer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who publishes. Default: this host and a random number.")
    ] = None,
    form: output.Output = output.Format.TEXT,
) -> None:
    """Publish the rows of a file as events, in their order.

    The body of each event is its row as a JSON object. The command returns when every row is confirmed. A row that
    cannot be published ends it with file, line and column, and what stood before that row is confirmed. While the
    broker is away it waits and says so; Ctrl-C ends it and says how far it came.
    """
    from lbg.publishing import feeding, rows

    layout = rows.Layout(
        key=inputs.columns(key),
        order=inputs.columns(order) if order is not None else (),
        kind=kind.value if kind is not None else None,
        missing=frozenset({"", *(missing or ())}),
        missing_key=missing_key,
        delimiter=_checked(delimiter),
    )
    pace = feeding.steady(rate) if rate is not None else None
    url, stream = _target(group, broker, broker_file)
    told = progress.Telling(source)
    try:
        ended, prefix = brokers.run(_published(url, stream, producer, _rows(source, layout), pace, told))
    except KeyboardInterrupt:
        raise errors.Ended(told.interrupted(), ExitCode.INTERRUPTED) from None
    finally:
        told.close()
    _write(ended, prefix, form)


def _rows(source: str, layout: Layout) -> Iterator[Row]:
    from lbg.publishing import rows

    if source != rows.STDIN:
        return rows.read(source, layout)
    if sys.stdin is None:
        raise errors.BadInput("standard input: is closed: name a file")
    return rows.read_from(_standard_input(), "standard input", layout)


def _standard_input() -> BinaryIO:
    """Return a reader of standard input that may be left behind while it waits.

    Rows are read in a thread, and Ctrl-C does not reach a read of a pipe that stays silent. The interpreter takes the
    lock of `sys.stdin` as it ends, and aborts when that thread holds it; of this reader it knows nothing.
    """
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except OSError:  # no file behind it, as in tests
        return sys.stdin.buffer


def _checked(delimiter: str | None) -> str | None:
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '\r\n"'):
        raise errors.BadInput(f"--delimiter: {delimiter!r} is not one character that can separate columns")
    return delimiter


def _target(group: str | None, broker: str | None, broker_file: Path | None) -> tuple[str, Stream]:
    """Return the broker's URL, and the stream by its prefix, or by a contract that the broker's must equal."""
    from lbg.core import spec

    url = brokers.elsewhere(broker, broker_file)
    if group is not None and (Path(group).suffix in {".yaml", ".yml"} or group == "-"):
        read = inputs.read_group(Path(group))
        return url or _url_of_run(runs.find(read.metadata.name)), spec.contract(read)
    if url is not None:
        if group is None:
            raise errors.BadInput("--group: is missing: name the stream on the broker, or the group's YAML")
        return url, group
    run = runs.find(runs.meant(group))
    return _url_of_run(run), inputs.read_group(run.group).prefix


def _url_of_run(run: RunFolder) -> str:
    url = runs.broker_of(run)
    if url is None:
        raise errors.BadInput(f"--broker: is missing: the run in {run.path} is on a broker of its own, give its URL")
    return url


async def _published(
    url: str, stream: Stream, name: str | None, read: Iterator[Row], pace: feeding.Pace | None, told: progress.Telling
) -> tuple[feeding.Progress, str]:
    from lbg import publishing
    from lbg.publishing import feeding

    outside = publishing.Outside(adapter=brokers.adapter(url))
    # The adapter from here: its refusals have their own exit codes.
    async with publishing.Producer.open(url, stream, name, outside=outside) as producer:
        ended = await feeding.publish_rows(producer, read, pace=pace, progress=told)
        return ended, producer.contract.prefix


def _write(ended: feeding.Progress, prefix: str, form: output.Format) -> None:
    rate = progress.per_second(ended)
    if form is output.Format.JSON:
        numbers = {"rows": ended.rows, "confirmed": ended.confirmed, "seconds": round(ended.seconds, 3)}
        output.write_json({"prefix": prefix, **numbers, "rate": round(rate, 1)})
    else:
        output.write(
            f"published {ended.rows:,} rows to {prefix} in {ended.seconds:.1f} s ({rate:,.0f}/s), all confirmed"
        )
