"""Whatever goes wrong, a command ends with one line on standard error and the code of the table."""

from __future__ import annotations

import errno
import importlib.metadata
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lbg.brokers import base
from lbg.cli import errors, exit_codes, output, redaction
from lbg.cli.exit_codes import ExitCode
from lbg.core import membership
from lbg.core.spec import problems
from lbg.local import errors as local
from lbg.local import run as local_run

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

FORESEEN = [
    (errors.BadInput("a"), ExitCode.USAGE),
    (errors.NotNow("a"), ExitCode.NOT_OK),
    (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    (ModuleNotFoundError("no", name="pika"), ExitCode.MISSING_EXTRA),
    (ModuleNotFoundError("no", name="pyspark.sql"), ExitCode.MISSING_EXTRA),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "g.yaml"), ExitCode.USAGE),
    (PermissionError(errno.EACCES, "Permission denied", "g.yaml"), ExitCode.USAGE),
    (IsADirectoryError(errno.EISDIR, "Is a directory", "g.yaml"), ExitCode.USAGE),
    (OSError(errno.ENOSPC, "No space left on device"), ExitCode.STORAGE),
    (OSError(errno.EROFS, "Read-only file system", "out"), ExitCode.STORAGE),
    (OSError(errno.EADDRINUSE, "Address already in use"), ExitCode.NOT_OK),
    (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), ExitCode.UNREACHABLE),
    (TimeoutError(), ExitCode.UNREACHABLE),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), ExitCode.USAGE),
    (base.Unreachable("a"), ExitCode.UNREACHABLE),
    (base.Refused("a"), ExitCode.UNREACHABLE),
    (base.LinkLost("a"), ExitCode.UNREACHABLE),
    (base.Conflict("a", ("b",)), ExitCode.NOT_OK),
    (base.Missing("a"), ExitCode.NOT_OK),
    (base.NotEmpty("a", {1: 2}), ExitCode.NOT_OK),
    (base.BindRefused("a"), ExitCode.NOT_OK),
    (base.Unsupported("a"), ExitCode.NOT_OK),
    (base.StoreDamaged("a"), ExitCode.STORAGE),
    (base.LedgerUnreadable("a"), ExitCode.STORAGE),
    (membership.StoreUnavailable("a"), ExitCode.STORAGE),
    (local.LocalError("a"), ExitCode.NOT_OK),
    (local.StorageRefused("a"), ExitCode.STORAGE),
    (problems.SpecError("g.yaml", [problems.Problem("spec.prefix", '""', "is empty", "name it")]), ExitCode.USAGE),
]


