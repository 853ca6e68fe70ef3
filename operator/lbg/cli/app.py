"""The command tree of `lbg`: which commands there are, under which heading, and the help that stands above them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from lbg.cli import completion, control, errors, groups, keys, publish, running, topology, verify, versions
from lbg.cli.panels import PANELS

HELP = """Ordered consumers that autoscale: run, publish to, inspect and verify load balanced groups.

The key of each event is hashed to a shard, shards are striped over exclusive queues, and consumers share the queues:
HC shards >= QC queues >= CC consumers. `lbg COMMAND --help` has examples. Commands that print take -o json.
"""


class Commands(TyperGroup):
    """The root command: lists the commands by heading, and sends every exception through `errors.guard`."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run a command line and exit with a code of `exit_codes`; no other exception comes out.

        Typer's own main is left to answer the shell's questions: it prints errors in a frame, and has codes of its own
        for Ctrl-C and for a reader that went away.
        """
        if completion.VARIABLE in os.environ:
            super().main(args, prog_name, **extra)
        words = sys.argv[1:] if args is None else list(args)
        sys.exit(errors.guard(lambda: self._run(prog_name or "lbg", words)))

    def _run(self, name: str, words: list[str]) -> object:
        with self.make_context(name, words) as context:
            return self.invoke(context)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the signature is Typer's
        """Write the commands in the order of PANELS."""
        width = max(map(len, self.commands))
        for panel in PANELS:
            names = [name for name, command in self.commands.items() if _panel(command) == panel]
            if not names:
                continue
            with formatter.section(panel):
                rows = [(name, self.commands[name].get_short_help_str(formatter.width)) for name in names]
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])


def _panel(command: Any) -> str | None:
    panel: str | None = command.rich_help_panel
    return panel


app = typer.Typer(
    name="lbg",
    cls=Commands,
    add_completion=False,  # see completion.py
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(help=HELP)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Serve what comes before a command."""
    if version:
        print(f"lbg {versions.ours()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


for module in (running, control, publish, topology, keys, groups, verify, completion, versions):
    module.register(app)


def invoke() -> NoReturn:
    """Run the command line of this process."""
    completion.prepare()
    typer.main.get_command(app).main(prog_name="lbg")
    raise AssertionError("Commands.main does not return")
