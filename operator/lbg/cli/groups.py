"""`lbg check` and `lbg plan`: what a group's YAML says, and what a change of its replicas would move."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lbg.cli import errors, inputs, output
from lbg.cli.exit_codes import ExitCode
from lbg.cli.panels import LOOK, examples

if TYPE_CHECKING:
    from lbg.core import spec


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "lbg check orders.yaml",
            "lbg check orders.yaml -o json | jq .contract",
            "sed s/256/1024/ orders.yaml | lbg check -",
        ),
    )(check)
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "lbg plan orders.yaml --replicas 3:4",
            "lbg plan orders.yaml --replicas 6        # from the replicas that the file names",
            "lbg plan orders.yaml --replicas 3:4 -o json | jq '.moves | length'",
        ),
    )(plan)


def check(file: inputs.GroupFile, form: output.Output = output.Format.TEXT) -> ExitCode:
    """Check a group's YAML and show its defaults.

    Each wrong field gives one line: its path, the value, what is wrong and what to write instead.
    """
    from lbg.core import spec

    try:
        group = inputs.read_group(file)
    except spec.SpecError as wrong:
        if form is output.Format.JSON:
            output.write_json({"ok": False, "source": wrong.source, "problems": [_problem(p) for p in wrong.problems]})
        raise
    if form is output.Format.JSON:
        contract = spec.contract(group).to_mapping()
        output.write_json({"ok": True, "source": str(file), "contract": contract, "group": _whole(group)})
    else:
        _write_checked(file, group)
    return ExitCode.OK


def _problem(problem: spec.Problem) -> dict[str, str]:
    return {name: getattr(problem, name) for name in ("path", "value", "problem", "remedy")}


def _write_checked(file: Path, group: spec.LoadBalancedGroup) -> None:
    from lbg.core import spec

    shape = group.spec
    bounds = f"HC {shape.hashing.count} >= QC {shape.queues.count} >= CC {shape.consumers.min} to {shape.max_consumers}"
    # A comment, so that all of the output is a group's YAML again. Read back: `dump` leaves out what was not given.
    output.write(f"# {file} is a valid group: {bounds}. With every default filled in:")
    output.write(spec.dump(spec.parse(_whole(group), str(file))).rstrip())


def _whole(group: spec.LoadBalancedGroup) -> dict[str, object]:
    return group.model_dump(mode="json", by_alias=True, exclude_none=True)


def plan(
    file: inputs.GroupFile,
    replicas: Annotated[
        str, typer.Option(metavar="FROM:TO", help="Consumers before and after; TO alone starts at the file's number.")
    ],
    form: output.Output = output.Format.TEXT,
) -> None:
    """Say which queues a change of replicas would move.

    And how many moves are the fewest possible (lower_bound). Nothing is changed; no broker is needed.
    """
    from lbg.core import assignment

    group = inputs.read_group(file)
    before, after = inputs.replicas_step(replicas, group.spec.consumers.replicas)
    queues, rule = group.spec.queues.count, group.spec.assignment
    with errors.inputs_refused_as("--replicas: "):
        old, new = (
            assignment.assign(queues, count, group.name, rule.policy, rule.standbys) for count in (before, after)
        )
    moves = assignment.moves(old, new)
    least = assignment.lower_bound(queues, before, after)
    if form is output.Format.JSON:
        output.write_json(
            {
                "from": before,
                "to": after,
                "moves": [{"queue": queue, "from": source, "to": target} for queue, source, target in moves],
                "lower_bound": least,
                "owners": {str(queue): new.owner(queue) for queue in range(queues)},
            }
        )
        return
    output.write(
        f"{before} -> {after} consumers: {len(moves)} of {queues} queues move, the fewest possible are {least}"
    )
    if moves:
        output.write_table(("queue", "from", "to"), [(queue, _who(a), _who(b)) for queue, a, b in moves])
    output.write_table(("consumer", "queues"), [(who, " ".join(map(str, new.queues_of(who)))) for who in range(after)])


def _who(ordinal: int | None) -> str:
    return "nobody" if ordinal is None else str(ordinal)