def raising(error: BaseException) -> Callable[[], None]:
    """A command that ends with this error."""

    def call() -> None:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "want"), FORESEEN, ids=[f"{type(e).__name__}-{i}" for i, (e, _) in enumerate(FORESEEN)]
)
def test_foreseen_error_is_one_line_and_its_code(
    error: BaseException, want: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, the code of the table, and no mention of a traceback."""
    assert errors.guard(raising(error)) == want
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"lbg: [^\n]+\n", printed.err)
    assert "traceback" not in printed.err.lower()


def test_every_broker_error_has_a_code() -> None:
    """A new class of broker error must not become a defect of the command."""
    for kind in base.BrokerError.__subclasses__():
        assert errors.ending_of(kind("a")).code is not ExitCode.INTERNAL


def test_each_bad_field_gets_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Two things wrong with a group are two lines, so that both can be mended at once."""
    wrong = [
        problems.Problem("spec.a", "", "is unknown", "remove it"),
        problems.Problem("spec.b", "3", "is bad", "use 2"),
    ]
    assert errors.guard(raising(problems.SpecError("g.yaml", wrong))) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines() == [
        "lbg: g.yaml: spec.a: is unknown: remove it",
        "lbg: g.yaml: spec.b: 3 is bad: use 2",
    ]


def test_message_with_line_breaks_and_escapes_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Text from outside can neither break the line nor drive the terminal."""
    assert errors.guard(raising(errors.BadInput("a\nb\r\nc\x1b[31md\udc80"))) == ExitCode.USAGE
    assert capsys.readouterr().err == "lbg: a b c?[31md?\n"


def test_huge_message_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """An input of a megabyte is not quoted in full."""
    errors.guard(raising(errors.BadInput("x" * 1_000_000)))
    assert len(capsys.readouterr().err) < 3_000


def test_defect_gives_one_line_and_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What nobody foresaw names the file with the traceback, which only its owner can read."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert errors.guard(raising(ZeroDivisionError("division by zero"))) == ExitCode.INTERNAL
    (file,) = tmp_path.iterdir()
    line = capsys.readouterr().err
    assert line.startswith("lbg: ZeroDivisionError: division by zero (")
    assert str(file) in line
    assert line.count("\n") == 1
    assert file.read_text().startswith("Traceback")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_defect_without_a_place_for_its_traceback_still_has_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full or missing temporary folder changes neither the code nor the number of lines."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert errors.guard(raising(ZeroDivisionError())) == ExitCode.INTERNAL
    assert capsys.readouterr().err.count("\n") == 1


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """LBG_DEBUG=1 is for those who want it on the terminal; the code stays."""
    monkeypatch.setenv("LBG_DEBUG", "1")
    assert errors.guard(raising(base.Unreachable("nobody"))) == ExitCode.UNREACHABLE
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("no amqp://u:s3cret@host:5672/v here", "no amqp://***@host:5672/v here"),
        ("no amqp://u:p@s/s@host/v", "no amqp://***@host/v"),
        ("'http://token@host'", "'http://***@host'"),
        ("amqp://host:5672/v", "amqp://host:5672/v"),
        ("write to me@example.org", "write to me@example.org"),
    ],
)
def test_credentials_of_a_url_are_hidden(text: str, want: str) -> None:
    """Everything before the host of a URL is replaced, also when it was not escaped."""
    assert redaction.redact(text) == want


def test_remembered_password_is_hidden_wherever_it_appears() -> None:
    """A library may quote the password without its URL, escaped or not."""
    redaction.remember("amqp://shop:h%40rd@host/v")
    assert redaction.redact("login shop/h@rd or h%40rd failed") == "login shop/*** or *** failed"


def test_short_password_does_not_blank_out_the_text() -> None:
    """Hiding a letter everywhere would hide the message."""
    redaction.remember("amqp://shop:a@host/v")
    assert redaction.redact("a broker") == "a broker"


def test_traceback_of_a_defect_holds_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the file is free of credentials: people attach it to reports."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    errors.guard(raising(RuntimeError("cannot parse amqp://u:s3cret@host/")))
    (file,) = tmp_path.iterdir()
    assert "s3cret" not in file.read_text() + capsys.readouterr().err


def test_missing_extra_is_named_with_its_remedy(lbg: Lbg, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that needs an extra says so before it does anything, with the line to type."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = lbg("demo", "--fast")
    assert ran.code == ExitCode.MISSING_EXTRA
    assert "pip install 'load-balanced-groups[demo]'" in ran.line()


def test_every_extra_is_one_of_the_distribution() -> None:
    """The remedy names an extra that exists, and each of ours but nothing else."""
    extras = importlib.metadata.metadata("load-balanced-groups").get_all("Provides-Extra")
    assert extras is not None
    assert set(errors.EXTRAS.values()) == set(extras)


def test_every_code_has_its_meaning() -> None:
    """The table in the reference has a row for each code."""
    assert set(exit_codes.MEANINGS) == set(ExitCode)


@pytest.mark.parametrize(
    "kind",
    [
        base.Conflict,
        base.NotEmpty,
        base.Missing,
        base.BindRefused,
        base.Unsupported,
        base.StoreDamaged,
        base.LedgerUnreadable,
        base.BrokerError,
        membership.StoreUnavailable,
        local.StorageRefused,
        local.LocalError,
        ZeroDivisionError,
    ],
)
def test_log_of_a_run_names_the_code_that_the_process_exits_with(kind: type[Exception]) -> None:
    """The run's last event is written before the error gets its line; both must say the same code."""
    error = kind("why")
    assert local_run.exit_code_of(error) == errors.ending_of(error).code


def test_line_break_in_a_cell_keeps_its_row_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """An error of several lines is one row of the table."""
    output.write_table(("message", "error"), [("a:1:2:3", "first\nsecond\tthird")])
    assert capsys.readouterr().out.splitlines()[1].split() == ["a:1:2:3", "first", "second", "third"]
