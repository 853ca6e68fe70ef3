"""Write the generated files of the repository, or check that they are up to date.

Each entry of GENERATED names a tracked file and the command whose standard output is its content. `make generate`
writes them; `make check` compares and writes nothing, so that a check never changes the tree that it judges.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Generated(NamedTuple):
    """One generated file: where it lies (relative to the root) and the command that prints it."""

    path: str
    command: tuple[str, ...]


def module(name: str, *args: str) -> tuple[str, ...]:
    """Return the command that runs a module of this project with the interpreter in use."""
    return (sys.executable, "-m", name, *args)


def script(name: str, *args: str) -> tuple[str, ...]:
    """Return the command that runs a script of this folder with the interpreter in use."""
    return (sys.executable, f"scripts/{name}", *args)


# Add a line here for every file that a person must not edit by hand, wholly or between its markers.
GENERATED: tuple[Generated, ...] = (
    Generated("docs/cli.md", module("lbg.cli.reference")),
    Generated("design/0002-handover.md", script("handover_note.py")),
)


def content(entry: Generated) -> bytes:
    """Run the entry's command in the root and return what it prints.

    Raises CalledProcessError when the command fails: half an output must not replace a good file.
    """
    return subprocess.run(entry.command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def stale(entries: tuple[Generated, ...], root: Path = ROOT) -> list[tuple[Generated, bytes]]:
    """Return the entries whose file differs from what their command prints now, with the new content."""
    found = []
    for entry in entries:
        want = content(entry)
        target = root / entry.path
        if not target.is_file() or target.read_bytes() != want:
            found.append((entry, want))
    return found


def main(argv: list[str] | None = None, entries: tuple[Generated, ...] = GENERATED, root: Path = ROOT) -> int:
    """Write what is stale, or with --check only name it; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the generated files, or check them.")
    parser.add_argument("--check", action="store_true", help="compare only, and fail when a file is out of date")
    checking = parser.parse_args(argv).check
    outdated = stale(entries, root)
    for entry, want in outdated:
        if checking:
            print(f"{entry.path} is out of date: run make generate and commit it", file=sys.stderr)
        else:
            (root / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (root / entry.path).write_bytes(want)
            print(f"wrote {entry.path}")
    print(f"generated files: {len(entries)} known, {len(outdated)} out of date")
    return 1 if checking and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
