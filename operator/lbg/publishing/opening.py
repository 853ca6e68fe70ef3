"""What opening a producer takes, whichever door it has: contract, identity, session, pump."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lbg.brokers import base, registry
from lbg.core import hashing
from lbg.core.contract import Contract
from lbg.publishing import contracts, identities
from lbg.publishing.connecting import Connector
from lbg.publishing.contracts import Stream
from lbg.publishing.errors import InvalidOption
from lbg.publishing.events import EventFactory
from lbg.publishing.options import Options
from lbg.publishing.pump import Pump


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a producer takes from the world; each may be replaced."""

    adapter: base.Adapter | None = None  # None: by the scheme of the URL
    clock_ns: Callable[[], int] = time.time_ns  # wall clock
    rng: random.Random | None = None  # None: the operating system's, which differs on both sides of a fork
    memory: Path | None = None  # remembers the last incarnation across restarts, see `identities`


@dataclass(frozen=True, slots=True)
class Opened:
    """A producer that is connected."""

    contract: Contract
    name: str
    events: EventFactory
    pump: Pump
    new_incarnation: Callable[[], int]


async def open_pump(
    url: str,
    stream: Stream,
    name: str | None,
    options: Options,
    outside: Outside,
    leave: Callable[[int, int], None],
) -> Opened:
    """Agree on the contract, take an identity and connect.

    Raises:
        ContractUnknown: the broker knows no such stream, and no contract was given.
        ContractMismatch: the contract given is not the broker's.
        InvalidOption: name, prefix or memory is unusable.
        base.BrokerError: the broker is away, or does not let us in.
    """
    if stream == "":
        raise InvalidOption("stream: the prefix is empty: name the stream to publish to")
    rng = outside.rng or random.SystemRandom()
    name = identities.checked_name(name, rng)
    adapter = outside.adapter or registry.adapter(url)
    agreed = await contracts.agree(adapter, url, stream)
    connector = Connector(adapter, url, name, agreed)
    connected = await connector.open(agreed)

    def new_incarnation() -> int:
        return identities.next_incarnation(name, outside.clock_ns(), outside.memory)

    try:
        pump = Pump(connector, new_incarnation(), options, rng, leave)
    except BaseException:
        await connected.session.close()
        raise
    pump.start(connected)
    contract = agreed.contract
    sharder = hashing.sharder(contract.count, contract.algorithm)
    events = EventFactory(sharder, max_body=min(options.max_body, options.max_bytes), clock_ns=outside.clock_ns)
    return Opened(contract, name, events, pump, new_incarnation)
