"""`lbg verify` prints the validator's verdict in the published shape, and its exit code follows it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lbg.core.outputs import OutputRecord

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

PUBLISHED = {
    "events",
    "keys",
    "order_errors",
    "gaps",
    "duplicates",
    "duplicates_on_planned_moves",
    "stale",
    "parked",
    "dead_lettered",
    "skipped",
    "moves",
    "handover_ms",
    "failover_ms",
    "ok",
}


def record(sequence: int) -> OutputRecord:
    """The record of one event of one key, handled in good order."""
    return OutputRecord(
        message_id=f"shop:1:0:{sequence}",
        key="a",
        shard=0,
        queue=0,
        epoch=1,
        producer="shop",
        incarnation=1,
        sequence=sequence,
        consumer="c-0",
        ordinal=0,
        attempt=1,
        redelivered=False,
        first_after_handover=sequence == 0,
        clean=True,
        started=1000.0 + sequence,
        ended=1000.5 + sequence,
        published=900.0,
    )


def written(file: Path, *sequences: int) -> Path:
    """A file with the records of these sequences, in this order."""
    file.write_text("".join(record(sequence).to_json() + "\n" for sequence in sequences))
    return file


def test_good_output_is_ok_and_has_the_published_keys(lbg: Lbg, tmp_path: Path) -> None:
    """Every key of the published surface is there, delays have p50, p99 and max, and the code is 0."""
    ran = lbg("verify", written(tmp_path / "out.jsonl", 0, 1, 2), "-o", "json")
    assert ran.code == 0, ran.out
    answer = json.loads(ran.out)
    assert set(answer) >= PUBLISHED
    assert set(answer["handover_ms"]) >= {"p50", "p99", "max"}
    assert set(answer["failover_ms"]) >= {"p50", "p99", "max"}
    assert (answer["events"], answer["keys"], answer["ok"]) == (3, 1, True)


def test_event_out_of_order_is_not_ok(lbg: Lbg, tmp_path: Path) -> None:
    """A planted order error is counted, and the exit code is 1 with nothing on standard error."""
    ran = lbg("verify", written(tmp_path / "out.jsonl", 1, 0, 2), "-o", "json")
    assert (ran.code, ran.err) == (1, "")
    answer = json.loads(ran.out)
    assert (answer["order_errors"], answer["ok"]) == (1, False)


def test_lost_tail_shows_with_a_source(lbg: Lbg, tmp_path: Path) -> None:
    """Rows of the source that never came out are gaps; the contract comes from the group."""
    group = tmp_path / "group.yaml"
    group.write_text(
        "apiVersion: lbg.dev/v1alpha1\nkind: LoadBalancedGroup\nmetadata: {name: g}\n"
        "spec: {hashing: {count: 1}, queues: {count: 1}, consumers: {handler: {republish: {to: out}}}}\n"
    )
    source = tmp_path / "source.csv"
    source.write_text("id,at\na,1\na,2\na,3\n")
    output = written(tmp_path / "out.jsonl", 0, 1)
    by_group = lbg("verify", output, "--source", source, "--key", "id", "--group", group, "-o", "json")
    by_count = lbg("verify", output, "--source", source, "--key", "id", "--count", "1", "-o", "json")
    assert by_group.code == by_count.code == 1
    assert json.loads(by_group.out)["gaps"] == json.loads(by_count.out)["gaps"] == 1


def test_text_ends_with_the_verdict(lbg: Lbg, tmp_path: Path) -> None:
    """A person reads the sum in the last line."""
    assert lbg("verify", written(tmp_path / "good.jsonl", 0, 1)).out.splitlines()[-1].startswith("ok")
    assert lbg("verify", written(tmp_path / "bad.jsonl", 1, 0)).out.splitlines()[-1].startswith("NOT OK")


def test_held_shows_who_held_what(lbg: Lbg, tmp_path: Path) -> None:
    """With --held each tenure of a queue is a line that names its consumer."""
    output = written(tmp_path / "out.jsonl", 0, 1)
    assert "c-0" not in lbg("verify", output).out
    assert "c-0" in lbg("verify", output, "--held").out


def test_output_comes_from_standard_input(spawn: Lbg) -> None:
    """A dash reads standard input, as in a pipe."""
    ran = spawn("verify", "-", "-o", "json", stdin=record(0).to_json() + "\n")
    assert json.loads(ran.out)["events"] == 1


def test_follow_ends_when_nothing_comes_any_more(lbg: Lbg, tmp_path: Path) -> None:
    """With --idle it gives the verdict on what there is, one JSON value a line."""
    ran = lbg("verify", written(tmp_path / "out.jsonl", 0, 1), "--follow", "--idle", "0", "-o", "json")
    assert ran.code == 0
    values = [json.loads(line) for line in ran.out.splitlines()]
    assert values[-1]["events"] == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_follow_gives_its_verdict_when_it_is_stopped(
    installed: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Ctrl-C ends it with the verdict so far, one line, and the signal's code."""
    output = written(tmp_path / "out.jsonl", 0)
    process = subprocess.Popen(
        [installed, "verify", output, "--follow", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["events"] == 1
    with output.open("a") as more:
        more.write(record(1).to_json() + "\n")
    assert json.loads(process.stdout.readline())["events"] == 2
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert json.loads(out.splitlines()[-1])["events"] == 2
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_record_schema_is_what_the_tests_write() -> None:
    """The builder above names every field but the outcome, so that a new field is noticed here."""
    fields = {field.name for field in dataclasses.fields(OutputRecord)}
    assert set(json.loads(record(0).to_json())) == fields
