"""The data plane of the adapter, and the adapter itself.

A session belongs to one event loop, in one thread, of one process. It never reconnects: a lost connection is lost
ownership, and the owner of the session opens a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from lbg.brokers import base
from lbg.brokers.rabbitmq import outputs, urls
from lbg.brokers.rabbitmq.administration import RabbitAdmin
from lbg.brokers.rabbitmq.connection import Connection
from lbg.brokers.rabbitmq.links import RabbitLink
from lbg.brokers.rabbitmq.publishing import RabbitPublisher
from lbg.brokers.rabbitmq.routes import Routes
from lbg.core.wire import Message


class RabbitSession:
    """One data-plane connection; see `base.Session`."""

    def __init__(self, address: urls.Address) -> None:
        self.connection = Connection(address)
        self.connection.on_lost = self._on_lost
        self._routes = Routes(self.connection)
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._links: dict[tuple[str, int], RabbitLink] = {}
        self._binding: set[tuple[str, int]] = set()
        self._submitted: set[asyncio.Future[tuple[base.Outcome, ...]]] = set()

    @property
    def abilities(self) -> base.Abilities:
        """Return what this broker can do."""
        return self.connection.features.abilities

    @property
    def lost(self) -> asyncio.Future[str]:
        """Return a future that resolves with a reason when the connection is gone."""
        return self._lost

    def _on_lost(self, reason: str) -> None:
        # Links learn it from their channels, which have ended by now.
        if not self._lost.done():
            self._lost.set_result(reason)

    async def bind(
        self,
        prefix: str,
        queue: int,
        *,
        name: str,
        window: int,
        listener: base.LinkListener,
        priority: int = 0,  # noqa: ARG002  # the contract's name
    ) -> RabbitLink:
        """Bind a link. The priority is not used: order of registration decides.

        Raises, beyond `base.Session`:
            ValueError: the window allows no delivery.
            BindRefused: this session is bound to the queue already.
            Refused: no permission to read the queue.
        """
        if window < 1:
            raise ValueError(f"window is {window}: at least one delivery must be allowed")
        key = (prefix, queue)
        if key in self._links or key in self._binding:
            # Two consumers of one queue on one connection can stop the queue for good on LavinMQ.
            raise base.BindRefused(f"this session is bound to queue {queue} of {prefix!r} already: release that link")
        self._binding.add(key)
        try:
            group = await self._routes.names(prefix)
            channel = await self.connection.channel()
            link = RabbitLink(self, channel, group, queue, listener)
            self._links[key] = link
            try:
                await link.open(name, window)
            except BaseException:
                self.forget(link)
                channel.start_close()  # also when cancelled: nobody would ever release it
                raise
        finally:
            self._binding.discard(key)
        # Not at once: the caller must get the link before its listener is called.
        asyncio.get_running_loop().call_soon(link.start)
        return link

    def forget(self, link: RabbitLink) -> None:
        """Drop a link that ended."""
        for key, known in tuple(self._links.items()):
            if known is link:
                del self._links[key]

    def publisher(self) -> RabbitPublisher:
        """Open a publisher on this session."""
        return RabbitPublisher(self.connection, self._routes, self._submitted)

    def read_output(self, prefix: str, name: str, start: int = 0) -> AsyncIterator[tuple[int, Message]]:
        """Follow an output stream; see `outputs.read` for what it raises."""
        return outputs.read(self.connection, self._routes, prefix, name, max(start, 0))

    async def close(self) -> None:
        """Release every link, wait for the outcomes of what was submitted, and hang up."""
        await asyncio.gather(*(link.release() for link in tuple(self._links.values())))
        if self._submitted:
            await asyncio.wait(tuple(self._submitted))
        await self.connection.close()


class RabbitAdapter:
    """Opens both halves from `amqp:` and `amqps:` URLs; see `base.Adapter` and `urls`."""

    async def open_admin(self, url: str) -> RabbitAdmin:
        """Connect the control plane."""
        admin = RabbitAdmin(urls.parse(url))
        await admin.open()
        return admin

    async def open_session(self, url: str, *, name: str) -> RabbitSession:
        """Connect the data plane."""
        session = RabbitSession(urls.parse(url))
        await session.connection.open(name)
        return session
