"""The management HTTP API: requests, pages, and errors that name the remedy. What is asked for is the callers' matter.

The credentials go into a header and nowhere else; no error carries a request.
"""

from __future__ import annotations

import json
import re
import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import yarl

from lbg.brokers import base
from lbg.brokers.rabbitmq import features
from lbg.brokers.rabbitmq.urls import Address

PAGE: Final = 500  # the API's maximum
AT_ONCE: Final = 8
LIMIT: Final = aiohttp.ClientTimeout(total=30, connect=10)

ENABLE: Final = (
    "enable it (rabbitmq-plugins enable rabbitmq_management) or say where it is (?management=http://host:15672)"
)


def quoted(name: str) -> str:
    """Return a name as one segment of a path."""
    return urllib.parse.quote(name, safe="")


class Management:
    """A client of one broker's API, in one virtual host."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.features: features.Features
        self._vhost = quoted(address.vhost)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Connect and look who answers.

        Raises:
            Unreachable: nothing answers, or something else does.
            Refused: user, password, tag, virtual host or version.
        """
        context: ssl.SSLContext | bool = True
        if self.address.management.startswith("https:"):
            context = ssl.create_default_context(cafile=self.address.cafile)
        self._session = aiohttp.ClientSession(
            headers={"Authorization": aiohttp.encode_basic_auth(self.address.user, self.address.password, "utf-8")},
            connector=aiohttp.TCPConnector(limit=AT_ONCE, ssl=context),
            timeout=LIMIT,
        )
        try:
            overview = await self.request("GET", "overview")
            if not isinstance(overview, dict):
                raise base.Unreachable(f"{self.address.management} is not RabbitMQ's management API: {ENABLE}")
            self.features = features.require_supported(_features(overview))
            if await self.request("GET", f"vhosts/{self._vhost}") is None:
                raise self._no_vhost()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close. Idempotent."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # Objects of the virtual host, by kind: "exchanges", "queues".

    async def get(self, kind: str, *path: str, **parameters: str) -> Any:
        """Return one object, or None."""
        return await self.request("GET", self._path(kind, *path), parameters=parameters)

    async def put(self, kind: str, name: str, body: Mapping[str, object]) -> None:
        """Declare an object.

        Raises:
            Conflict: it exists and differs.
        """
        await self.request("PUT", self._path(kind, name), body)

    async def post(self, kind: str, *path: str, body: Mapping[str, object]) -> Any:
        """Post to an object."""
        return await self.request("POST", self._path(kind, *path), body)

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object; an absent one is fine."""
        await self.request("DELETE", self._path(kind, name))

    async def pages(self, kind: str, pattern: str, columns: str, **parameters: str) -> list[dict[str, Any]]:
        """Return the objects of a kind whose names match a regular expression, page by page.

        The broker matches without regard to case. Names differ by it, so what it finds is matched again here: a
        deletion must not reach a neighbour.
        """
        found: list[dict[str, Any]] = []
        page, last = 1, 1
        asked = {"name": pattern, "use_regex": "true", "columns": columns, "page_size": str(PAGE), **parameters}
        while page <= last:
            answer = await self.request("GET", self._path(kind), parameters={**asked, "page": str(page)})
            if answer is None:  # a page past the end, when objects went away between two pages
                break
            found += answer["items"]
            last = int(answer["page_count"])
            page += 1
        return [item for item in found if re.search(pattern, item["name"])]

    def _path(self, kind: str, *path: str) -> str:
        # Bindings have their virtual host behind the kind as well; every other segment is a name.
        return "/".join((kind, self._vhost, *map(quoted, path)))

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> Any:
        """Send one request below `/api/`; None for 404 and for answers without a body.

        Raises:
            Unreachable, Refused, Conflict: with one line each.
        """
        if self._session is None:
            raise base.Unreachable("the admin is closed: open it through the adapter")
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        # yarl would decode the %2F of the default virtual host.
        url = yarl.URL(f"{self.address.management}/api/{path}{query}", encoded=True)
        try:
            async with self._session.request(method, url, json=body) as response:
                text = await response.text()
                status = response.status
        except ssl.SSLError as error:
            raise base.Refused(f"{self.address.management}: TLS failed ({error.reason}): check cafile") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, aiohttp.ClientSSLError):
                raise base.Refused(f"{self.address.management}: TLS failed: check cafile and host name") from None
            raise base.Unreachable(
                f"{self.address.management}: the management API does not answer ({type(error).__name__}): {ENABLE}"
            ) from None
        return self._answer(status, text, path)

    def _answer(self, status: int, text: str, path: str) -> Any:
        if status in (200, 201, 204):
            try:
                return json.loads(text) if text else None
            except ValueError:
                raise base.Unreachable(
                    f"{self.address.management} is not RabbitMQ's management API: {ENABLE}"
                ) from None
        if status == 404:
            return None
        reason = _reason(text)
        if status in (401, 403):
            raise self._refusal(reason)
        if status == 400:
            raise base.Conflict(f"{urllib.parse.unquote(path)}: {reason}", names=(urllib.parse.unquote(path),))
        raise base.Unreachable(f"{self.address.management}: the management API answers {status} ({reason}): try again")

    def _refusal(self, reason: str) -> base.Refused:
        user, where, text = self.address.user, self.address.management, reason.lower()
        if "not management user" in text:
            return base.Refused(
                f"{where}: user {user!r} may not use the management API: rabbitmqctl set_user_tags {user} management"
            )
        if "login failed" in text or text == "not authorised" or not reason:
            return base.Refused(f"{where}: wrong user or password for user {user!r}: correct the broker URL")
        if "virtual host" in text or "vhost" in text:
            return base.Refused(
                f"{where}: user {user!r} may not use virtual host {self.address.vhost!r}: grant it permissions"
            )
        return base.Refused(f"{where}: user {user!r} lacks a permission ({reason}): grant it")

    def _no_vhost(self) -> base.Refused:
        return base.Refused(
            f"{self.address.shown}: virtual host {self.address.vhost!r} does not exist: create it or correct the URL"
        )


def _features(overview: Mapping[str, object]) -> features.Features:
    product = str(overview.get("product_name") or ("RabbitMQ" if "rabbitmq_version" in overview else "unknown"))
    version = str(overview.get("rabbitmq_version") or overview.get("lavinmq_version") or "")
    return features.of(product, version)


def _reason(text: str) -> str:
    try:
        values = json.loads(text)
    except ValueError:
        return ""
    return " ".join(str(values.get("reason") or values.get("error") or "").split()) if isinstance(values, dict) else ""
