"""Limits that uvicorn lacks: time and size of headers, number of connections; errors in the form of the other ones."""

import asyncio

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cluster_serving.frontend.errors import HeadersTooLarge, MalformedHttp, Overloaded
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.responses import error_response
from cluster_serving.protocol.errors import ServingError

_TOO_LARGE = HeadersTooLarge("the address and the headers of the request are too large (maxHeaderBytes)")
_MALFORMED = MalformedHttp("the request is not HTTP/1.1")
_FULL = Overloaded("the front end has no room for another connection (maxConnections)")
_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


def limited(options: HttpOptions) -> type[asyncio.Protocol]:
    """Return a protocol class for uvicorn, with the limits of the options."""
    return type("Limited", (_LimitedProtocol,), {"limits": options})


class _LimitedProtocol(HttpToolsProtocol):
    limits: HttpOptions
    _timer: asyncio.TimerHandle | None = None
    _unused_bytes = 0
    _progressed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._progressed = False
        super().data_received(data)
        # Bytes that complete no part and are no body belong to headers, to a trailer or to a chunk extension.
        self._unused_bytes = 0 if self._progressed else self._unused_bytes + len(data)
        if self._unused_bytes > self.limits.max_header_bytes:
            self._end()
            self._refuse(_TOO_LARGE)
        elif self.cycle is not None and self.cycle.response_complete:
            # Any data ends the wait for the next request (keepAliveTimeout), even the rest of an answered one.
            self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers, which follow a body, are not headers, and no API uses them.
        if self._timer is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        self._progressed = True
        self._end()
        served = self.app
        # Headers that arrive in one piece are complete before their bytes are counted.
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.limits.max_header_bytes:
            self.app = _refused(_TOO_LARGE)
        elif len(self.connections) > self.limits.max_connections:
            self.app = _refused(_FULL)
        super().on_headers_complete()
        self.app = served

    def send_400_response(self, msg: str) -> None:
        self._refuse(_MALFORMED)

    def _begin(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.limits.header_timeout, self._too_slow)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, error: ServingError) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            # In the middle of a response, another one cannot be sent.
            self.transport.close()
        elif not self.transport.is_closing():
            body = bytes(error_response(error).body)
            head = (
                b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head % (error.http_status, _REASONS[error.http_status], len(body)) + body)
            self.transport.close()


def _refused(error: ServingError) -> Response:
    """Return an application that answers with an error and closes the connection."""
    response = error_response(error)
    response.headers["connection"] = "close"
    return response
