"""From an address to exchange and routing key, with what a session has learned about streams.

Publishing to an exchange that does not exist ends the channel, with everything that is in flight on it. So a session
looks once before it publishes to a stream for the first time. Only existence is remembered: a stream that is not there
now may be declared in a moment.
"""

from __future__ import annotations

from lbg.brokers import base
from lbg.brokers.rabbitmq import names
from lbg.brokers.rabbitmq.connection import Connection


class Routes:
    """What one session knows about streams."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._names: dict[str, names.Names] = {}
        self._exchanges: set[str] = set()

    async def names(self, prefix: str) -> names.Names:
        """Return the names of the group that this session means: its owner's, or else the first one's.

        Raises:
            LinkLost: the connection is gone.
        """
        if prefix not in self._names:
            owner = self._connection.address.owner
            found = names.Names(prefix)
            if owner is not None:
                joined = names.Names(prefix, names.joined_tag(owner))
                if await self._connection.exchange_exists(joined.group):
                    found = joined
            self._names[prefix] = found
        return self._names[prefix]

    def known(self, address: base.Address) -> tuple[str, str] | None:
        """Return exchange and routing key, or None when the exchange is not known to exist."""
        found = self._names.get(address.prefix)
        if found is None:
            return None
        route = names.route(found, address)
        return route if route[0] in self._exchanges else None

    async def learn(self, address: base.Address) -> None:
        """Look whether the exchange of an address exists. Raises as `names`."""
        exchange, _ = names.route(await self.names(address.prefix), address)
        if exchange not in self._exchanges and await self._connection.exchange_exists(exchange):
            self._exchanges.add(exchange)

    def forget(self) -> None:
        """Forget everything: an exchange has turned out to be gone."""
        self._names.clear()
        self._exchanges.clear()
