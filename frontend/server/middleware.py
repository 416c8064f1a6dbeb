"""ASGI middleware around all HTTP requests: admission, request id, metrics and access log."""

import time
from collections.abc import Collection, Mapping

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster_serving.frontend.caller import request_id as current_id
from cluster_serving.frontend.caller import set_caller
from cluster_serving.frontend.server import traces
from cluster_serving.frontend.server.access_log import AccessLog
from cluster_serving.frontend.server.admission.admission import Admission
from cluster_serving.frontend.server.fast import direct
from cluster_serving.frontend.server.fast.direct import DirectRoutes
from cluster_serving.frontend.server.fast.header_cache import by_name
from cluster_serving.frontend.server.http.call import HttpCall
from cluster_serving.frontend.server.http.responses import error_response
from cluster_serving.frontend.server.metrics import Metrics
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.traces.tracing import tracer

_CACHED = ("GET", "HEAD")
"""Methods whose answers some caches keep for minutes unless told otherwise, such as Varnish; nearly all change."""


class AccessMiddleware:
    """Admits the requests to an application, counts and logs them; answers its direct routes itself.

    The `open_paths` need no API key; one that ends with a slash stands for all paths below it.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: DirectRoutes,
        admission: Admission,
        metrics: Metrics,
        open_paths: Collection[str],
        log: AccessLog,
    ) -> None:
        self._app = app
        self._routes = routes
        self._admission = admission
        self._metrics = metrics
        self._open_paths = frozenset(open_paths)
        self._open_folders = tuple(path for path in open_paths if path.endswith("/") and path != "/")
        self._log = log
        self._tracer = tracer(traces.SERVICE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        headers = by_name(scope)
        call = scope["call"] = HttpCall(self._admission.bodies.share(), headers, receive)
        metrics, path = self._metrics, scope["path"]
        request_id = self._log.request_id(headers.get(b"x-request-id", b""))
        current_id.set(request_id.decode())
        span = None
        if self._tracer and scope["method"] == "POST":
            span = traces.begin(self._tracer, call.header(b"traceparent") or "")
        status = 499

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = [*message.get("headers", ()), *_marks(request_id, call.version, span)]
                if scope["method"] in _CACHED and not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
            await send(message)

        metrics.open_requests += 1
        try:
            try:
                await self._admit(call, scope)
            except ServingError as error:
                call.protocol = self._routes.api_of(scope)
                await error_response(error, path)(scope, receive, reply)
            else:
                endpoint = self._routes.find(scope)
                if endpoint is None:
                    await self._app(scope, receive, reply)
                else:
                    response, version = await direct.answer(endpoint, Request(scope, receive, send))
                    call.version = version or call.version
                    status = response.status_code
                    response.raw_headers += _marks(request_id, call.version, span)
                    await direct.respond(response, scope, receive, send)
        finally:
            metrics.open_requests -= 1
            call.body.release()
            seconds = time.perf_counter() - began
            metrics.answered(call.protocol, call.model, status, seconds, call.version)
            if span:
                span.end_http(scope, status)
            if self._log.enabled:
                self._log.write(scope["method"], _sent_path(scope), status, seconds, request_id, call.client)

    async def _admit(self, call: HttpCall, scope: Scope) -> None:
        """Find the caller of a request, and wait for its token.

        Raises:
            ServingError: If the caller needs another API key, or sends too many requests; or if the route does not take
                the query.
        """
        path = scope["path"]
        is_open = path in self._open_paths or path.startswith(self._open_folders)
        call.client = self._admission.client(_key(call.headers), needs_key=not is_open)
        set_caller(call.client, (scope.get("client") or ("",))[0])
        if scope["method"] == "POST":
            await self._admission.wait_for_token(call.client)
        if scope["query_string"] and not is_open:
            self._routes.check_query(scope)


def _sent_path(scope: Scope) -> str:
    """Return the path as it was sent: escaped, so that no line can be forged, and without the query, maybe a secret."""
    path: bytes = scope.get("raw_path", b"")
    return path.partition(b"?")[0].decode("latin1")[:200]


def _marks(request_id: bytes, version: str, span: traces.RequestSpan | None) -> list[tuple[bytes, bytes]]:
    """Return the headers that every answer has."""
    marks = [(b"x-request-id", request_id)]
    if version:
        marks.append((b"x-model-version", version.encode("ascii", "replace")))
    if span:
        marks.append((b"traceresponse", str(span.context).encode()))
    return marks


def _key(headers: Mapping[bytes, bytes]) -> str:
    """Return the API key of a request; empty if there is none."""
    bearer = headers.get(b"authorization", b"")
    key = bearer[7:].strip() if bearer[:7].lower() == b"bearer " else headers.get(b"x-api-key", b"")
    return key.decode("latin1")
