"""Prints docs/cli.md: the help of every command as the command itself prints it, and the table of exit codes.

`scripts/generate.py` runs it; a file edited by hand fails `make check`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from lbg.cli import app
from lbg.cli.exit_codes import MEANINGS
from lbg.cli.panels import PANELS

_WIDTH: Final = 100

_HEAD: Final = """# The command `lbg`

Written by `make generate` from the command's own help; do not edit it by hand.
"""

_CONVENTIONS: Final = """## Conventions

- Standard output holds the answer and nothing else: text for people, or with `-o json` one JSON value (one value a line
  where a command follows something). Progress, questions and errors go to standard error.
- An error is one line on standard error that starts with `lbg:`, whatever `-o` says: programs read the exit code.
  Standard output then holds nothing, or the verdict that was asked for. Several bad fields in a group's YAML are
  several lines, one for each.
- A broker's URL comes from `--broker`, from the file that `--broker-file` names, from `LBG_BROKER`, or from the only
  run that is live here. `lbg run` and `lbg demo` bring their own broker and read the first two only. Other users of the
  machine see the arguments of a process, so a URL with a password belongs in the file. No password is printed.
- `NO_COLOR` and `COLUMNS` are respected. Without a terminal there is no colour, no progress bar and no live view.
- A question is answered with `--yes`, or on standard input (`echo y | lbg ...`).
- `LBG_DEBUG=1` prints tracebacks to standard error. Without it the traceback of a defect goes to a file that is named.
"""


def pages() -> Iterator[str]:
    """Iterate over the sections of the document."""
    root: Any = typer.main.get_command(app.app)
    # Both widths: without the first, the help is as wide as the terminal of whoever runs `make generate`.
    above = root.make_context("lbg", [], resilient_parsing=True, terminal_width=_WIDTH, max_content_width=_WIDTH)
    yield _HEAD
    yield _section("lbg", above)
    for panel in PANELS:
        for name, command in root.commands.items():
            if command.rich_help_panel == panel:
                yield _section(f"lbg {name}", command.make_context(name, [], parent=above, resilient_parsing=True))
    yield _CONVENTIONS
    yield "## Exit codes\n"
    # A bar inside of a cell would end it.
    rows = [f"| {code:d} | {text.replace('|', chr(92) + '|')} |\n" for code, text in MEANINGS.items()]
    yield "| code | meaning |\n| --- | --- |\n" + "".join(rows)


def _section(title: str, context: Any) -> str:
    return f"## `{title}`\n\n```text\n{context.get_help().rstrip()}\n```\n"


if __name__ == "__main__":
    print("\n".join(pages()), end="")
