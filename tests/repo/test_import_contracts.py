"""The import contracts name every package and can fail: a planted violation of each one is reported."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = [
    ["lbg.core"],
    ["lbg.brokers"],
    ["lbg.kube", "lbg.publishing"],
    ["lbg.controller", "lbg.validator", "lbg_consumer"],
    ["lbg.spark", "lbg.local"],
    ["lbg.testing"],
    ["lbg.cli"],
]
PACKAGES = [package for layer in LAYERS for package in layer]
# Third-party packages, and the only packages of ours that may import them.
CLIENTS = {
    "kopf": {"lbg.controller"},
    "kubernetes": {"lbg.kube"},
    "pika": {"lbg.brokers"},
    "pyspark": {"lbg.spark"},
    "rich": {"lbg.cli", "lbg.local"},
    "typer": {"lbg.cli"},
}
IMPURE = ["asyncio", "os", "random", "secrets", "socket", "sqlite3", "subprocess", "threading", "time", "aiohttp"]


def imports_up_or_across() -> Iterator[tuple[str, str]]:
    """Every pair (importer, imported) that the layers forbid."""
    for rank, layer in enumerate(LAYERS):
        for importer in layer:
            for above in LAYERS[rank + 1 :]:
                yield from ((importer, imported) for imported in above)
            yield from ((importer, sibling) for sibling in layer if sibling != importer)


def imports_down() -> Iterator[tuple[str, str]]:
    """Every pair (importer, imported) that the layers allow."""
    for rank, layer in enumerate(LAYERS):
        for below in LAYERS[:rank]:
            yield from ((importer, imported) for importer in layer for imported in below)


def forbidden_imports() -> Iterator[tuple[str, str]]:
    """Every pair that some contract must report."""
    yield from imports_up_or_across()
    yield from (("lbg.core", name) for name in IMPURE)
    for client, homes in CLIENTS.items():
        yield from ((package, client) for package in PACKAGES if package not in homes)


def allowed_imports() -> Iterator[tuple[str, str]]:
    """Pairs that no contract may report."""
    yield from imports_down()
    for client, homes in CLIENTS.items():
        yield from ((home, client) for home in homes)


def planted(importer: str, imported: str) -> str:
    """The name of the module in `importer` that imports `imported` and nothing else."""
    return f"{importer}.imports_{imported.replace('.', '_')}"


@pytest.fixture(scope="module")
def report(root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What lint-imports says, under the real contracts, about a skeleton in which every pair is planted.

    A skeleton and not a copy: the outcome depends on the contracts alone, not on the code of the day.
    """
    tree = tmp_path_factory.mktemp("skeleton")
    for package in ["lbg", *PACKAGES]:
        folder = tree / package.replace(".", "/")
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    for importer, imported in [*forbidden_imports(), *allowed_imports()]:
        path = tree / f"{planted(importer, imported).replace('.', '/')}.py"
        path.write_text(f"import {imported}\n")
    # PYTHONPATH comes before the installed project, so the skeleton is what gets analysed.
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo", "--config", root / ".importlinter"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize(("importer", "imported"), list(forbidden_imports()))
def test_planted_import_is_reported(report: str, importer: str, imported: str) -> None:
    """An import that the design forbids breaks a contract, which names it."""
    assert f"{planted(importer, imported)} -> {imported} " in report


@pytest.mark.parametrize(("importer", "imported"), list(allowed_imports()))
def test_legal_import_is_not_reported(report: str, importer: str, imported: str) -> None:
    """An import that points down, or a client in its own package, breaks nothing."""
    assert f"{planted(importer, imported)} -> {imported} " not in report


def test_every_package_has_its_layer(root: Path) -> None:
    """A package on disk that no layer names would escape the contracts."""
    contracts = configparser.ConfigParser()
    contracts.read(root / ".importlinter")
    named = (
        contracts["importlinter:contract:layers"]["layers"].replace("|", " ").replace("(", "").replace(")", "").split()
    )
    on_disk = {f"lbg.{init.parent.name}" for init in (root / "operator" / "lbg").glob("*/__init__.py")}
    on_disk |= {init.parent.name for init in (root / "consumer-image").glob("*/__init__.py")}
    assert on_disk <= set(named) == set(PACKAGES)
