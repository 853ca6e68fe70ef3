"""The Dockerfiles name what exists and run without root; no image is built here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

DOCKERFILES = ["Dockerfile", "consumer-image/Dockerfile"]


def instructions(path: Path, keyword: str) -> list[str]:
    """The arguments of every instruction of one kind, in order."""
    return re.findall(rf"^{keyword} (.+)$", path.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", DOCKERFILES)
def test_copied_paths_exist_and_are_not_ignored(root: Path, name: str) -> None:
    """What a Dockerfile copies from the context is in the tree and on the list of .dockerignore."""
    allowed = {line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for copied in instructions(root / name, "COPY"):
        *sources, _ = copied.split()
        if not sources[0].startswith("--from="):
            assert all((root / source).exists() for source in sources)
            assert set(sources) <= allowed


@pytest.mark.parametrize("name", DOCKERFILES)
def test_image_runs_without_root_on_a_base_of_choice(root: Path, name: str) -> None:
    """Both stages start from the build argument BASE, and the last one leaves root by number."""
    assert instructions(root / name, "FROM") == ["${BASE} AS build", "${BASE}"]
    assert [user for user in instructions(root / name, "USER") if re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_installed_extras_exist(root: Path, name: str) -> None:
    """The extras that an image installs are declared, and the consumer's image has neither kopf nor Spark."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = set(re.findall(r"--extra (\w+)", (root / name).read_text()))
    assert installed <= set(declared)
    assert ("operator" in installed) == (name == "Dockerfile")
    assert "spark" not in installed


def test_one_version_of_uv_everywhere(root: Path) -> None:
    """The lock file is read by the uv that wrote it, on a desk and in both images."""
    texts = [(root / name).read_text() for name in [*DOCKERFILES, "scripts/setup"]]
    versions = [re.findall(r"UV_VERSION=([\d.]+)", text) for text in texts]
    assert versions == [versions[0]] * len(versions)
    assert len(versions[0]) == 1
