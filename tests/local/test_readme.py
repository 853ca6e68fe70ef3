"""The README's commands, run as a newcomer runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds for a run to come up on a busy machine


def shell_blocks() -> list[list[str]]:
    """Return the commands of the README's shell blocks, comments removed."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [[line.split(" #")[0].strip() for line in block.splitlines() if line.strip()] for block in blocks]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Give a folder that looks like the checkout to the commands, with `lbg` on the path."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}


def sh(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_two_terminals_of_the_readme_end_with_a_verdict(tmp_path: Path, environment: dict[str, str]) -> None:
    """Run, publish, status, rollout, stop, verify: each command succeeds as written, and the verdict is ok."""
    (first,) = next(block for block in shell_blocks() if block[0].startswith("lbg run"))
    second = next(block for block in shell_blocks() if block[0].startswith("lbg publish"))
    running = subprocess.Popen(
        first.split(), cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while sh("lbg status orders", tmp_path, environment).returncode and time.monotonic() < deadline:
            assert running.poll() is None
        done = [(command, sh(command, tmp_path, environment)) for command in second]
        assert [(c, d.returncode, d.stderr) for c, d in done if d.returncode] == []
        assert "300 of 300 published" in re.sub(r" +", " ", done[-1][1].stdout)
        assert running.wait(PATIENCE) == 0
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGKILL)
            running.wait()


def test_the_plan_of_the_readme_moves_what_it_says(tmp_path: Path, environment: dict[str, str]) -> None:
    """`lbg plan` in the README works as written."""
    (command,) = next(block for block in shell_blocks() if block[0].startswith("lbg plan"))
    assert sh(command, tmp_path, environment).returncode == 0


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    """What the README promises to newcomers exists."""
    commands = next(block for block in shell_blocks() if block[0].startswith("make demo"))
    assert commands == ["make demo", "make test"]
    targets = (ROOT / "Makefile").read_text()
    assert all(f"\n{command.removeprefix('make ')}:" in targets for command in commands)
