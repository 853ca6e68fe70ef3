"""A command line, run in this process or in one of its own, and what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
import typer.testing

from lbg.brokers.embedded import process
from lbg.cli import app, redaction

LBG = Path(sys.executable).with_name("lbg")
ENDS_WITHIN = 60.0
"""Seconds after which a command that hangs fails its test; far beyond what any of them takes."""


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def line(self) -> str:
        """Return the only line on standard error, and fail when there is none, or another, or a traceback."""
        assert "Traceback" not in self.err + self.out
        assert self.err.startswith("lbg: "), self.err
        (line,) = self.err.splitlines()
        assert self.err.endswith("\n")
        return line


class Lbg(Protocol):
    """Runs a command line and returns what it left behind."""

    def __call__(self, *arguments: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Ran:
        """Run `lbg` with these arguments, this standard input and these changes of the environment."""


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the tests may have a broker, a debug switch or a terminal of some width; the tests must not see it."""
    for name in ("LBG_BROKER", "LBG_DEBUG", "NO_COLOR", "COLUMNS", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(redaction, "_known", set())


@pytest.fixture
def lbg() -> Lbg:
    """Run in this process: fast, and for everything but signals, pipes and start-up."""

    def run(*arguments: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Ran:
        runner = typer.testing.CliRunner(env=env or {})
        result = runner.invoke(app.app, [str(argument) for argument in arguments], input=stdin, prog_name="lbg")
        assert isinstance(result.exception, SystemExit | None), result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An embedded broker that every command finds through the environment."""
    serving = process.launch_and_wait(tmp_path / "broker.db", f"embedded://{tmp_path}/broker.sock")
    monkeypatch.setenv("LBG_BROKER", serving.url)
    yield serving.url
    serving.stop()


@pytest.fixture(scope="session")
def installed() -> Path:
    """The command as it is installed, for tests that start it themselves."""
    return LBG


@pytest.fixture
def spawn(tmp_path: Path) -> Lbg:
    """Run the installed command in a process of its own, in an empty folder."""

    def run(*arguments: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Ran:
        ended = subprocess.run(
            [LBG, *arguments],
            input=stdin if stdin is not None else "",
            env={**os.environ, **(env or {})},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN,
            check=False,
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return run
