"""`lbg version`: what is installed, in the words of a bug report."""

from __future__ import annotations

import platform
from importlib import util

import typer

from lbg.cli import errors, output
from lbg.cli.panels import SELF, examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel=SELF, epilog=examples("lbg version", "lbg version -o json"))(version)


def ours() -> str:
    """Return the version of the installed distribution."""
    from importlib import metadata

    return metadata.version("load-balanced-groups")


def version(form: output.Output = output.Format.TEXT) -> None:
    """Print versions and installed extras."""
    # An extra counts when all of its modules are there; asking for their place does not import them.
    missing = {extra for module, extra in errors.EXTRAS.items() if util.find_spec(module) is None}
    extras = {extra: extra not in missing for extra in sorted(set(errors.EXTRAS.values()))}
    if form is output.Format.JSON:
        output.write_json({"version": ours(), "python": platform.python_version(), "extras": extras})
        return
    installed = ", ".join(extra for extra, there in extras.items() if there) or "none"
    output.write(f"lbg {ours()}, Python {platform.python_version()}, extras: {installed}")
