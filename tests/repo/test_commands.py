"""The commands that people and CI share: make targets, .ci/run, and the check of generated files."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

TARGETS = ["help", "setup", "demo", "test", "check", "bench", "soak", "clean"]


@pytest.fixture(scope="module")
def generate(root: Path) -> ModuleType:
    """scripts/generate.py as a module: it lies in no package."""
    spec = importlib.util.spec_from_file_location("generate", root / "scripts" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(root: Path, *arguments: str) -> str:
    """Run make in the root and return what it prints; an outer make must not pass on its flags."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, text=True).stdout


def test_make_alone_lists_the_targets(root: Path) -> None:
    """`make` and `make help` print each target with one line of what it does."""
    listed = re.findall(r"^  make ([a-z]+) +\S", make(root), flags=re.MULTILINE)
    assert set(TARGETS) <= set(listed)
    assert make(root) == make(root, "help")


@pytest.mark.parametrize("target", ["setup", "demo", "test", "check", "bench", "soak", "generate", "format"])
def test_target_installs_what_it_needs(root: Path, target: str) -> None:
    """With no usable stamp, the plan of every target that runs Python starts with the setup."""
    assert "scripts/setup" in make(root, "--dry-run", "READY=.venv/.no-such-stamp", target)


@pytest.mark.parametrize("script", [".ci/run", "scripts/setup"])
def test_script_is_executable_and_stops_at_the_first_error(root: Path, script: str) -> None:
    """A shell script that goes on after a failed command reports success for work that was not done."""
    path = root / script
    assert os.access(path, os.X_OK)
    assert "set -euo pipefail" in path.read_text().splitlines()
    subprocess.run(["bash", "-n", path], check=True)


def test_ci_runs_what_people_run(root: Path) -> None:
    """.ci/run calls make check and make test, in this order, and nothing that a person would not."""
    commands = [line for line in (root / ".ci/run").read_text().splitlines() if line.startswith("make ")]
    assert [command.split()[-1] for command in commands] == ["check", "test"]


def test_pytest_is_strict(root: Path) -> None:
    """Warnings are errors, an unexpected pass fails, markers are declared, and no test can hang the run."""
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["filterwarnings"][0] == "error"
    assert options["xfail_strict"] is True
    assert options["timeout"] <= 120
    assert {"--strict-markers", "--strict-config", "-ra"} <= set(options["addopts"])


def test_stale_file_is_named_and_left_alone_by_the_check(
    generate: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check fails on a file that differs from its source, says what to do, and does not touch it."""
    entry = generate.Generated("out.txt", (sys.executable, "-c", "print('new')"))
    (tmp_path / "out.txt").write_text("old\n")
    assert generate.main(["--check"], (entry,), tmp_path) == 1
    assert (tmp_path / "out.txt").read_text() == "old\n"
    assert "out.txt is out of date: run make generate" in capsys.readouterr().err


def test_generate_writes_what_the_check_then_accepts(generate: ModuleType, tmp_path: Path) -> None:
    """A file that is stale or not there is written; after that the check is content."""
    entry = generate.Generated("folder/out.txt", (sys.executable, "-c", "print('new')"))
    assert generate.main(["--check"], (entry,), tmp_path) == 1
    assert generate.main([], (entry,), tmp_path) == 0
    assert (tmp_path / "folder" / "out.txt").read_text() == "new\n"
    assert generate.main(["--check"], (entry,), tmp_path) == 0


def test_generator_that_fails_replaces_nothing(generate: ModuleType, tmp_path: Path) -> None:
    """Half an output must not take the place of a good file."""
    entry = generate.Generated("out.txt", (sys.executable, "-c", "print('half'); raise SystemExit(3)"))
    (tmp_path / "out.txt").write_text("good\n")
    with pytest.raises(subprocess.CalledProcessError):
        generate.main([], (entry,), tmp_path)
    assert (tmp_path / "out.txt").read_text() == "good\n"
