"""The entry point of the command `lbg`. Little is imported at the top: Ctrl-C may come before our first line runs."""

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    try:
        code = _run()
    except KeyboardInterrupt:
        # While importing, or between the end of a command and this line.
        print("lbg: interrupted", file=sys.stderr)
        code = 130
    _leave(code)


def _run() -> int:
    _replace_closed_streams()
    from lbg.cli import app, errors

    return errors.guard(app.invoke)


def _replace_closed_streams() -> None:
    """Give a stream that the caller closed (`lbg ... >&-`) to nowhere.

    Python has None for it, and the next file or socket that is opened would get its number.
    """
    import os

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # ascending, as the numbers are taken
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # it stays open as long as the process


def _leave(code: int) -> NoReturn:
    import signal

    # What is left is the interpreter's own shutdown, which answers Ctrl-C with a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


if __name__ == "__main__":
    run()
