"""One URL for both halves of the broker: `amqp://user:password@host:port,host2:port/vhost?management=http://host:15672`.

Credentials are kept apart from what is shown: `Address.shown` is the only form that may reach a message or a log.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, field
from typing import Final

from lbg.brokers import base

PORTS: Final = {"amqp": 5672, "amqps": 5671}
_OPTIONS: Final = ("management", "owner", "cafile", "certfile", "keyfile")


@dataclass(frozen=True, slots=True)
class Address:
    """A broker: where it is, and as whom we come."""

    tls: bool
    hosts: tuple[tuple[str, int], ...]  # tried in this order
    vhost: str
    user: str
    password: str = field(repr=False)
    management: str  # base URL of the HTTP API, without credentials
    owner: str | None = None  # which group of a shared stream addresses mean
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None

    @property
    def shown(self) -> str:
        """Return hosts and virtual host for messages, without credentials."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{'amqps' if self.tls else 'amqp'}://{hosts}/{urllib.parse.quote(self.vhost, safe='')}"


def parse(url: str) -> Address:
    """Read a URL. No virtual host means `/`; no management URL means the first host at port 15672 (15671 with TLS).

    Raises:
        Unreachable: the URL cannot be understood; the line names the part and shows a good one.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        options = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise _bad("it cannot be read") from None
    if parts.scheme not in PORTS:
        raise _bad("the scheme must be amqp or amqps")
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise _bad(f"option {unknown[0]!r} is not known; there are {', '.join(_OPTIONS)}")
    credentials, _, where = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    hosts = tuple(_host(text, PORTS[parts.scheme]) for text in where.split(","))
    tls = parts.scheme == "amqps"
    host = f"[{hosts[0][0]}]" if ":" in hosts[0][0] else hosts[0][0]
    default = f"https://{host}:15671" if tls else f"http://{host}:15672"
    management = options.get("management") or default
    if urllib.parse.urlsplit(management).scheme not in ("http", "https") or "@" in management:
        raise _bad("management must be http://host:port or https://host:port; the credentials are the broker's")
    return Address(
        tls=tls,
        hosts=hosts,
        vhost=urllib.parse.unquote(parts.path[1:]) or "/",
        user=urllib.parse.unquote(user) or "guest",
        password=urllib.parse.unquote(password) if credentials else "guest",
        management=management.rstrip("/"),
        **{name: options.get(name) for name in _OPTIONS if name != "management"},
    )


def _host(text: str, port: int) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(f"//{text}")
        found = (parts.hostname, parts.port or port)
    except ValueError:
        raise _bad("a port must be a number") from None
    if not found[0]:
        raise _bad("a host is missing")
    return found[0], found[1]


def _bad(what: str) -> base.Unreachable:
    return base.Unreachable(
        f"broker URL: {what}: write amqp://user:password@host:5672/vhost (special characters percent-encoded)"
    )
