"""Who a producer is: its name and the number of its life.

An incarnation must be higher than every earlier one of the name, and no other's. It is the wall clock in nanoseconds,
or one more than the last known where the clock has not moved past that. Milliseconds would do for order, not for
uniqueness: workers forked from one parent open their producers within the same one, and two lives that share a number
share message ids, so that the events of one would be dropped as duplicates of the other's.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import threading
from pathlib import Path
from typing import Final

from lbg.publishing.errors import InvalidOption

LONGEST_NAME: Final = 128
"""Bytes. A message id of AMQP 0-9-1 holds 255, and the numbers behind the name take up to 50."""


class _Lives:
    """The last incarnation of each name in this process."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.guard = threading.Lock()

    def renew_guard(self) -> None:
        # A fork may happen while another thread holds the lock, and nobody would release it in the child.
        self.guard = threading.Lock()


_lives: Final = _Lives()
os.register_at_fork(after_in_child=_lives.renew_guard)


def checked_name(name: str | None, rng: random.Random) -> str:
    """Return the name given, or the host's with a random number, which no other producer has.

    Raises:
        InvalidOption: the name is empty, too long, or holds what is not printable.
    """
    if name is None:
        # The host's name is cut rather than refused: nobody chose it for us.
        return f"{socket.gethostname()[:100]}-{rng.getrandbits(32):08x}"
    if not _is_name(name):
        raise InvalidOption(f"name: {name!a} is no name of a producer: use printable text")
    if len(name.encode()) > LONGEST_NAME:
        raise InvalidOption(f"name: {len(name.encode())} bytes are too long: use at most {LONGEST_NAME}")
    return name


def _is_name(name: object) -> bool:
    # A lone surrogate is not printable, so what passes can be encoded.
    return isinstance(name, str) and name != "" and name.isprintable()


def next_incarnation(name: str, now_ns: int, memory: Path | None = None) -> int:
    """Return a new incarnation of a name, higher than every one known.

    Known are those of this process and, where `memory` is given, the one in that file, which is then replaced before
    the number is used. The file is for hosts whose clock may be set back while no producer runs.

    Raises:
        InvalidOption: the file cannot be read or written, or does not hold a number.
    """
    with _lives.guard:
        number = max(now_ns, _lives.last.get(name, -1) + 1)
        if memory is not None:
            number = _remembered(memory, number)
        _lives.last[name] = number
    return number


def _remembered(path: Path, number: int) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # released with the descriptor
            text = os.pread(descriptor, 64, 0).strip()
            number = max(number, int(text) + 1 if text else 0)
            # Of one width and over the old one: a crash in between leaves one of the two, never an empty file.
            os.pwrite(descriptor, b"%019d\n" % number, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InvalidOption(f"memory: {path}: {error.strerror}: give a file that can be written") from None
    except ValueError:
        raise InvalidOption(f"memory: {path} does not hold an incarnation: remove it") from None
    return number
