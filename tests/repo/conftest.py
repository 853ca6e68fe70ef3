"""Where the repository lies and which files it has: what every test of the repository itself starts from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def files(root: Path) -> list[Path]:
    """Every file that is, or would be, committed: tracked ones and new ones that .gitignore does not cover."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (root / name for name in listed.stdout.split("\0") if name)
    # A file deleted but not yet committed is still listed.
    return sorted(path for path in paths if path.is_file())
