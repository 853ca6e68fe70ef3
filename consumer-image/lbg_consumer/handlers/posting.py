"""HTTP handlers: each event is POSTed to a URL, usually a second container of the pod. 2xx means handled.

The body is the event's body; what a Python handler sees as attributes travels as `lbg-*` request headers.
"""

from __future__ import annotations

from urllib.parse import quote

import aiohttp

from lbg_consumer.events import Event

_CONTEXT = (
    "key", "shard", "queue", "epoch", "message_id", "producer", "incarnation",
    "sequence", "redelivered", "attempt", "first_after_handover",
)  # fmt: skip


class HttpHandler:
    """Posts events over kept-alive connections, one per lane."""

    def __init__(self, url: str, *, timeout: float, lanes: int) -> None:
        self._url = url
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=2 * lanes),
            timeout=aiohttp.ClientTimeout(total=timeout),
        )

    async def __call__(self, event: Event) -> bytes | None:
        """Handle one event."""
        headers = {f"lbg-{name.replace('_', '-')}": _text(getattr(event, name)) for name in _CONTEXT}
        headers["Content-Type"] = event.content_type or "application/octet-stream"
        async with self._client.post(self._url, data=event.body, headers=headers) as answer:
            body = await answer.read()
            if not 200 <= answer.status < 300:
                said = body[:200].decode(errors="replace").strip()
                raise RuntimeError(f"HTTP {answer.status} from the handler{': ' + said if said else ''}")
            return body

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _text(value: object) -> str:
    # Header values are latin-1 without control characters; keys may be anything, so they travel percent-encoded.
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(str(value), safe=" !#$&'()*+,/:;=?@[]~") if value is not None else ""
