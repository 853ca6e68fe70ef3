"""`lbg publish` sends the rows of a file in their order, and says exactly how far it came."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

GROUP = """\
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {name: orders}
spec:
  hashing: {count: 16}
  queues: {count: 2}
  consumers: {handler: {republish: {to: out}}}
"""


@pytest.fixture(autouse=True)
def stream(lbg: Lbg, tmp_path: Path, broker: str) -> Path:
    """A stream called orders on the broker; the group's file."""
    file = tmp_path / "orders.yaml"
    file.write_text(GROUP)
    assert lbg("create", file).code == 0
    return file


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Three rows in the order of their column `at`."""
    file = tmp_path / "rows.csv"
    file.write_text("id,at\na,1\nb,2\na,3\n")
    return file


def waiting(lbg: Lbg) -> object:
    """How many events wait in the stream."""
    (found,) = json.loads(lbg("list", "-o", "json").out)["streams"]
    return found["backlog"]


def test_every_row_is_confirmed(lbg: Lbg, rows: Path) -> None:
    """JSON says how many, to where and how fast, and the broker has them all."""
    ran = lbg("publish", rows, "--key", "id", "--order", "at", "--group", "orders", "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert set(answer) == {"prefix", "rows", "confirmed", "seconds", "rate"}
    assert (answer["prefix"], answer["rows"], answer["confirmed"]) == ("orders", 3, 3)
    assert waiting(lbg) == 3


def test_rows_come_from_standard_input(spawn: Lbg, lbg: Lbg, broker: str) -> None:
    """A dash reads a pipe, of which the format must be said."""
    lines = '{"id": "a"}\n{"id": "b"}\n'
    ran = spawn("publish", "-", "--format", "jsonl", "--key", "id", "--group", "orders", stdin=lines)
    assert (ran.code, ran.err) == (0, "")
    assert "2 rows" in ran.out
    assert waiting(lbg) == 2
    unsaid = spawn("publish", "-", "--key", "id", "--group", "orders", stdin=lines)
    assert unsaid.code == 2
    assert "standard input" in unsaid.line()


def test_contract_of_the_file_must_be_the_brokers(lbg: Lbg, rows: Path, stream: Path) -> None:
    """A group's YAML that has another HC would send keys elsewhere, so nothing is sent."""
    assert lbg("publish", rows, "--key", "id", "--group", stream).code == 0
    stream.write_text(GROUP.replace("count: 16", "count: 32"))
    ran = lbg("publish", rows, "--key", "id", "--group", stream)
    assert ran.code == 1
    assert "count" in ran.line()
    assert waiting(lbg) == 3


@pytest.mark.parametrize(
    ("text", "options", "line", "column"),
    [
        ("id,at\na,1\n,2\nb,3\n", "", ":3:", "id"),
        ("id,at\na,1\nNA,2\nb,3\n", "--missing NA", ":3:", "id"),
        ("id,at\na,2\nb,1\n", "--order at", ":3:", "at"),
        ("id,at\na,1\nb\n", "", ":3:", ""),
        ("id,at\na,1\n\udcff,2\n", "", ":3:", ""),
    ],
)
def test_row_that_does_not_fit_is_named(
    lbg: Lbg, tmp_path: Path, text: str, options: str, line: str, column: str
) -> None:
    """File, line and column in one line; the rows before it are at the broker, the others are not."""
    file = tmp_path / "rows.csv"
    file.write_bytes(text.encode(errors="surrogateescape"))
    ran = lbg("publish", file, "--key", "id", "--group", "orders", *options.split())
    assert ran.code == 2
    assert f"{file}{line}" in ran.line()
    assert column in ran.line()
    assert waiting(lbg) == 1


def test_row_without_a_key_gets_the_one_that_is_named(lbg: Lbg, tmp_path: Path) -> None:
    """--missing-key publishes what would be refused."""
    file = tmp_path / "rows.csv"
    file.write_text("id\nNA\n\nb\n")
    arguments = ["publish", str(file), "--key", "id", "--group", "orders", "--missing", "NA", "--missing-key", "none"]
    assert lbg(*arguments).code == 0
    assert waiting(lbg) == 2


def test_unknown_stream_is_refused(lbg: Lbg, rows: Path) -> None:
    """A typing error in the name is told before anything is sent."""
    ran = lbg("publish", rows, "--key", "id", "--group", "ordres")
    assert ran.code == 1
    assert "ordres" in ran.line()


def test_interrupt_says_how_far_it_came(installed: Path, tmp_path: Path, lbg: Lbg) -> None:
    """Ctrl-C in the middle ends it with 130 and the number of confirmed rows, which is what the broker has."""
    process = subprocess.Popen(
        [installed, "publish", "-", "--format", "csv", "--key", "id", "--group", "orders"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("id\na\nb\n")
    process.stdin.flush()
    while waiting(lbg) != 2:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "lbg: interrupted, 2 rows are confirmed\n"


def test_terminal_gets_a_bar_and_output_stays_clean(installed: Path, rows: Path) -> None:
    """Progress is drawn on standard error only, and only where it is a terminal."""
    keyboard, terminal = pty.openpty()
    command: list[str | Path] = [
        installed,
        "publish",
        rows,
        "--key",
        "id",
        "--group",
        "orders",
        "-o",
        "json",
        "--rate",
        "6",
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, check=True)
    os.close(terminal)
    drawn = os.read(keyboard, 100_000).decode()
    os.close(keyboard)
    assert json.loads(ended.stdout)["rows"] == 3
    assert "rows" in drawn
    assert "lbg:" not in drawn
