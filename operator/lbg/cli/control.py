"""Commands for a live run, from another terminal: status, scale, kill, rollout, blocked, skip, stop.

What they ask for is decided by the run's supervisor; `lbg.local.control` carries the order and its answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lbg.cli import output, runs
from lbg.cli.panels import RUN, examples

if TYPE_CHECKING:
    from lbg.core.membership import Blocked


class Signal(StrEnum):
    """What `lbg kill` may send; the names are the system's."""

    KILL = "SIGKILL"
    TERM = "SIGTERM"
    STOP = "SIGSTOP"
    CONT = "SIGCONT"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands: dict[Callable[..., None], tuple[str, ...]] = {
        status: (
            "lbg status orders",
            "lbg status -o json | jq .queues",
            "lbg status .lbg/runs/orders-20260101T120000Z",
        ),
        scale: ("lbg scale orders 4",),
        kill: ("lbg kill orders consumer-2", "lbg kill orders consumer-2 --signal SIGSTOP"),
        rollout: ("lbg rollout orders",),
        blocked: ("lbg blocked orders", "lbg blocked -o json | jq -r '.blocked[].message_id'"),
        skip: ("lbg skip shop:1767225600000:17:42", "lbg skip shop:1767225600000:17:42 --group orders --yes"),
        stop: ("lbg stop orders",),
    }
    for command, lines in commands.items():
        app.command(rich_help_panel=RUN, epilog=examples(*lines))(command)


def status(run: runs.Optional = None, form: output.Output = output.Format.TEXT) -> None:
    """Show a live run: owners, standbys, epochs, backlog.

    Conditions that need attention stand below the table. JSON has the shape of the `status` of the group's object
    on Kubernetes.
    """
    from lbg.local import control

    found = control.status(runs.meant(run))
    if form is output.Format.JSON:
        output.write_json(found)
        return
    output.write(_head(found))
    columns = ("queue", "owner", "standby", "epoch", "backlog")
    output.write_table(columns, [_queue(queue) for queue in found.get("queues", ())])
    troubles = [condition for condition in found.get("conditions", ()) if condition.get("status") != _calm(condition)]
    if troubles:
        names = ("type", "status", "reason", "message")
        output.write_table(("condition", *names[1:]), [[c.get(name, "") for name in names] for c in troubles])


def _calm(condition: Mapping[str, Any]) -> str:
    """Return the value of a condition that needs nobody's attention; see `lbg.core.conditions` on polarity."""
    from lbg.core.conditions import Type

    troubles = {
        Type.HOT_QUEUE,
        Type.QUEUE_BLOCKED,
        Type.HANDOVER_STALLED,
        Type.SCALING_INEFFECTIVE,
        Type.LEDGER_UNREADABLE,
    }
    return "False" if condition.get("type") in troubles else "True"


def _head(found: Mapping[str, Any]) -> str:
    def text(name: str) -> object:
        return "unknown" if found.get(name) is None else found[name]

    numbers = "  ".join(f"{name} {text(name)}" for name in ("desired", "effective", "ready", "backlog", "generation"))
    more = int(found.get("queueCount", 0)) - len(found.get("queues", ()))
    return numbers + (f"  ({more} queues with less backlog are left out)" if more > 0 else "")


def _queue(queue: Mapping[str, Any]) -> tuple[object, ...]:
    standbys = " ".join(queue.get("standby") or ()) or "-"
    return queue.get("queue"), queue.get("owner") or "nobody", standbys, queue.get("epoch"), queue.get("backlog")


def scale(
    run: runs.Named,
    replicas: Annotated[int, typer.Argument(metavar="CC", min=0, help="Number of consumers to ask for.")],
    form: output.Output = output.Format.TEXT,
) -> None:
    """Ask for a number of consumers.

    Within the group's min and max. With autoscaling.mode Operator, the default, it is overridden: the answer says so,
    and so does an event of the run. Use mode External to scale by hand.
    """
    from lbg.local import control

    _answer(control.scale(run, replicas), form)


def kill(
    run: runs.Named,
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="Its name, as `lbg status` shows it.")],
    signal: Annotated[Signal, typer.Option(help="What to send.")] = Signal.KILL,
    form: output.Output = output.Format.TEXT,
) -> None:
    """Kill one consumer of a live run.

    Its standbys take over, and the run starts another one in its place.
    """
    from signal import Signals

    from lbg.local import control

    _answer(control.kill(run, consumer, Signals[signal.value]), form)


def rollout(run: runs.Optional = None, form: output.Output = output.Format.TEXT) -> None:
    """Replace all consumers one by one.

    The command returns when the last one is replaced.
    """
    from lbg.local import control

    _answer(control.rollout(runs.meant(run)), form)


def stop(run: runs.Optional = None, form: output.Output = output.Format.TEXT) -> None:
    """Stop a live run in order.

    As Ctrl-C in its own terminal does; the command returns when the run has ended.
    """
    from lbg.local import control

    _answer(control.stop(runs.meant(run)), form)


def blocked(run: runs.Optional = None, form: output.Output = output.Format.TEXT) -> None:
    """List the events that block their shards.

    Each has failed on its last attempt; the first error and the time are shown.
    """
    from lbg.local import control

    found = control.blocked(runs.meant(run))
    if form is output.Format.JSON:
        output.write_json({"blocked": [{**dataclasses.asdict(event), "since": _since(event)} for event in found]})
    elif found:
        rows = [(e.message_id, e.key, e.queue, e.shard, _since(e), e.error) for e in found]
        output.write_table(("message", "key", "queue", "shard", "since", "error"), rows)
    else:
        output.write("no event blocks its shard")


def skip(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE-ID", help="The event, as `lbg blocked` shows it.")],
    run: Annotated[
        str | None, typer.Option("--group", "-g", metavar="GROUP", help="As for the other commands.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    form: output.Output = output.Format.TEXT,
) -> None:
    """Give up a blocked event, so that its shard goes on.

    The event is acknowledged without having been handled, and later events of its key are handled as if it had been.
    The run records who asked for it. A question is asked first.
    """
    from lbg.local import control

    target = runs.meant(run)
    event = next((event for event in control.blocked(target) if event.message_id == message_id), None)
    what = "not reported as blocked" if event is None else f"key {event.key!r}, blocked since {_since(event)}"
    output.confirmed(f"Skip event {message_id} ({what})?", yes=yes)
    _answer(control.skip(target, message_id), form)


def _since(event: Blocked) -> str:
    return datetime.fromtimestamp(event.since_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _answer(answer: str, form: output.Format) -> None:
    if form is output.Format.JSON:
        output.write_json({"ok": True, "answer": answer})
    else:
        output.write(answer)
