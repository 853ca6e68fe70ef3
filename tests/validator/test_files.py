"""Outputs in files: damaged, truncated, growing, missing; and run folders with their log."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lbg import validator
from lbg.core import run_log
from lbg.core.outputs import OutputRecord
from lbg.core.wire import Message
from lbg.validator import Verdict

Record = Callable[..., OutputRecord]
Written = Callable[[Iterable[OutputRecord]], Path]


def line(record: OutputRecord) -> bytes:
    """Return a record as its line."""
    return record.to_json().encode() + b"\n"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Return where a run folder has its output."""
    return tmp_path / "output.jsonl"


def test_file_gives_the_verdict_of_its_records(record: Record, written: Written) -> None:
    """Reading lines and taking records come to the same."""
    rows = [record(0, key="ключ"), record(2), record(1), record(1), record(0, shard=3, queue=1, key="x")]
    assert validator.verify_path(written(rows)) == validator.verify(rows)


def test_standard_input_is_read_by_the_dash(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` stands for standard input, also when it ends within a line."""
    piped = line(record(0)) + line(record(1)) + line(record(2))[:50]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(piped)))
    verdict = validator.verify_path("-")
    assert (verdict.events, verdict.truncated) == (2, True)


def test_run_folder_brings_its_log(record: Record, tmp_path: Path, output: Path) -> None:
    """A folder is read with the log in it, which says what was planned; so is its output named as a file."""
    output.write_bytes(line(record(0)) + line(record(0, consumer="b", epoch=2, at=1100.0, clean=False)))
    assert not validator.verify_path(output).with_log
    killed = run_log.RunEvent(1050.0, run_log.CONSUMER_KILLED, "a")
    (tmp_path / "events.jsonl").write_text(killed.to_json() + "\n")
    assert validator.verify_path(tmp_path).ok
    assert validator.verify_path(output) == validator.verify_path(tmp_path)


def test_log_elsewhere_can_be_named(record: Record, tmp_path: Path, written: Written) -> None:
    """A log of another name is used when it is named, and missed when it is not there."""
    log = tmp_path / "what-happened"
    log.touch()
    assert validator.verify_path(written([record(0)]), log=log).with_log
    with pytest.raises(validator.Unusable, match="no such log"):
        validator.verify_path(written([record(0)]), log=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"not json",
        b"[]",
        b"7",
        b'{"message_id":"p:1:0:0"}',
        b"\x00" * 100,
        b"\xff\xfe{}",
        b'{"a":' * 2_000,
    ],
    ids=["blank", "text", "list", "number", "half", "zeros", "no UTF-8", "deep"],
)
def test_damaged_line_is_counted_and_named(record: Record, output: Path, damage: bytes) -> None:
    """A line that is no record makes the verdict bad and keeps no other line from being read."""
    output.write_bytes(line(record(0)) + damage + b"\n" + line(record(1)))
    verdict = validator.verify_path(output)
    assert (verdict.damaged, verdict.events, verdict.records, verdict.faults) == (1, 2, 3, ("damaged",))
    assert [(e.kind, e.line) for e in verdict.examples] == [("damaged", 2)]


@pytest.mark.parametrize("field", [name for name in OutputRecord.__slots__ if name != "outcome"])
def test_missing_and_mistyped_fields_are_named(record: Record, output: Path, field: str) -> None:
    """The example says which field is wrong, whichever it is."""
    values = json.loads(record(0).to_json())
    missing = {name: value for name, value in values.items() if name != field}
    lines = [missing, values | {field: None}, values | {field: [1]}]
    output.write_text("".join(json.dumps(value) + "\n" for value in lines))
    verdict = validator.verify_path(output)
    assert [example.text.partition(":")[0] for example in verdict.examples] == [field] * 3


def test_newer_writers_stay_readable(record: Record, output: Path) -> None:
    """Unknown fields are ignored, and a missing outcome is `handled`; an unknown outcome cannot be judged."""
    values = json.loads(record(0).to_json())
    without = {name: value for name, value in values.items() if name != "outcome"}
    output.write_text(json.dumps(without | {"colour": "red"}) + "\n")
    assert validator.verify_path(output).ok
    output.write_text(json.dumps(values | {"outcome": "eaten"}) + "\n")
    assert validator.verify_path(output).faults == ("damaged",)


def test_binary_junk_is_counted_without_being_loaded(output: Path) -> None:
    """A file without newlines is damage, not memory: a line counts as one however long it is."""
    output.write_bytes(bytes(range(11, 256)) * 20_000)
    verdict = validator.verify_path(output)
    assert (verdict.damaged, verdict.records, verdict.ok) == (1, 1, False)


def test_overlong_line_ends_at_its_newline(record: Record, output: Path) -> None:
    """What follows a line of several MiB is read as usual."""
    output.write_bytes(line(record(0)) + b"x" * 3_000_000 + b"\n" + line(record(1)))
    verdict = validator.verify_path(output)
    assert (verdict.damaged, verdict.events) == (1, 2)


def test_truncated_last_line_is_reported_and_no_damage(record: Record, output: Path) -> None:
    """Half a record was not confirmed and promises nothing; the verdict says that the file ends in it."""
    whole = line(record(1))
    output.write_bytes(line(record(0)) + whole[:60])
    verdict = validator.verify_path(output)
    assert (verdict.truncated, verdict.damaged, verdict.events, verdict.ok) == (True, 0, 1, True)


def test_last_line_without_newline_is_a_record(record: Record, output: Path) -> None:
    """A closed JSON object is whole, whether or not a newline follows."""
    output.write_bytes(line(record(0)) + line(record(1)).rstrip())
    verdict = validator.verify_path(output)
    assert (verdict.truncated, verdict.events) == (False, 2)


@pytest.mark.parametrize("junk", [b"junk\n", bytes(range(11, 256)) * 40, b"\0" * 9], ids=["text", "binary", "zeros"])
def test_damaged_log_is_no_good_verdict(record: Record, tmp_path: Path, output: Path, junk: bytes) -> None:
    """The log says what was planned, so a damaged line of it is named and the verdict is not ok."""
    output.write_bytes(line(record(0)))
    event = run_log.RunEvent(1050.0, run_log.CONSUMER_KILLED, "a").to_json().encode() + b"\n"
    (tmp_path / "events.jsonl").write_bytes(event + junk)
    verdict = validator.verify_path(tmp_path)
    assert (verdict.log_damaged, verdict.faults, verdict.exit_code) == (1, ("log_damaged",), 1)
    assert ["line 2 of the run's log" in example.text for example in verdict.examples] == [True]


def test_torn_last_line_of_the_log_is_no_damage(record: Record, tmp_path: Path, output: Path) -> None:
    """A run that goes on may be in the middle of its next event."""
    output.write_bytes(line(record(0)))
    event = run_log.RunEvent(1050.0, run_log.CONSUMER_KILLED, "a").to_json().encode()
    (tmp_path / "events.jsonl").write_bytes(event + b"\n" + event[:20])
    assert validator.verify_path(tmp_path).ok


@pytest.mark.parametrize("name", ["nowhere", ""], ids=["no such path", "a folder without output"])
def test_missing_output_is_one_clear_line(tmp_path: Path, name: str) -> None:
    """The error names the path."""
    with pytest.raises(validator.Unusable, match=str(tmp_path)) as refused:
        validator.verify_path(tmp_path / name)
    assert "\n" not in str(refused.value)


def test_folder_with_several_streams_asks_for_one(tmp_path: Path) -> None:
    """A run with more than one output stream has a file for each; they are named."""
    (tmp_path / "output-a.jsonl").touch()
    (tmp_path / "output-b.jsonl").touch()
    with pytest.raises(validator.Unusable, match=r"output-a\.jsonl, output-b\.jsonl"):
        validator.verify_path(tmp_path)


def test_unreadable_output_is_one_clear_line(output: Path) -> None:
    """A folder where a file should be is refused in words."""
    output.mkdir()
    with pytest.raises(validator.Unusable, match="directory"):
        validator.verify_path(output.parent)


def test_broker_stream_is_checked_message_by_message(record: Record) -> None:
    """Records travel in the headers of output messages; a message without one is damage."""
    checker = validator.Checker()
    for row in (record(0), record(1)):
        checker.feed_message(Message(b"body", row.to_headers()))
    checker.feed_message(Message(b"stray"))
    verdict = checker.verdict()
    checker.close()
    assert (verdict.events, verdict.damaged) == (2, 1)


# Following.


class Growing:
    """A file that grows each time the follower waits; stops it after the last step."""

    def __init__(self, path: Path, *steps: bytes) -> None:
        self._path = path
        self._steps = list(steps)

    def wait(self, _seconds: float) -> None:
        """Append the next piece."""
        if self._steps:
            with self._path.open("ab") as file:
                file.write(self._steps.pop(0))

    def is_over(self) -> bool:
        """Tell whether nothing more will come."""
        return not self._steps

    def follow(self, path: Path | None = None) -> Iterator[Verdict]:
        """Follow the file without real time passing."""
        return validator.follow_path(path or self._path, stop=self.is_over, wait=self.wait, interval_seconds=0.0)


def test_following_gives_a_verdict_per_piece(record: Record, output: Path) -> None:
    """Each look that brings something new gives a verdict on everything so far, and the last one is the whole."""
    output.write_bytes(line(record(0)))
    growing = Growing(output, line(record(2)), line(record(1)))
    seen = [(v.events, v.gaps, v.order_errors) for v in growing.follow()]
    assert seen[0] == (1, 0, 0)
    assert (2, 1, 0) in seen
    assert seen[-1] == (3, 0, 1)


def test_following_waits_for_the_end_of_a_line(record: Record, output: Path) -> None:
    """A record in two pieces is one record; until it is whole it counts as nothing, not as damage."""
    output.touch()
    whole = line(record(1))
    growing = Growing(output, line(record(0)) + whole[:30], whole[30:60], whole[60:])
    verdicts = list(growing.follow())
    assert {v.damaged for v in verdicts} == {0}
    assert (verdicts[-1].events, verdicts[-1].truncated) == (2, False)


def test_following_reports_a_line_that_never_ended(record: Record, output: Path) -> None:
    """When following ends within a line, the last verdict says so."""
    output.touch()
    last = list(Growing(output, line(record(0)), line(record(1))[:30]).follow())[-1]
    assert (last.events, last.truncated) == (1, True)


def test_following_sees_a_log_that_comes_later(record: Record, tmp_path: Path, output: Path) -> None:
    """The log may turn up, and explain a repetition, after the records were read."""
    output.write_bytes(line(record(0)) + line(record(0, consumer="b", epoch=2, at=1100.0)))
    killed = run_log.RunEvent(1050.0, run_log.CONSUMER_KILLED, "a").to_json().encode() + b"\n"
    growing = Growing(tmp_path / "events.jsonl", killed[:10], killed[10:])
    verdicts = list(growing.follow(tmp_path))
    assert (verdicts[0].ok, verdicts[-1].ok) == (False, True)


def test_following_waits_for_the_output_to_appear(record: Record, tmp_path: Path, output: Path) -> None:
    """A run that has not written yet is waited for; if it never does, the missing file is named."""
    assert list(Growing(output, line(record(0))).follow())[-1].events == 1
    with pytest.raises(validator.Unusable, match="no such file"):
        list(Growing(tmp_path / "never").follow())


def test_following_refuses_an_output_that_was_cut(record: Record, output: Path) -> None:
    """Records that were read and are gone make every count a lie; the reader is told to start again."""
    output.write_bytes(line(record(0)) + line(record(1)))
    following = validator.follow_path(
        output, stop=lambda: False, wait=lambda _: output.write_bytes(b""), interval_seconds=0.0
    )
    with pytest.raises(validator.Unusable, match="has been cut"):
        list(following)


def test_unfinished_tail_may_be_taken_back(record: Record, output: Path) -> None:
    """A writer that restarts cuts off its torn last line: nothing of it had been counted."""
    output.write_bytes(line(record(0)) + line(record(1))[:40])
    steps = [lambda: output.write_bytes(line(record(0))), lambda: output.write_bytes(line(record(0)) + line(record(1)))]
    following = validator.follow_path(
        output, stop=lambda: not steps, wait=lambda _: steps.pop(0)(), interval_seconds=0.0
    )
    last = list(following)[-1]
    assert (last.events, last.damaged, last.truncated) == (2, 0, False)


def test_following_standard_input_ends_with_it(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a pipe is the end; nobody has to stop it."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(line(record(0)))))
    assert list(validator.follow_path("-", stop=lambda: False))[-1].events == 1
