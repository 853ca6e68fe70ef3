"""Copies a group's output stream into the run folder, one line a record, in the stream's own arrival order.

The file is its own bookmark: offsets are dense from 0 and each record is one line, so the number of whole lines is the
next offset. Whatever dies in between (the broker, this tailer, the whole supervisor), no line is lost or written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from lbg.brokers.base import BrokerError, Session
from lbg.core import outputs
from lbg.core.wire import Message
from lbg.local.lines import Lines

FLUSH_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 0.2


async def follow(connect: Callable[[], Awaitable[Session]], prefix: str, stream: str, lines: Lines) -> None:
    """Follow a stream until cancelled, over as many sessions as it takes.

    Raises:
        StorageRefused: the file cannot be written; what is there is whole.
    """
    try:
        while True:
            with contextlib.suppress(BrokerError):
                await _follow_session(await connect(), prefix, stream, lines)
            # The broker is away or restarting; its supervisor brings it back.
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        lines.flush()


async def _follow_session(session: Session, prefix: str, stream: str, lines: Lines) -> None:
    copying = asyncio.ensure_future(_copy(session, prefix, stream, lines))
    ends: list[asyncio.Future[Any]] = [copying, session.lost]
    try:
        while not copying.done():
            # One write for all that arrived meanwhile: a write per record would cost more than the record.
            await asyncio.wait(ends, timeout=FLUSH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            lines.flush()
            if session.lost.done():
                return
        await copying
    finally:
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        await session.close()


async def _copy(session: Session, prefix: str, stream: str, lines: Lines) -> None:
    async for offset, message in session.read_output(prefix, stream, start=lines.count):
        if offset != lines.count:
            raise AssertionError(f"output {stream}: offset {offset} follows {lines.count - 1}")
        lines.append([line(message)])


def line(message: Message) -> str:
    """Return a record as one line of JSON.

    Not checked here: the validator reads every line and names the one that is wrong. A message without a record still
    takes its line, since the file counts offsets.
    """
    skip = len(outputs.PREFIX)
    record = {name[skip:]: value for name, value in message.headers.items() if name.startswith(outputs.PREFIX)}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False, default=repr)
