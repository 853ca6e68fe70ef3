"""The root folder must stay harmless to Python, although one of its folders is named like a standard module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code with the folder first on sys.path, as `python -c` in that folder does for a user."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


WHERE_IS_OPERATOR = (
    "import collections, operator, os; operator.itemgetter(0); print(os.path.abspath(operator.__file__))"
)


def test_operator_folder_is_not_a_package(root: Path) -> None:
    """operator/ has no __init__.py: it would hide the standard module from every Python started in the root."""
    assert not (root / "operator" / "__init__.py").exists()


def test_python_started_in_the_root_imports_the_standard_operator(root: Path) -> None:
    """`import collections, operator` in the root finds the standard library's module."""
    result = python(WHERE_IS_OPERATOR, root)
    assert result.returncode == 0, result.stderr
    assert not Path(result.stdout.strip()).is_relative_to(root / "operator")


def test_an_init_file_would_be_noticed(tmp_path: Path) -> None:
    """The check above fails in a folder whose operator/ is a package."""
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "__init__.py").touch()
    assert python(WHERE_IS_OPERATOR, tmp_path).returncode != 0


@pytest.mark.parametrize("name", ["operator/__init__.py", "operator/lbg/secrets.py"])
def test_linter_reports_a_module_named_like_a_standard_one(root: Path, tmp_path: Path, name: str) -> None:
    """Ruff's A005 is on in the project's configuration, for the source root and below it."""
    module = tmp_path / name
    module.parent.mkdir(parents=True)
    module.write_text('"""Stand-in."""\n')
    (module.parent / "__init__.py").write_text('"""Stand-in."""\n')
    # The binary, because `python -m ruff` in this folder would die of the very module that it is to report.
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--no-cache", "--quiet", "--output-format", "concise"]
    command = [*ruff, "--config", str(root / "pyproject.toml"), "."]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{name}:1:1: A005" in result.stdout


def test_every_folder_under_the_source_roots_is_a_package(root: Path) -> None:
    """A folder with modules and no __init__.py would be missing from the type check and the import contracts."""
    sources = [root / "operator" / "lbg", root / "consumer-image" / "lbg_consumer"]
    folders = {path.parent for source in sources for path in source.rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
