"""docs/cli.md says what the command itself says: every command, every option, every exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from lbg.cli import app, reference
from lbg.cli.exit_codes import ExitCode

COMMANDS = sorted(typer.main.get_command(app.app).commands)  # type: ignore[attr-defined]  # a group has them


@pytest.fixture(scope="module")
def written() -> str:
    """The document as it would be written now."""
    return "\n".join(reference.pages())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_section(written: str, command: str) -> None:
    """The heading is there once, so that it can be linked to."""
    assert written.count(f"## `lbg {command}`\n") == 1


def test_every_exit_code_has_its_row(written: str) -> None:
    """The numbers stand in the table that scripts are written from."""
    for code in ExitCode:
        assert f"| {code:d} | " in written


def test_document_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    """Two machines write the same bytes, or the drift check would fail on one of them."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\n".join(reference.pages()) == written


def test_generator_knows_the_document() -> None:
    """`make check` compares the checked-in file."""
    generator = Path(__file__).parents[2] / "scripts" / "generate.py"
    assert "lbg.cli.reference" in generator.read_text()
