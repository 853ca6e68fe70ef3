"""Every algorithm against the published vectors, an independent oracle, and the bounds that hold for any key."""

from __future__ import annotations

import ctypes
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbg.core import hashing
from lbg.core.hashing import Algorithm

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "hash-vectors.json").read_text("utf-8"))
HASH_NAMES = {
    Algorithm.XXH64: "xxh64_seed42_signed",
    Algorithm.CRC32: "crc32",
    Algorithm.JAVA: "java_hashcode",
    Algorithm.MURMUR2: "murmur2",
}
TEXT_ALGORITHMS = list(HASH_NAMES)

texts = st.text(st.characters(exclude_categories=["Cs"]))
counts = st.integers(1, hashing.MAX_COUNT)
algorithms = st.sampled_from(TEXT_ALGORITHMS)


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: repr(vector["key"]))
@pytest.mark.parametrize("algorithm", TEXT_ALGORITHMS)
def test_every_published_vector_is_reproduced(vector: dict[str, Any], algorithm: Algorithm) -> None:
    """Hash and shards of each text key equal the contract's vectors."""
    key = vector["key"]
    assert hashing.hash_of(key, algorithm) == vector[HASH_NAMES[algorithm]]
    want_shards = {int(count): shard for count, shard in vector["shard"][algorithm].items()}
    assert {count: hashing.shard_of(key, count, algorithm) for count in want_shards} == want_shards


@pytest.mark.parametrize("vector", VECTORS["modulo"], ids=lambda vector: vector["key"])
def test_every_modulo_vector_is_reproduced(vector: dict[str, Any]) -> None:
    """Decimal keys fall on the floorMod of their value, also negative ones."""
    want_shards = {int(count): shard for count, shard in vector["shard"].items()}
    got = {count: hashing.shard_of(vector["key"], count, Algorithm.MODULO) for count in want_shards}
    assert got == want_shards
    assert hashing.hash_of(vector["key"], Algorithm.MODULO) == int(vector["key"])


@pytest.mark.parametrize("key", [*VECTORS["modulo_refused"], "+1", " 1", "1_0", "--1", "-", "1\n", "9" * 5_000])
def test_modulo_refuses_keys_that_are_not_plain_decimals(key: str) -> None:
    """A key that parsers of two languages could read differently is refused with the remedy."""
    with pytest.raises(hashing.KeyRefused, match=r"not a decimal integer.*choose xxh64"):
        hashing.shard_of(key, 64, Algorithm.MODULO)


def test_vectors_name_every_algorithm() -> None:
    """No algorithm can be added without vectors."""
    named = set(VECTORS["vectors"][0]["shard"]) | ({"modulo"} & set(VECTORS))
    assert named == set(Algorithm)


@pytest.mark.parametrize("algorithm", TEXT_ALGORITHMS)
@pytest.mark.parametrize("count", [64, 100])
def test_half_a_surrogate_pair_is_refused(algorithm: Algorithm, count: int) -> None:
    """Text that no encoding can carry is refused in one line, not with an encoding error."""
    with pytest.raises(hashing.KeyRefused, match="publish valid Unicode text"):
        hashing.shard_of("\ud800", count, algorithm)
    with pytest.raises(hashing.KeyRefused, match="publish valid Unicode text"):
        hashing.hash_of("\ud800", algorithm)


@pytest.mark.parametrize("count", [0, -1, hashing.MAX_COUNT + 1])
def test_a_count_out_of_bounds_is_refused(count: int) -> None:
    """The bounds of HC are checked when a sharder is made."""
    with pytest.raises(ValueError, match=f"count: {count} is out of bounds: use 1 to 65536"):
        hashing.sharder(count)


@given(key=texts, count=counts, algorithm=algorithms)
def test_a_shard_lies_within_the_count(key: str, count: int, algorithm: Algorithm) -> None:
    """0 <= shard < HC for any key."""
    assert 0 <= hashing.shard_of(key, count, algorithm) < count


@given(key=st.integers(), count=counts)
def test_modulo_is_floor_mod_of_the_value(key: int, count: int) -> None:
    """Modulo lies within the count and differs from the value by a multiple of it, for values of any size."""
    shard = hashing.shard_of(str(key), count, Algorithm.MODULO)
    assert 0 <= shard < count
    assert (key - shard) % count == 0


@given(key=texts, count=counts)
def test_xxh64_shard_is_floor_mod_of_the_signed_hash(key: str, count: int) -> None:
    """The shortcuts for powers of two and unsigned digests change nothing: Spark's pmod is the rule."""
    value = hashing.hash_of(key)
    assert -(1 << 63) <= value < 1 << 63
    assert hashing.sharder(count)(key) == ((value % count) + count) % count


def java_oracle(key: str) -> int:
    """String.hashCode by its closed formula, s[0]*31^(n-1) + ... + s[n-1], instead of the running product."""
    wide = key.encode("utf-16-be")
    units = [wide[i] << 8 | wide[i + 1] for i in range(0, len(wide), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units))
    return ctypes.c_int32(total & 0xFFFFFFFF).value


@given(key=texts, count=counts)
def test_java_equals_the_closed_formula(key: str, count: int) -> None:
    """Hash and shard equal String.hashCode and Java's abs(h % HC), also outside the BMP."""
    want = java_oracle(key)
    assert hashing.hash_of(key, Algorithm.JAVA) == want
    assert hashing.shard_of(key, count, Algorithm.JAVA) == abs(math.fmod(want, count))  # fmod truncates, as Java's %


def murmur2_oracle(data: bytes) -> int:
    """Kafka's Utils.murmur2, transcribed line by line with Java's 32-bit wrapping and unsigned shifts."""

    def wrap(value: int) -> int:
        return ctypes.c_int32(value & 0xFFFFFFFF).value

    def unsigned_shift(value: int, by: int) -> int:
        return wrap((value & 0xFFFFFFFF) >> by)

    length = len(data)
    m = 0x5BD1E995
    h = wrap(0x9747B28C) ^ length
    for i in range(length // 4):
        i4 = i * 4
        k = wrap(data[i4] + (data[i4 + 1] << 8) + (data[i4 + 2] << 16) + (data[i4 + 3] << 24))
        k = wrap(k * m)
        k ^= unsigned_shift(k, 24)
        k = wrap(k * m)
        h = wrap(h * m)
        h ^= k
    rest = length & ~3
    if length % 4 == 3:
        h ^= data[rest + 2] << 16
    if length % 4 >= 2:
        h ^= data[rest + 1] << 8
    if length % 4 >= 1:
        h ^= data[rest]
        h = wrap(h * m)
    h ^= unsigned_shift(h, 13)
    h = wrap(h * m)
    return h ^ unsigned_shift(h, 15)


@given(key=texts, count=counts)
def test_murmur2_equals_a_transcription_of_kafka(key: str, count: int) -> None:
    """Hash and partition equal Kafka's, for keys of every length modulo four."""
    want = murmur2_oracle(key.encode())
    assert hashing.hash_of(key, Algorithm.MURMUR2) == want
    assert hashing.shard_of(key, count, Algorithm.MURMUR2) == (want & 0x7FFFFFFF) % count


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2_reproduces_kafkas_own_test_vectors(key: str, want: int) -> None:
    """The vectors of Apache Kafka's UtilsTest.testMurmur2 hold."""
    assert hashing.hash_of(key, Algorithm.MURMUR2) == want
