"""The output against what was published: lost tails, whole keys, invented events, and rows out of place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from lbg import validator
from lbg.core import hashing, run_log
from lbg.core.contract import Contract
from lbg.core.hashing import Algorithm
from lbg.core.outputs import OutputRecord
from lbg.validator import Published, SourceFile

Record = Callable[..., OutputRecord]
Written = Callable[[Iterable[OutputRecord]], Path]

COUNT = 4
KEYS = ["ant", "bee", "cat", "ant", "dog", "bee", "ant", "emu", "cat", "ant"]


def published(keys: Iterable[str] = KEYS) -> list[Published]:
    """Return what one publisher makes of keys in this order."""
    return list(validator.replayed(keys, hashing.sharder(COUNT)))


@pytest.fixture
def handled(record: Record) -> list[OutputRecord]:
    """Return the output of a run in which everything published was handled, in order."""
    return [record(e.sequence, key=e.key, shard=e.shard) for e in published()]


def test_complete_output_equals_its_source(handled: list[OutputRecord]) -> None:
    """Every key's events are there, in source order."""
    verdict = validator.verify(handled, source=published())
    assert verdict.ok
    assert (verdict.published, verdict.events, verdict.gaps, verdict.invented, verdict.wrong_keys) == (10, 10, 0, 0, 0)


def test_shards_may_progress_in_any_order(handled: list[OutputRecord]) -> None:
    """The source orders the events of a key, not the queues among each other."""
    assert validator.verify(sorted(handled, key=lambda r: -r.shard), source=published()).ok


def test_lost_tail_shows_with_a_source(handled: list[OutputRecord]) -> None:
    """The last event of the source is missing: invisible alone, a gap by comparison."""
    assert validator.verify(handled[:-1]).gaps == 0
    verdict = validator.verify(handled[:-1], source=published())
    assert (verdict.gaps, verdict.faults) == (1, ("gaps",))


def test_lost_key_shows_with_a_source(handled: list[OutputRecord]) -> None:
    """A key of which nothing arrived is missing with all its events."""
    left = [record for record in handled if record.key != "ant"]
    assert validator.verify(left, source=published()).gaps == KEYS.count("ant")


def test_empty_output_lacks_everything() -> None:
    """With a source an empty output is judged: it lacks what was published, and if that was nothing, all is well."""
    assert validator.verify([], source=published()).gaps == 10
    assert validator.verify([], source=[]).ok


def test_invented_event_is_a_fault(record: Record, handled: list[OutputRecord]) -> None:
    """An event behind the last one of its shard was never published."""
    shard = handled[0].shard
    sequence = sum(row.shard == shard for row in handled)
    verdict = validator.verify([*handled, record(sequence, key="ant", shard=shard)], source=published())
    assert (verdict.invented, verdict.gaps, verdict.faults) == (1, 0, ("invented",))
    assert [(e.kind, e.line) for e in verdict.examples] == [("invented", 11)]


def test_event_of_another_life_is_invented(record: Record, handled: list[OutputRecord]) -> None:
    """Rows are one life's, the first one that the output shows."""
    verdict = validator.verify(
        [*handled, record(0, key="ant", shard=handled[0].shard, incarnation=2)], source=published()
    )
    assert verdict.faults == ("invented",)


def test_wrong_key_for_a_sequence_is_a_fault(record: Record, handled: list[OutputRecord]) -> None:
    """The output has the right sequence under another key than the source."""
    first = handled[0]
    handled[0] = record(first.sequence, key="yak", shard=first.shard)
    verdict = validator.verify(handled, source=published())
    assert (verdict.wrong_keys, verdict.gaps, verdict.faults) == (1, 0, ("wrong_keys",))


def test_publishing_out_of_source_order_is_found(record: Record) -> None:
    """Sequences in order prove nothing if the publisher dealt them out in another order than the source's."""
    same_shard = published(["ant"] * 2)[0].shard
    other = next(key for key in ("bee", "cat", "dog", "emu", "fox", "gnu", "hen", "owl") if _shard(key) == same_shard)
    output = [record(0, key=other, shard=same_shard), record(1, key="ant", shard=same_shard)]
    verdict = validator.verify(output, source=published(["ant", other]))
    assert (verdict.order_errors, verdict.wrong_keys, verdict.ok) == (0, 2, False)


