"""Files of whole lines: what was flushed stays, a torn tail goes, and the count is true."""

import ast
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from lbg.core import run_log
from lbg.local.errors import StorageRefused
from lbg.local.journal import Journal
from lbg.local.lines import Lines


def test_a_file_goes_on_where_it_ended(tmp_path: Path) -> None:
    """A file that is opened again counts the lines that are there and appends after them."""
    path = tmp_path / "some.jsonl"
    first = Lines(path)
    first.append(["a", "b"])
    first.flush()
    first.close()
    second = Lines(path)
    assert second.count == 2
    second.append(["c"])
    second.flush()
    second.close()
    assert path.read_text() == "a\nb\nc\n"


def test_what_was_not_flushed_is_not_there(tmp_path: Path) -> None:
    """A process that dies before it flushes leaves whole lines only."""
    lines = Lines(tmp_path / "some.jsonl")
    lines.append(["a"])
    lines.close()
    assert lines.path.read_text() == ""


@hypothesis.given(text=st.binary(max_size=60).map(lambda raw: raw.replace(b"a", b"\n")))
def test_a_torn_tail_is_cut_off(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    """Whatever a kill left behind, the file holds the whole lines before it and their number."""
    path = tmp_path_factory.mktemp("lines") / "some.jsonl"
    path.write_bytes(text)
    lines = Lines(path)
    lines.close()
    want = text[: text.rfind(b"\n") + 1]
    assert (path.read_bytes(), lines.count) == (want, want.count(b"\n"))


FILLS_THE_DISK = """
import resource, sys
from pathlib import Path
from lbg.local.errors import StorageRefused
from lbg.local.lines import Lines

def room_for(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

lines = Lines(Path(sys.argv[1]))
room_for(10)
lines.append(["12345"])
lines.flush()
lines.append(["67890"])
try:
    lines.flush()
except StorageRefused as refused:
    said = str(refused)
left = lines.path.read_text()
room_for(100)
lines.flush()
lines.close()
print(repr((said, left)))
"""


def test_what_does_not_fit_is_one_line_and_leaves_the_file_whole(tmp_path: Path) -> None:
    """A refused flush names the file, leaves no torn line, and is not lost for the next one.

    In a process of its own: the limit counts for every file it writes, the test runner's report too.
    """
    path = tmp_path / "some.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FILLS_THE_DISK, str(path)], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    said, left = ast.literal_eval(done.stdout)
    assert said.startswith(f"{path}: file too large")
    assert left == "12345\n"
    assert path.read_text() == "12345\n67890\n"


def test_a_folder_that_is_absent_is_one_line(tmp_path: Path) -> None:
    """A file that cannot be opened is named."""
    with pytest.raises(StorageRefused, match=r"absent/some\.jsonl: no such file or directory"):
        Lines(tmp_path / "absent" / "some.jsonl")


def test_the_journal_is_read_back_as_it_was_noted(tmp_path: Path) -> None:
    """Every event is in the file when `note` returns, in order, in the format of the run's log."""
    heard: list[run_log.RunEvent] = []
    journal = Journal(tmp_path / "events.jsonl", heard.append)
    journal.note(run_log.CONSUMER_STARTED, "consumer-1", pid=17)
    journal.note(run_log.SCALED, why="backlog 9", **{"from": 1, "to": 2})
    written = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [run_log.from_json(line) for line in written] == heard == list(journal.recent)
    journal.close()
