"""Key -> shard: the hash algorithms that publishers and consumers of one stream must share.

The rules live here and nowhere else: seed, encoding, sign and the modulo are all part of an algorithm's name, because
two libraries that agree on "xxhash" or "murmur2" still disagree on those. tests/vectors/hash-vectors.json is the
contract; an implementation in another language is right when it reproduces that file.

What a shard means for queues is `striping`'s business; what a key means is the publisher's.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from xxhash import xxh64_intdigest

MAX_COUNT: Final = 65_536
"""Largest HC. A shard costs a consumer a few bytes of state, and 65,536 is far beyond useful parallelism."""

_SEED: Final = 42  # Spark's seed of xxhash64()
_TWO_63: Final = 1 << 63
_TWO_64: Final = 1 << 64
_MASK_32: Final = 0xFFFFFFFF


class Algorithm(StrEnum):
    """How a key becomes a number; the values are the names in the group's YAML and in the stored contract."""

    XXH64 = "xxh64"
    JAVA = "java"
    CRC32 = "crc32"
    MURMUR2 = "murmur2"
    MODULO = "modulo"


class KeyRefused(ValueError):
    """The algorithm cannot hash this key. One line that says why and what to do; the key itself may be private."""


def hash_of(key: str, algorithm: Algorithm = Algorithm.XXH64) -> int:
    """Return the number that a key hashes to, before it is reduced to a shard.

    Signed 64 bits for xxh64, signed 32 bits for java and murmur2, unsigned 32 bits for crc32, the key's own value
    for modulo.

    Raises:
        KeyRefused: the key is not valid Unicode, or not a decimal integer under modulo.
    """
    return _HASHES[algorithm](key)


def shard_of(key: str, count: int, algorithm: Algorithm = Algorithm.XXH64) -> int:
    """Return the shard of a key, 0 <= shard < count.

    Raises:
        KeyRefused: as `hash_of`.
        ValueError: count is out of bounds.
    """
    return sharder(count, algorithm)(key)


def sharder(count: int, algorithm: Algorithm = Algorithm.XXH64) -> Callable[[str], int]:
    """Return `shard_of` bound to one stream, for hot loops: bounds are checked here, once.

    Raises:
        ValueError: count is out of bounds.
    """
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"count: {count} is out of bounds: use 1 to {MAX_COUNT}")
    return _SHARDERS[algorithm](count)


def _encode(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise _not_unicode() from None


def _not_unicode() -> KeyRefused:
    return KeyRefused("key: holds half of a surrogate pair, which no encoding can carry: publish valid Unicode text")


# xxh64: xxHash's 64-bit variant over UTF-8 with seed 42, read as signed, floorMod. It equals Spark's
# pmod(xxhash64(key), HC), so a Spark job needs no UDF.


def _xxh64(key: str) -> int:
    digest = xxh64_intdigest(_encode(key), _SEED)
    return digest if digest < _TWO_63 else digest - _TWO_64


def _xxh64_sharder(count: int) -> Callable[[str], int]:
    # The digest is unsigned and the contract is signed. Both agree modulo a power of two, where a mask is enough; for
    # any other count a digest from 2^63 on stands for digest - 2^64. The bodies repeat `_xxh64` because a call more
    # per key costs as much as the hash.
    if count & (count - 1) == 0:
        mask = count - 1

        def by_mask(key: str) -> int:
            try:
                return xxh64_intdigest(key.encode(), _SEED) & mask
            except UnicodeEncodeError:
                raise _not_unicode() from None

        return by_mask

    def by_modulo(key: str) -> int:
        try:
            digest = xxh64_intdigest(key.encode(), _SEED)
        except UnicodeEncodeError:
            raise _not_unicode() from None
        return digest % count if digest < _TWO_63 else (digest - _TWO_64) % count

    return by_modulo


# java: String.hashCode, and the original publisher's abs(hashCode % HC). Java's % truncates towards zero, so the result
# is |hashCode| mod HC and differs from floorMod for every negative hash that HC does not divide.


def _java(key: str) -> int:
    data = _encode(key)
    if len(data) == len(key):  # ASCII: the UTF-16 code units are the bytes
        units: tuple[int, ...] | bytes = data
    else:
        wide = key.encode("utf-16-le")
        units = struct.unpack(f"<{len(wide) // 2}H", wide)
    value = 0
    for unit in units:
        value = (value * 31 + unit) & _MASK_32
    return _signed_32(value)


def _java_sharder(count: int) -> Callable[[str], int]:
    return lambda key: abs(_java(key)) % count


def _crc32(key: str) -> int:
    return zlib.crc32(_encode(key))


def _crc32_sharder(count: int) -> Callable[[str], int]:
    return lambda key: _crc32(key) % count


# murmur2: Kafka's org.apache.kafka.common.utils.Utils.murmur2 and its default partitioner, which clears the sign bit
# before the modulo.

_MURMUR2_SEED: Final = 0x9747B28C
_MURMUR2_M: Final = 0x5BD1E995


def _murmur2(key: str) -> int:
    data = _encode(key)
    whole = len(data) & ~3
    value = (_MURMUR2_SEED ^ len(data)) & _MASK_32
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = (word * _MURMUR2_M) & _MASK_32
        mixed = ((mixed ^ (mixed >> 24)) * _MURMUR2_M) & _MASK_32
        value = ((value * _MURMUR2_M) & _MASK_32) ^ mixed
    if whole != len(data):
        value = ((value ^ int.from_bytes(data[whole:], "little")) * _MURMUR2_M) & _MASK_32
    value = ((value ^ (value >> 13)) * _MURMUR2_M) & _MASK_32
    return _signed_32(value ^ (value >> 15))


def _murmur2_sharder(count: int) -> Callable[[str], int]:
    return lambda key: (_murmur2(key) & 0x7FFFFFFF) % count


# modulo: for keys that are numbers already and that people want to find by hand. ASCII digits only: int() would also
# take "1_0", " 1", "+1" and digits of other scripts, which parsers of other languages read otherwise or refuse.

_DECIMAL: Final = re.compile(r"-?[0-9]{1,4000}", re.ASCII)  # int() itself refuses more than 4,300 digits


def _modulo(key: str) -> int:
    if _DECIMAL.fullmatch(key) is None:
        raise KeyRefused(
            "key: is not a decimal integer, which algorithm modulo needs: publish keys such as 42, or choose xxh64"
        )
    return int(key)


def _modulo_sharder(count: int) -> Callable[[str], int]:
    return lambda key: _modulo(key) % count


def _signed_32(value: int) -> int:
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


_HASHES: Final[dict[Algorithm, Callable[[str], int]]] = {
    Algorithm.XXH64: _xxh64,
    Algorithm.JAVA: _java,
    Algorithm.CRC32: _crc32,
    Algorithm.MURMUR2: _murmur2,
    Algorithm.MODULO: _modulo,
}

_SHARDERS: Final[dict[Algorithm, Callable[[int], Callable[[str], int]]]] = {
    Algorithm.XXH64: _xxh64_sharder,
    Algorithm.JAVA: _java_sharder,
    Algorithm.CRC32: _crc32_sharder,
    Algorithm.MURMUR2: _murmur2_sharder,
    Algorithm.MODULO: _modulo_sharder,
}
