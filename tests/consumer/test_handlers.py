"""Opening handlers, and the HTTP one against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from lbg_consumer import handlers
from lbg_consumer.events import Event
from lbg_consumer.settings import HandlerSpec


def event(**given: object) -> Event:
    """Return an event with plain values."""
    values: dict[str, object] = {
        "body": b"{}", "key": "k", "shard": 3, "queue": 1, "epoch": 7, "message_id": "p:1:3:0", "producer": "p",
        "incarnation": 1, "sequence": 0, "redelivered": False, "attempt": 1, "first_after_handover": True,
        "headers": {}, "content_type": "application/json",
    }  # fmt: skip
    return Event(**{**values, **given})  # type: ignore[arg-type]


def call_http(answer: Callable[[web.Request], Awaitable[web.Response]], given: Event, timeout: float = 5.0) -> object:
    """Serve `answer` on loopback and pass one event to it."""

    async def story() -> object:
        app = web.Application()
        app.router.add_post("/events", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        handler = await handlers.open_handler(
            HandlerSpec(http=f"http://127.0.0.1:{port}/events", http_timeout=timeout), lanes=2
        )
        try:
            return await handler(given)
        finally:
            await handler.close()
            await runner.cleanup()

    return asyncio.run(story())


def test_http_passes_body_and_context_and_returns_the_answer() -> None:
    """What a Python handler sees as attributes arrives as headers, whatever the key's characters."""
    seen: dict[str, str] = {}

    async def answer(request: web.Request) -> web.Response:
        seen.update({name.lower(): value for name, value in request.headers.items()})
        return web.Response(body=b"done:" + await request.read())

    assert call_http(answer, event(key="é/😀\n", body=b"payload")) == b"done:payload"
    assert seen["lbg-key"] == "%C3%A9/%F0%9F%98%80%0A"
    assert (seen["lbg-shard"], seen["lbg-epoch"], seen["lbg-attempt"]) == ("3", "7", "1")
    assert (seen["lbg-message-id"], seen["lbg-first-after-handover"]) == ("p:1:3:0", "true")
    assert seen["content-type"] == "application/json"


def test_http_refusals_are_failures_that_say_what_the_handler_said() -> None:
    """Anything but 2xx counts as a failed attempt."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=422, text="no such aircraft")

    with pytest.raises(RuntimeError, match=r"^HTTP 422 from the handler: no such aircraft$"):
        call_http(answer, event())


def test_http_handlers_that_do_not_answer_time_out() -> None:
    """A hanging handler is a failed attempt after its timeout."""

    async def answer(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    with pytest.raises(TimeoutError):
        call_http(answer, event(), timeout=0.05)


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("no.such.module:handle", "cannot import 'no.such.module:handle' (ModuleNotFoundError: No module named 'no')"),
        ("json:nothing", "cannot import 'json:nothing' (AttributeError: module 'json' has no attribute 'nothing')"),
        ("json:__name__", "'json:__name__' is not callable: name a function"),
    ],
)
def test_unusable_python_handlers_say_why_in_one_line(path: str, want: str) -> None:
    """The line names the field, what was tried and why it failed."""
    with pytest.raises(handlers.HandlerUnusable) as caught:
        asyncio.run(handlers.open_handler(HandlerSpec(python=path), lanes=1))
    assert str(caught.value).startswith(f"consumers.handler.python: {want}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("result", "want"), [("text", b"text"), (b"raw", b"raw"), (None, None)])
def test_python_handlers_may_return_text_bytes_or_nothing(result: object, want: object) -> None:
    """What a handler returns becomes the body of its output record."""

    async def story() -> object:
        from lbg_consumer.handlers.python import AsyncHandler

        async def handle(_: Event) -> object:
            return result

        return await AsyncHandler(handle)(event())

    assert asyncio.run(story()) == want


def test_other_results_are_failures() -> None:
    """A result that cannot be a body is the handler's mistake, and said so."""
    from lbg_consumer.handlers.python import AsyncHandler

    async def handle(_: Event) -> object:
        return {"not": "bytes"}

    with pytest.raises(TypeError, match="returned dict: return bytes, str or None"):
        asyncio.run(AsyncHandler(handle)(event()))
