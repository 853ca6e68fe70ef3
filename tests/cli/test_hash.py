"""`lbg hash` gives what the published vectors give, and says it in the published shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lbg

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "hash-vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=[ascii(vector["key"])[:30] for vector in VECTORS])
def test_every_vector_comes_out(lbg: Lbg, vector: dict[str, Any]) -> None:
    """For each key, algorithm and count of the file, the shard is the file's."""
    for algorithm, shards in vector["shard"].items():
        for count, want in shards.items():
            ran = lbg("hash", "--count", count, "--algorithm", algorithm, "-o", "json", "--", vector["key"])
            assert ran.code == 0, ran.err
            assert json.loads(ran.out)["shard"] == want


def test_json_has_exactly_the_published_keys(lbg: Lbg) -> None:
    """Without --queues: key, algorithm, count, shard, and nothing else."""
    ran = lbg("hash", "a", "--count", "100", "-o", "json")
    assert json.loads(ran.out) == {"key": "a", "algorithm": "xxh64", "count": 100, "shard": 16}
    assert ran.err == ""


def test_queues_adds_the_queue(lbg: Lbg) -> None:
    """With --queues the stripe is named too: shard mod QC."""
    ran = lbg("hash", "a", "--count", "100", "--queues", "7", "-o", "json")
    assert json.loads(ran.out) == {"key": "a", "algorithm": "xxh64", "count": 100, "shard": 16, "queue": 2}


def test_text_says_the_same(lbg: Lbg) -> None:
    """A person reads the same numbers."""
    assert lbg("hash", "a", "--count", "100").out == "shard 16\n"
    assert lbg("hash", "a", "--count", "100", "--queues", "7").out == "shard 16 queue 2\n"


def test_key_that_looks_like_an_option_follows_two_dashes(lbg: Lbg) -> None:
    """A key may start with a dash."""
    assert json.loads(lbg("hash", "--count", "8", "-o", "json", "--", "--count").out)["key"] == "--count"
