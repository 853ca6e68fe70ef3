"""What a handler is given: one event with its context."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbg.core.wire import HeaderValue


@dataclass(frozen=True, slots=True)
class Event:
    """One event and where it stands. `epoch` grows with each owner of the queue: use it to fence side effects."""

    body: bytes
    key: str  # "" when the publisher sent none
    shard: int
    queue: int
    epoch: int  # 0 when the ledger could not be read
    message_id: str  # stable across re-sends and redeliveries; "" when the publisher sent none
    producer: str | None
    incarnation: int | None
    sequence: int | None
    redelivered: bool  # the broker delivered it before; it need not have been handled
    attempt: int  # 1 for the first
    first_after_handover: bool  # the first event of this queue that this owner handles
    headers: Mapping[str, HeaderValue]
    content_type: str | None

    def json(self) -> Any:
        """Return the body parsed as JSON.

        Raises:
            ValueError: it is not JSON.
        """
        return json.loads(self.body)
