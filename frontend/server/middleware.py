"""What every HTTP request passes: API key, rate, request id, metrics and access log."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster_serving.frontend.api import assets
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.server.responses import error_response
from cluster_serving.protocol.errors import ServingError

log = logging.getLogger("cluster_serving.access")

OPEN = ("/health/", "/v2/health/")
"""Paths that need no key: whether a server is alive is no secret, and probes have none."""

_OPEN_PAGES = assets.PATHS | {"/", "/docs", "/openapi.json", "/json", "/bigdl", "/zoo-0.9"}
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:@/+=-]{1,128}")


@dataclass(slots=True)
class Note:
    """What a handler knows of a request, for metrics.

    Attributes:
        protocol: Which API it came by.
        model: Name of its model; empty for none.
    """

    protocol: str = "other"
    model: str = ""


def note(request: Request, protocol: str, model: str = "") -> None:
    """Say what a request is about; the model must be one that exists."""
    found = request.scope.get("note")
    if isinstance(found, Note):
        found.protocol, found.model = protocol, model


class Guard:
    """ASGI middleware around the application.

    Args:
        app: What it protects.
        front: The front end.
    """

    def __init__(self, app: ASGIApp, front: FrontEnd) -> None:
        self._app = app
        self._front = front
        self._start = secrets.token_hex(6).encode()
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        noted = scope["note"] = Note()
        metrics = self._front.metrics
        key, request_id = _headers(scope)
        request_id = request_id or b"%b-%x" % (self._start, next(self._numbers))
        status = 499
        client = ""

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id)]
            await send(message)

        metrics.open_requests += 1
        try:
            try:
                client = await self._admit(scope, key)
            except ServingError as error:
                await error_response(error)(scope, receive, reply)
            else:
                await self._app(scope, receive, reply)
        finally:
            metrics.open_requests -= 1
            seconds = time.perf_counter() - began
            metrics.answered(noted.protocol, noted.model, status, seconds)
            if self._front.options.access_log:
                # Escaped as it was sent, so that no line can be forged, and without the query, which may hold anything.
                path = scope.get("raw_path", b"").partition(b"?")[0].decode("latin1")[:200]
                words = (scope["method"], path, status, f"{1000 * seconds:.1f} ms", request_id.decode(), client or "-")
                log.info("%s %s %d %s id=%s client=%s", *words)

    async def _admit(self, scope: Scope, key: str) -> str:
        """Name of the client; raises if it may not ask, or not now."""
        front, path = self._front, scope["path"]
        client = ""
        if front.keys is not None and path not in _OPEN_PAGES and not path.startswith(OPEN):
            client = front.keys.owner(key)
        if front.options.token_bucket_enabled and scope["method"] == "POST" and (wait := front.bucket(client).take()):
            await asyncio.sleep(wait)
        return client


def _headers(scope: Scope) -> tuple[str, bytes]:
    """API key and request id of a request, each empty if there is none."""
    key, request_id = "", b""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            request_id = value
        elif name == b"x-api-key":
            key = value.decode("latin1")
        elif name == b"authorization" and value[:7].lower() == b"bearer ":
            key = value[7:].strip().decode("latin1")
    return key, request_id
