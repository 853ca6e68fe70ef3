"""Getting a session, again and again: each time the contract is agreed anew before an event is sent.

A stream may have been deleted and created with other numbers while its broker was away; to go on under the old contract
would send events to the wrong shards without an error. What is done over the session is the pump's business.
"""

from __future__ import annotations

from dataclasses import dataclass

from lbg.brokers import base
from lbg.publishing import contracts
from lbg.publishing.contracts import Agreed
from lbg.publishing.errors import ContractUnknown


@dataclass(frozen=True, slots=True)
class Connected:
    """A session, and whether a queue behind it may refuse for lack of room."""

    session: base.Session
    is_limited: bool


@dataclass(frozen=True, slots=True)
class Connector:
    """Opens the sessions of one producer. The URL may hold credentials and appears in no message."""

    adapter: base.Adapter
    url: str
    name: str
    agreed: Agreed  # what the producer was opened under

    async def open(self, agreed: Agreed) -> Connected:
        """Open a session under a contract just agreed. Raises as `Adapter.open_session`."""
        session = await self.adapter.open_session(self.url, name=self.name)
        return Connected(session, agreed.is_limited and session.abilities.size_limit)

    async def reopen(self) -> Connected:
        """Agree again and open a session.

        Raises:
            ContractMismatch: the stream is not what it was; trying again does not help.
            ContractUnknown: the stream is gone; it may come back.
            base.BrokerError: the broker is away, or says no; both may pass.
        """
        contract = self.agreed.contract
        agreed = await contracts.agree(self.adapter, self.url, contract)
        if self.agreed.is_stored and not agreed.is_stored:
            raise ContractUnknown(f"stream {contract.prefix!r} is gone from the broker: create its group again")
        return await self.open(agreed)
