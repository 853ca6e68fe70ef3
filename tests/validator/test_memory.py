"""What grows and what does not: memory is bounded by owners, faults and a number of keys, never by events."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from lbg.core.outputs import OutputRecord
from lbg.validator import Checker, Options

Record = Callable[..., OutputRecord]
Lines = Callable[[range, int], Iterator[bytes]]

MARGIN = 1_500_000
"""Bytes that may differ between two looks; the JSON parser keeps the last 16,384 short strings, 1 MB of them."""


@pytest.fixture
def lines(record: Record) -> Lines:
    """Return a function that makes ordered lines of 8 shards, one event after the other, over so many keys."""
    template = (
        record(0, at=1_000.0).to_json().replace('"sequence":0', '"sequence":{}').replace('"shard":0', '"shard":{}')
    )
    head, _, tail = template.replace('"key":"k"', '"key":"key-{}"').partition("{}")
    between = tail.split("{}")

    def generate(numbers: range, keys: int) -> Iterator[bytes]:
        for n in numbers:
            # The key decides the shard, as it does by the contract.
            text = f"{head}{n % keys}{between[0]}{n % 8}{between[1]}{n // 8}{between[2]}"
            yield text.encode()

    return generate


def growth(checker: Checker, lines: Iterator[bytes]) -> int:
    """Feed lines and return how many bytes more are held afterwards."""
    tracemalloc.start()
    try:
        for line in lines:
            checker.feed_line(line)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_more_events_take_no_more_memory(lines: Lines) -> None:
    """After the first 20,000 events of 800 keys the next 100,000 add nothing."""
    checker = Checker()
    for line in lines(range(20_000), 800):
        checker.feed_line(line)
    assert growth(checker, lines(range(20_000, 120_000), 800)) < MARGIN // 10
    verdict = checker.verdict()
    checker.close()
    assert (verdict.events, verdict.keys, verdict.ok) == (120_000, 800, True)


def test_keys_beyond_the_limit_take_disk_and_no_memory(lines: Lines) -> None:
    """20,000 keys with room for 1,000 take the memory of 1,000; with room for all of them they take more."""
    few, all_of_them = Checker(options=Options(keys_in_memory=1_000)), Checker()
    small, large = (growth(checker, lines(range(20_000), 20_000)) for checker in (few, all_of_them))
    verdicts = few.verdict(), all_of_them.verdict()
    few.close()
    all_of_them.close()
    assert verdicts[0] == verdicts[1]
    assert (verdicts[0].keys, verdicts[0].ok) == (20_000, True)
    assert small < MARGIN < large
