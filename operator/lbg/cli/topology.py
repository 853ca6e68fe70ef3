"""`lbg create`, `lbg list` and `lbg delete`: the streams of groups on a broker, with care for names in use.

These are for brokers without the operator: on Kubernetes it declares and deletes what a group needs. A name that is in
use is refused and its owner is named, as the administration tool of the original load balanced groups does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbg.cli import brokers, inputs, output
from lbg.cli.errors import NotNow
from lbg.cli.panels import BROKER, examples

if TYPE_CHECKING:
    from lbg.brokers import base
    from lbg.core import spec

Owner = Annotated[
    str | None,
    typer.Option(metavar="MARK", help="Ownership mark of the stream. Default: this host and the file's path."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=BROKER,
        epilog=examples(
            "lbg create orders.yaml --broker embedded:///tmp/lbg.sock",
            "lbg create orders.yaml --broker-file ~/.lbg/broker -o json",
        ),
    )(create)
    app.command(
        "list",
        rich_help_panel=BROKER,
        epilog=examples("lbg list --broker-file ~/.lbg/broker", "lbg list -o json | jq '.streams[].prefix'"),
    )(list_streams)
    app.command(
        rich_help_panel=BROKER,
        epilog=examples(
            "lbg delete orders                 # refused while events wait or consumers are bound",
            "lbg delete orders --force --yes   # deletes waiting events too",
        ),
    )(delete)


def create(
    file: inputs.GroupFile,
    broker: brokers.Url = None,
    broker_file: brokers.UrlFile = None,
    owner: Owner = None,
    form: output.Output = output.Format.TEXT,
) -> None:
    """Create the queues of a group on a broker.

    A name that somebody else uses is refused, and its owner is named. Creating the same group again changes nothing.
    """
    group = inputs.read_group(file)
    url = brokers.chosen(broker, broker_file)
    wanted = _topology(group, owner or _mark(file))
    existed = brokers.run(_create(url, wanted))
    if form is output.Format.JSON:
        output.write_json({**wanted.contract.to_mapping(), "owner": wanted.owner, "created": not existed})
        return
    contract = wanted.contract
    said = "was there already, nothing changed" if existed else "created"
    output.write(f"stream {contract.prefix} {said}: {contract.queues} queues for {contract.count} shards")


async def _create(url: str, wanted: base.Topology) -> bool:
    """Declare; return whether the stream was there before."""
    async with brokers.admin(url) as admin:
        existed = await admin.find(wanted.contract.prefix) is not None
        await admin.declare(wanted)
    return existed


def _mark(file: Path) -> str:
    """Return the mark of what this machine owns: that of a local run of the same file, which then finds it its own."""
    return f"{os.uname().nodename}/{file.absolute()}"


def _topology(group: spec.LoadBalancedGroup, owner: str) -> base.Topology:
    from lbg.brokers import base
    from lbg.core import spec

    to = group.spec.consumers.output_to
    return base.Topology(
        spec.contract(group),
        owner,
        queue_type=group.spec.queues.type.value,
        size_limit=group.spec.queues.size_limit,
        outputs=() if to is None else (to,),
        join=group.spec.stream.join,
    )


def list_streams(
    broker: brokers.Url = None, broker_file: brokers.UrlFile = None, form: output.Output = output.Format.TEXT
) -> None:
    """List the streams on a broker.

    With contract, owner, events not handled yet (backlog) and bound consumers (links). What the broker does not tell is
    `unknown`, in JSON null, and never 0.
    """
    rows = brokers.run(_listed(brokers.chosen(broker, broker_file)))
    if form is output.Format.JSON:
        output.write_json({"streams": rows})
        return
    if not rows:
        output.note("no streams on this broker: lbg create GROUP.yaml makes one")
        return
    names = ("prefix", "count", "queues", "algorithm", "backlog", "links", "owner")
    output.write_table(names, [[row[name] for name in names] for row in rows])


async def _listed(url: str) -> list[dict[str, object]]:
    rows = []
    async with brokers.admin(url) as admin:
        for topology in await admin.list():
            backlog, links = _sums(await _looked(admin, topology.contract.prefix))
            rows.append(
                {
                    **topology.contract.to_mapping(),
                    "owner": topology.owner,
                    "size_limit": topology.size_limit,
                    "outputs": list(topology.outputs),
                    "backlog": backlog,
                    "links": links,
                }
            )
    return rows


async def _looked(admin: base.Admin, prefix: str) -> tuple[base.QueueState, ...] | None:
    from lbg.brokers import base

    try:
        return await admin.observe(prefix)
    except base.Missing:  # deleted since it was listed
        return None


def _sums(queues: tuple[base.QueueState, ...] | None) -> tuple[int | None, int | None]:
    """Return backlog and links over all queues; None where any of them is unknown."""
    if queues is None:
        return None, None
    backlogs = [queue.backlog for queue in queues]
    links = [queue.links for queue in queues]
    return _sum(backlogs), _sum(links)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def delete(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Name of the stream, as `lbg list` shows it.")],
    broker: brokers.Url = None,
    broker_file: brokers.UrlFile = None,
    owner: Owner = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also when events wait, which are lost, or consumers are bound.")
    ] = False,
    yes: Yes = False,
    form: output.Output = output.Format.TEXT,
) -> None:
    """Delete a stream from a broker.

    Its queues, outputs and dead letters go, after a question. Refused while events wait in its queues or consumers are
    bound (--force deletes all the same), and for a stream with another owner (--owner MARK says that you mean it).
    """
    url = brokers.chosen(broker, broker_file)
    found, backlog, links = brokers.run(_found(url, prefix))
    must_own(found, owner)
    if links and not force:
        raise NotNow(f"stream {prefix!r} is in use, {links} links are bound: stop its consumers, or give --force")
    # Between two connections: a broker takes one that is silent for long, while a person thinks, for dead.
    events = "an unknown number of events" if backlog is None else f"{backlog} events"
    queues = found.contract.queues
    output.confirmed(f"Delete stream {prefix!r} of {found.owner}, {queues} queues with {events}?", yes=yes)
    brokers.run(_delete(url, found, only_if_empty=not force))
    if form is output.Format.JSON:
        output.write_json({"prefix": prefix, "deleted": True, "backlog": backlog})
    else:
        output.write(f"stream {prefix} deleted, its {queues} queues had {events}")


async def _found(url: str, prefix: str) -> tuple[base.Topology, int | None, int | None]:
    """Return a stream with its backlog and its bound links."""
    async with brokers.admin(url) as admin:
        found = await admin.find(prefix)
        if found is None:
            raise NotNow(f"stream {prefix!r} does not exist on this broker: lbg list shows those that do")
        return found, *_sums(await _looked(admin, prefix))


async def _delete(url: str, found: base.Topology, *, only_if_empty: bool) -> None:
    async with brokers.admin(url) as admin:
        await admin.delete(found.contract.prefix, found.owner, only_if_empty=only_if_empty)


def must_own(found: base.Topology, owner: str | None) -> None:
    """Refuse a stream that belongs to somebody else.

    Raises:
        NotNow: its owner is neither the mark given nor, without one, of this host.
    """
    if found.owner == owner or (owner is None and found.owner.startswith(f"{os.uname().nodename}/")):
        return
    raise NotNow(
        f"stream {found.contract.prefix!r} belongs to {found.owner}: delete it there, or say --owner {found.owner!r}"
    )
