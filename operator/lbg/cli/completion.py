"""`lbg completion`: the script that completes commands and options in a shell.

It prints instead of installing, as kubectl and helm do: where a script belongs is the user's business, and Typer's own
`--install-completion` edits start-up files of the shell it believes to be under.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Final

import typer

from lbg.cli import output
from lbg.cli.panels import SELF, examples

VARIABLE: Final = "_LBG_COMPLETE"
"""Set by the script when the shell asks for completions; Typer then answers instead of running a command."""


class Shell(StrEnum):
    """The shells that Typer has a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        rich_help_panel=SELF,
        epilog=examples(
            "lbg completion bash >> ~/.bashrc",
            "lbg completion zsh > ~/.zfunc/_lbg      # in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit",
            "lbg completion fish > ~/.config/fish/completions/lbg.fish",
        ),
    )(completion)


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="The shell to complete in.")]) -> None:
    """Print the completion script of a shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # not in its __all__

    output.write(get_completion_script(prog_name="lbg", complete_var=VARIABLE, shell=shell.value))


def prepare() -> None:
    """Teach Typer its shells, if a shell is asking: it does so by itself only together with its own options."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # not in its __all__

        completion_init()
