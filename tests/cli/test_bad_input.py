"""A table of wrong command lines and inputs: each gives its exit code and exactly one line, and changes nothing."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import typer

from lbg.cli import app

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

GOOD = """\
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {name: orders}
spec: {queues: {count: 4}, consumers: {handler: {republish: {to: out}}}}
"""

FILES = {
    "good.yaml": GOOD,
    "empty.yaml": "",
    "syntax.yaml": "spec: {a: [",
    "tab.yaml": "spec:\n\tqueues: 1\n",
    "list.yaml": "- a\n",
    "other-kind.yaml": GOOD.replace("LoadBalancedGroup", "Deployment"),
    "unknown-field.yaml": GOOD.replace("queues:", "queuess:"),
    "bounds.yaml": GOOD.replace("count: 4", "count: 0"),
    "type.yaml": GOOD.replace("count: 4", "count: many"),
    "twice.yaml": GOOD + "spec: {}\n",
    "two-documents.yaml": GOOD + "---\n" + GOOD,
    "no-handler.yaml": GOOD.replace("{republish: {to: out}}", "{}"),
    "out.jsonl": '{"not": "a record"}\n',
    "source.csv": "id,at\na,1\n",
    "broken.jsonl": '{"id": "a"\n',
}
BYTES = {
    "binary.yaml": b"\xff\xfe\x00\x01",
    "nul.yaml": b"a\x00b",
    "latin1.yaml": GOOD.replace("orders", "bücher").encode("latin-1"),
}


class Case(NamedTuple):
    """A command line, the exit code that it must give, and a word that its line must have."""

    arguments: str
    code: int
    names: str


CASES = [
    # the command line itself
    Case("hsh", 2, "hash"),
    Case("--no-such-option", 2, "--no-such-option"),
    Case("hash", 2, "KEY"),
    Case("hash a", 2, "--count"),
    Case("hash a --count", 2, "--count"),
    Case("hash a --count x", 2, "--count"),
    Case("hash a --count 0", 2, "count"),
    Case("hash a --count -3", 2, "count"),
    Case("hash a --count 65537", 2, "65536"),
    Case("hash a --count 99999999999999999999", 2, "count"),
    Case("hash a b --count 8", 2, "b"),
    Case("hash a --count 8 --algorithm md5", 2, "xxh64"),
    Case("hash a --count 8 --algorithm modulo", 2, "modulo"),
    Case("hash a --count 8 --queues 9", 2, "9"),
    Case("hash a --count 8 --queues 0", 2, "queues"),
    Case("hash a --count 8 -o yaml", 2, "json"),
    Case("completion", 2, "SHELL"),
    Case("completion ksh", 2, "bash"),
    Case("version now", 2, "now"),
    # a group's YAML
    Case("check", 2, "GROUP.yaml"),
    Case("check missing.yaml", 2, "missing.yaml"),
    Case("check folder", 2, "folder"),
    Case("check unreadable.yaml", 2, "unreadable.yaml"),
    Case("check good.yaml/x", 2, "good.yaml/x"),
    *(Case(f"check {name}", 2, name) for name in FILES if name.endswith(".yaml") and name != "good.yaml"),
    *(Case(f"check {name}", 2, name) for name in BYTES),
    Case("plan missing.yaml --replicas 1:2", 2, "missing.yaml"),
    Case("plan bounds.yaml --replicas 1:2", 2, "spec.queues.count"),
    Case("plan good.yaml", 2, "--replicas"),
    Case("plan good.yaml --replicas 1:5", 2, "5"),
    Case("plan good.yaml --replicas one", 2, "one"),
    # evidence
    Case("verify", 2, "OUTPUT"),
    Case("verify missing.jsonl", 2, "missing.jsonl"),
    Case("verify folder", 2, "folder"),
    Case("verify unreadable.yaml", 2, "unreadable.yaml"),
    Case("verify out.jsonl --log missing", 2, "missing"),
    Case("verify out.jsonl --source missing --count 8", 2, "missing"),
    Case("verify out.jsonl --source source.csv --key id", 2, "--group"),
    Case("verify out.jsonl --source source.csv --key id", 2, "--count"),
    Case("verify ''", 2, "OUTPUT"),
    Case("verify out.jsonl --source source.csv --key nope --count 8", 2, "nope"),
    Case("verify out.jsonl --source source.csv --key id, --count 8", 2, "id,"),
    Case("verify out.jsonl --source source.csv --key id --count 0", 2, "count"),
    Case("verify out.jsonl --source broken.jsonl --key id --count 8", 2, "broken.jsonl"),
    Case("verify out.jsonl --source source.csv --key id --group bounds.yaml", 2, "bounds.yaml"),
    Case("verify out.jsonl --group good.yaml", 2, "--source"),
    Case("verify out.jsonl --idle 3", 2, "--follow"),
    Case("verify out.jsonl --examples -1", 2, "--examples"),
    # brokers
    Case("list", 2, "--broker"),
    Case("list --broker x", 2, "--broker"),
    Case("list --broker nonsense://host", 2, "nonsense"),
    Case("list --broker embedded:///nowhere/lbg.sock", 3, "/nowhere/lbg.sock"),
    Case("list --broker embedded+tcp://127.0.0.1:1", 3, "127.0.0.1:1"),
    Case("list --broker embedded+tcp://127.0.0.1:many", 3, "many"),
    Case("list --broker-file missing", 2, "missing"),
    Case("list --broker-file empty.yaml", 2, "empty.yaml"),
    Case("list --broker-file unreadable.yaml", 2, "unreadable.yaml"),
    Case("list --broker x://y --broker-file good.yaml", 2, "--broker-file"),
    Case("create good.yaml", 2, "--broker"),
    Case("create missing.yaml --broker embedded:///nowhere/lbg.sock", 2, "missing.yaml"),
    Case("create good.yaml --broker embedded:///nowhere/lbg.sock", 3, "/nowhere/lbg.sock"),
    Case("delete", 2, "PREFIX"),
    Case("delete orders --broker embedded:///nowhere/lbg.sock --yes", 3, "/nowhere/lbg.sock"),
    Case("publish", 2, "FILE"),
    Case("publish source.csv", 2, "--key"),
    Case("publish source.csv --key id", 1, "lbg run"),
    Case("publish source.csv --key id --group orders", 1, "orders"),
    Case("publish source.csv --key id --group missing.yaml", 2, "missing.yaml"),
    Case("publish source.csv --key id --group bounds.yaml", 2, "spec.queues.count"),
    Case("publish source.csv --key id --group good.yaml", 1, "orders"),
    Case("publish source.csv --key id --broker embedded:///nowhere/lbg.sock", 2, "--group"),
    Case("publish source.csv --key id --broker embedded:///nowhere/lbg.sock --group o", 3, "/nowhere/lbg.sock"),
    Case("publish source.csv --key id, --group o", 2, "id,"),
    Case("publish source.csv --key id --order , --group o", 2, ","),
    Case("publish source.csv --key id --rate 0 --group o", 2, "rate"),
    Case("publish source.csv --key id --rate nan --group o", 2, "rate"),
    Case("publish source.csv --key id --format xml", 2, "csv"),
    Case("publish source.csv --key id --delimiter ;; --group o", 2, "--delimiter"),
    # runs
    Case("run", 2, "GROUP.yaml"),
    Case("run missing.yaml", 2, "missing.yaml"),
    Case("run folder", 2, "folder"),
    Case("run binary.yaml", 2, "binary.yaml"),
    Case("run bounds.yaml", 2, "spec.queues.count"),
    Case("run -", 2, "GROUP.yaml"),
    Case("run good.yaml --handover magic", 2, "cooperative"),
    Case("run good.yaml --broker x", 2, "--broker"),
    Case("run good.yaml --broker http://x", 2, "http"),
    Case("run good.yaml --dir ''", 2, "--dir"),
    Case("demo --dir ''", 2, "--dir"),
    Case("run good.yaml --broker-file missing", 2, "missing"),
    Case("demo now", 2, "now"),
    Case("demo --rows 99", 2, "--rows"),
    Case("demo --rows 336777", 2, "--rows"),
    Case("demo --broker x", 2, "--broker"),
    Case("demo --handover magic", 2, "cooperative"),
    Case("status", 1, "lbg run"),
    Case("status nope", 1, "nope"),
    Case("status folder", 1, "folder"),
    Case("scale orders", 2, "CC"),
    Case("scale orders many", 2, "CC"),
    Case("scale orders 3", 1, "orders"),
    Case("kill orders", 2, "CONSUMER"),
    Case("kill orders c-1", 1, "orders"),
    Case("kill orders c-1 --signal SIGFOO", 2, "--signal"),
    Case("rollout", 1, "lbg run"),
    Case("stop orders", 1, "orders"),
    Case("blocked", 1, "lbg run"),
    Case("skip", 2, "MESSAGE-ID"),
    Case("skip a:1:2:3 --yes", 1, "lbg run"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with every file of the table in it."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name, content in BYTES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    # A socket can be named, and opened by nobody, root included.
    unreadable(tmp_path / "unreadable.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def unreadable(path: Path) -> None:
    """Make a file that no user can open."""
    os.mknod(path, 0o600 | 0o140000)


def contents(folder: Path) -> list[tuple[str, int]]:
    """Every file below a folder with its time of change."""
    return sorted((str(path), path.lstat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.mark.parametrize("case", CASES, ids=[case.arguments for case in CASES])
def test_bad_input_is_one_line_and_changes_nothing(lbg: Lbg, folder: Path, case: Case) -> None:
    """Code, one line that names the thing, nothing on standard output, no file written."""
    before = contents(folder)
    ran = lbg(*shlex.split(case.arguments), stdin="")
    assert ran.code == case.code, ran.err
    assert case.names in ran.line()
    assert ran.out == ""
    assert contents(folder) == before


def commands() -> list[str]:
    """Every command that there is."""
    return sorted(typer.main.get_command(app.app).commands)  # type: ignore[attr-defined]  # a group has them


def test_every_command_is_in_the_table() -> None:
    """A new command comes with a line about what it refuses."""
    assert {case.arguments.split()[0] for case in CASES} >= set(commands())


@pytest.mark.parametrize("command", commands())
def test_help_has_examples(lbg: Lbg, command: str) -> None:
    """Each command explains itself, with a command line to copy, and without running."""
    ran = lbg(command, "--help")
    assert ran.code == 0
    assert f"    lbg {command}" in ran.out or f" lbg {command}" in ran.out.partition("Examples:")[2]


@pytest.mark.parametrize("command", commands())
def test_unknown_option_is_one_line(lbg: Lbg, command: str) -> None:
    """Whatever the command, a misspelled option gives a line that says where to look."""
    ran = lbg(command, "--no-such-option")
    assert ran.code == 2
    assert f"lbg {command} --help" in ran.line()


@pytest.mark.parametrize("command", commands())
def test_command_that_prints_takes_json(lbg: Lbg, command: str) -> None:
    """-o json is there for every command, but for the one that prints a script."""
    assert ("--output" in lbg(command, "--help").out) is (command != "completion")
