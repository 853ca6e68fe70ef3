"""`lbg hash`: where a key goes. The rules are those of `lbg.core.hashing`."""

from __future__ import annotations

from typing import Annotated

import typer

from lbg.cli import output
from lbg.cli.errors import inputs_refused_as
from lbg.cli.panels import LOOK, examples
from lbg.core import hashing, striping
from lbg.core.hashing import Algorithm


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "hash",
        rich_help_panel=LOOK,
        epilog=examples(
            "lbg hash N14228 --count 256",
            "lbg hash N14228 --count 256 --queues 12 -o json",
            "lbg hash 4711 --count 64 --algorithm modulo",
        ),
    )(hash_key)


def hash_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key; put -- before one that starts with a dash.")],
    count: Annotated[int, typer.Option(metavar="HC", help="Number of shards.")],
    algorithm: Annotated[Algorithm, typer.Option(help="How the key is hashed.")] = Algorithm.XXH64,
    queues: Annotated[int | None, typer.Option(metavar="QC", help="Number of queues: also say which one.")] = None,
    form: output.Output = output.Format.TEXT,
) -> None:
    """Say to which shard a key goes.

    With --queues also to which queue. Publishers in any language that follow the contract get the same numbers.
    """
    with inputs_refused_as():
        shard = hashing.shard_of(key, count, algorithm)
        # Asking for the stripe rather than the queue checks QC against HC too.
        queue = None if queues is None else striping.queue_of(shard, queues)
        if queue is not None and queues is not None:
            striping.shards_of(queue, queues, count)
    if form is output.Format.JSON:
        answer = {"key": key, "algorithm": algorithm.value, "count": count, "shard": shard}
        output.write_json(answer if queue is None else {**answer, "queue": queue})
    else:
        output.write(f"shard {shard}" if queue is None else f"shard {shard} queue {queue}")