def _shard(key: str) -> int:
    return hashing.shard_of(key, COUNT)


def test_manifest_covers_several_lives(record: Record) -> None:
    """With identities in the source, restarts and several producers are compared too."""
    lives = [("p", 1), ("p", 2), ("q", 1)]
    source = [Published("k", 0, n, producer, life) for producer, life in lives for n in range(2)]
    output = [record(e.sequence, producer=e.producer, incarnation=e.incarnation) for e in source]
    assert validator.verify(output, source=source).ok
    assert validator.verify(output[:3] + output[4:], source=source).gaps == 1


def test_long_shards_are_compared_to_their_end(record: Record) -> None:
    """More events than fit in one block of the comparison file; the last key of each block is compared as well."""
    keys = [f"k{n % 3}" for n in range(1_500)]
    output = [record(n, key=key) for n, key in enumerate(keys)]
    source = [Published(key, 0, n) for n, key in enumerate(keys)]
    assert validator.verify(output, source=source).ok
    for n in (511, 512, 1_499):
        wrong = [*source[:n], source[n]._replace(key="yak"), *source[n + 1 :]]
        assert validator.verify(output, source=wrong).wrong_keys == 1


def test_source_that_repeats_a_sequence_is_refused() -> None:
    """A manifest that contradicts itself proves nothing; the line says where."""
    with pytest.raises(validator.Unusable, match="sequence 0 of p:1:0 follows 0"):
        validator.verify([], source=[Published("k", 0, 0, "p", 1), Published("k", 0, 0, "p", 1)])


# Files.


def csv_of(folder: Path, rows: Sequence[str], header: str = "n,key") -> Path:
    """Write a CSV file."""
    path = folder / "source.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_csv_rows_are_hashed_and_numbered(tmp_path: Path, handled: list[OutputRecord], written: Written) -> None:
    """A CSV file in published order is compared by its key column; missing events are named with their key."""
    source = SourceFile(path=csv_of(tmp_path, [f"{n},{key}" for n, key in enumerate(KEYS)]), count=COUNT)
    assert validator.verify_path(written(handled), source=source).ok
    verdict = validator.verify_path(written(handled[:-1]), source=source)
    assert verdict.gaps == 1
    assert "of key 'ant': never seen" in verdict.examples[0].text


def test_several_columns_make_one_key(tmp_path: Path, record: Record, written: Written) -> None:
    """Key columns are joined with a slash."""
    source = SourceFile(path=csv_of(tmp_path, ["LH,7"], "carrier,flight"), key=("carrier", "flight"), count=1)
    assert validator.verify_path(written([record(0, key="LH/7")]), source=source).ok


def test_rows_without_a_key_have_the_one_that_was_published(tmp_path: Path, record: Record, written: Written) -> None:
    """A row that lacks any of its key columns stands for the key that the publisher gave to such rows."""
    path = csv_of(tmp_path, ["LH,7", "NA,7", ",7", "LH"], "carrier,flight")
    source = SourceFile(
        path=path, key=("carrier", "flight"), count=1, missing=frozenset({"", "NA"}), missing_key="no-key"
    )
    keys = ["LH/7", "no-key", "no-key", "no-key"]
    assert validator.verify_path(written(record(n, key=key) for n, key in enumerate(keys)), source=source).ok


def test_tabs_separate_the_columns_of_tsv(tmp_path: Path, record: Record, written: Written) -> None:
    """The ending of the file's name tells, as it does when the file is published."""
    path = tmp_path / "source.tsv"
    path.write_text("n\tkey\n1\ta,b\n")
    assert validator.verify_path(written([record(0, key="a,b")]), source=SourceFile(path=path, count=1)).ok


