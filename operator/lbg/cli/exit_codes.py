"""What the exit code of `lbg` says. Scripts depend on these numbers: add codes, never change or reuse one."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """The exit codes of every command; `MEANINGS` has their description."""

    OK = 0
    NOT_OK = 1
    USAGE = 2
    UNREACHABLE = 3
    STORAGE = 4
    MISSING_EXTRA = 5
    INTERNAL = 70
    HUNG_UP = 129
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


MEANINGS: Final[dict[ExitCode, str]] = {
    ExitCode.OK: "done; a verdict that was asked for is good",
    ExitCode.NOT_OK: "the verdict is not good (verify, demo), or the state refuses the request: a name in use, a queue "
    "that is not empty, a run that is going on already or not at all, an answer of no",
    ExitCode.USAGE: "the command line, the group's YAML or another input is wrong, or its file cannot be read",
    ExitCode.UNREACHABLE: "the broker does not answer, went away, or does not let us in",
    ExitCode.STORAGE: "this machine's storage refuses: disk full, read-only, a damaged or newer store",
    ExitCode.MISSING_EXTRA: "an optional dependency is not installed; the line names the pip command",
    ExitCode.INTERNAL: "a defect in lbg; the line names the file that holds the traceback",
    ExitCode.HUNG_UP: "ended because its terminal was closed (128 + SIGHUP)",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C (128 + SIGINT)",
    ExitCode.PIPE_CLOSED: "the reader of standard output went away, as in `lbg list | head -1` (128 + SIGPIPE)",
    ExitCode.TERMINATED: "ended by SIGTERM (128 + SIGTERM)",
}
"""One description per code; the reference in docs/cli.md is written from it."""
