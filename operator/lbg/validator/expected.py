"""What a source says of each event, held so that an output record is compared with it in a few table look-ups.

One 64-bit fingerprint of the key per published event lies in a temporary file that is mapped into memory: 8 bytes of
disk for an event whose output record takes 400. Memory holds the lanes and a number per 512 events. A wrong key with
the right fingerprint would go unnoticed, once in 2^64.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from xxhash import xxh64_intdigest

from lbg.validator.errors import Unusable, temporary_folder_refuses
from lbg.validator.source import Published

_BITS: Final = 9
_BLOCK: Final = 1 << _BITS  # fingerprints; 4 KiB, so that a lane with a few events costs one page
_MASK: Final = _BLOCK - 1

INVENTED: Final = "invented"
WRONG_KEY: Final = "wrong-key"

Life: TypeAlias = tuple[str, int]  # producer, incarnation


@dataclass(slots=True)
class Lane:
    """The published events of one shard in one life of a producer: sequences 0 to `count` - 1."""

    count: int = 0
    blocks: array[int] = field(default_factory=lambda: array("Q"))  # where in the file each 512 of them lie
    pending: array[int] = field(default_factory=lambda: array("Q"))


class Expected:
    """Everything that was published. Close it: it owns a temporary file."""

    def __init__(self, published: Iterable[Published]) -> None:
        """Read all entries.

        Raises:
            Unusable: the sequences of a shard are not dense from 0 in their order, or the temporary folder is full.
        """
        self.events = 0
        self._lives: dict[Life | None, dict[int, Lane]] = {}
        self._blocks = 0
        try:
            with contextlib.ExitStack() as on_failure:
                self._file = on_failure.enter_context(tempfile.TemporaryFile(prefix="lbg-verify-"))
                for entry in published:
                    self._add(entry)
                self._view = self._mapped()
                on_failure.pop_all()
        except OSError as error:
            raise temporary_folder_refuses(error) from error

    def fault(self, producer: str, incarnation: int, shard: int, sequence: int, key: str) -> str | None:
        """Return what is wrong with an event that the output shows, or None."""
        lanes = self._lives.get((producer, incarnation))
        if lanes is None:
            lanes = self._bound(producer, incarnation)
            if lanes is None:
                return INVENTED
        lane = lanes.get(shard)
        if lane is None or sequence >= lane.count:
            return INVENTED
        at = lane.blocks[sequence >> _BITS] << _BITS | sequence & _MASK
        return None if self._view[at] == _fingerprint(key) else WRONG_KEY

    def lanes(self) -> Iterator[tuple[Life | None, int, int]]:
        """Iterate over (life, shard, count); the life is None for rows when the output has shown no life yet."""
        for life, lanes in self._lives.items():
            for shard, lane in lanes.items():
                yield life, shard, lane.count

    def close(self) -> None:
        """Give the temporary file back. Idempotent."""
        self._view.release()
        self._file.close()

    def _bound(self, producer: str, incarnation: int) -> dict[int, Lane] | None:
        # Rows carry no identity. They are one life's, and the first one that the output shows is taken for it.
        rows = self._lives.pop(None, None)
        if rows is not None:
            self._lives[producer, incarnation] = rows
        return rows

    def _add(self, entry: Published) -> None:
        life = None if entry.producer is None else (entry.producer, entry.incarnation)
        lane = self._lives.setdefault(life, {}).setdefault(entry.shard, Lane())
        if entry.sequence != lane.count:
            where = f"{entry.producer}:{entry.incarnation}:{entry.shard}"
            raise Unusable(
                f"source: sequence {entry.sequence} of {where} follows {lane.count - 1}: give every event once"
            )
        lane.pending.append(_fingerprint(entry.key))
        lane.count += 1
        self.events += 1
        if len(lane.pending) == _BLOCK:
            self._write(lane)

    def _write(self, lane: Lane) -> None:
        lane.blocks.append(self._blocks)
        self._blocks += 1
        self._file.write(lane.pending.tobytes().ljust(8 * _BLOCK, b"\0"))
        del lane.pending[:]

    def _mapped(self) -> memoryview:
        for lanes in self._lives.values():
            for lane in lanes.values():
                if lane.pending:
                    self._write(lane)
        if not self._blocks:
            return memoryview(b"")
        self._file.flush()
        return memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)).cast("Q")


def _fingerprint(key: str) -> int:
    return xxh64_intdigest(key.encode("utf-8", "surrogatepass"))
