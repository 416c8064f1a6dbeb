"""Server-sent events, as the HTML standard defines them: `text/event-stream`."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from cluster_serving.frontend.server.http.call import HttpCall

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Proxies, and nginx by default, would hold events back."""


def event(data: bytes, name: str = "", event_id: str = "") -> bytes:
    """Return an event; `data` is one line."""
    lines = [f"event: {name}\n" if name else "", f"id: {event_id}\n" if event_id else ""]
    return b"%bdata: %b\n\n" % ("".join(lines).encode(), data)


def stream(events: AsyncGenerator[bytes, None], headers: Mapping[str, str] | None = None) -> Response:
    """Return the response of a stream of events, which begins at once."""
    return StreamingResponse(events, media_type="text/event-stream", headers={**_HEADERS, **(headers or {})})


async def after_first(call: HttpCall, events: AsyncGenerator[bytes, None]) -> Response:
    """Return the response of a stream of events once the first one is there, so that an early error has a status.

    Raises:
        ClientDisconnect: If the client has closed the connection before.
        ServingError: If the first event raises it.
    """
    try:
        first = await call.unless_gone(anext(events, b""))
    except BaseException:
        await events.aclose()
        raise

    async def all_events() -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            yield first
            async for made in events:
                yield made

    return stream(all_events())