def test_json_rows_are_hashed_and_numbered(tmp_path: Path, record: Record, written: Written) -> None:
    """JSON lines work like CSV; an integer key is its decimal text."""
    path = tmp_path / "source.jsonl"
    path.write_text('{"id": 7}\n\n{"id": "ant"}\n')
    rows = [record(0, key="7"), record(1, key="ant")]
    assert validator.verify_path(written(rows), source=SourceFile(path=path, key=("id",), count=1)).ok


def test_manifest_file_needs_no_contract(tmp_path: Path, handled: list[OutputRecord], written: Written) -> None:
    """Lines with identity are taken as they are."""
    path = tmp_path / "published.jsonl"
    entries = [
        {"key": e.key, "producer": "p", "incarnation": 1, "shard": e.shard, "sequence": e.sequence} for e in published()
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert validator.verify_path(written(handled), source=SourceFile(path=path)).ok
    verdict = validator.verify_path(written(handled[1:]), source=SourceFile(path=path))
    assert any("of key 'ant': never seen" in example.text for example in verdict.examples)


def test_contract_of_the_run_is_not_typed_twice(tmp_path: Path, handled: list[OutputRecord]) -> None:
    """Count and algorithm come from the run's log when the source does not say them."""
    (tmp_path / "output.jsonl").write_text("".join(row.to_json() + "\n" for row in handled))
    contract = Contract("orders", COUNT, Algorithm.XXH64, 1)
    event = run_log.RunEvent(0.0, run_log.CONTRACT, None, contract.to_mapping())
    (tmp_path / "events.jsonl").write_text(event.to_json() + "\n")
    source = SourceFile(path=csv_of(tmp_path, [f"{n},{key}" for n, key in enumerate(KEYS)]))
    verdict = validator.verify_path(tmp_path, source=source)
    assert (verdict.ok, verdict.log_damaged) == (True, 0)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("n,key\n1,ant\n", {"key": ("tail",)}, "no column tail; it has n, key"),
        ("n,key\n1,ant\n2,\n", {}, "line 3: no key: say which key was published"),
        ("n,key\n1\n", {}, "line 2: no key: say which key"),
        ("n,key\n1,ant\n", {"count": None}, "--count"),
        ("n,key\n1,ant\n", {"count": 0}, "count: 0 is out of bounds"),
        ("n,key\n1,ant\n", {"algorithm": Algorithm.MODULO}, "line 2: key: is not a decimal integer"),
        ('{"key": "ant"}\n{"key": 1.5}\n', {}, "line 2: key is neither text nor an integer"),
        ('{"key": "ant"}\nant\n', {}, "line 2: expected one JSON object a line"),
        ('{"key": "ant"}\n{"id": "ant"}\n', {}, "line 2: no key: say which key was published"),
        ('{"key": "ant"}\n["ant"]\n', {}, "line 2: expected a JSON object, got list"),
        ('{"key":"a","producer":"p","incarnation":1,"shard":0,"sequence":-1}\n', {}, "must be integers from 0"),
        ('{"key":"a","producer":7,"incarnation":1,"shard":0,"sequence":0}\n', {}, "key and producer must be text"),
        (b"n,key\n1,\xff\xfe\n", {}, "not UTF-8 text"),
        (b"n,key\n" + b"x" * 200_000 + b"\n", {}, "not CSV: field larger than field limit"),
        (None, {}, "no such file"),
    ],
)
def test_unusable_source_is_one_clear_line(
    tmp_path: Path, text: str | bytes | None, options: dict[str, object], says: str
) -> None:
    """The error names file, line and remedy, and is no verdict."""
    path = tmp_path / "source"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    output = tmp_path / "output.jsonl"
    output.touch()
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        validator.verify_path(output, source=SourceFile(path=path, **{"count": COUNT, **options}))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_empty_source_file_published_nothing(tmp_path: Path, record: Record, written: Written) -> None:
    """Against a source without rows every event is invented."""
    path = tmp_path / "source.csv"
    path.touch()
    assert validator.verify_path(written([record(0)]), source=SourceFile(path=path)).invented == 1
