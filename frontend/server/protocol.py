"""What uvicorn does not have: limits on what comes before a body, and refusals in the form of all errors."""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cluster_serving.frontend.errors import HeadersTooLarge, MalformedHttp, Overloaded
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.responses import error_response
from cluster_serving.protocol.errors import ServingError

_TOO_LARGE = HeadersTooLarge("the address and the headers of the request are too large (maxHeaderBytes)")
_MALFORMED = MalformedHttp("the request is not HTTP/1.1")
_FULL = Overloaded("there are as many connections as are taken (maxConnections)")
_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


def limited(options: HttpOptions) -> type[asyncio.Protocol]:
    """A protocol for uvicorn with the limits of the options."""

    class Limited(_LimitedProtocol):
        longest = options.header_timeout
        most = options.max_header_bytes
        most_connections = options.max_connections

    return Limited


class _LimitedProtocol(HttpToolsProtocol):
    longest: float
    most: int
    most_connections: int
    _timer: asyncio.TimerHandle | None = None
    _bytes = 0
    _moved = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._moved = False
        super().data_received(data)
        # What completes nothing and is no body belongs to a head, to a trailer or to the extension of a chunk.
        self._bytes = 0 if self._moved else self._bytes + len(data)
        if self._bytes > self.most:
            self._end()
            self._refuse(_TOO_LARGE)
        elif self.cycle is not None and self.cycle.response_complete:
            # It ends the wait for a next request (keepAliveTimeout), also if it is the rest of one that is answered.
            self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers, which come behind a body, are none of the headers, and nobody asks for them.
        if self._timer is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        self._moved = True
        self._end()
        served = self.app
        # A head that arrives in one piece is complete before its bytes are counted.
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.most:
            self.app = _refused(_TOO_LARGE)
        elif len(self.connections) > self.most_connections:
            self.app = _refused(_FULL)
        super().on_headers_complete()
        self.app = served

    def send_400_response(self, msg: str) -> None:
        self._refuse(_MALFORMED)

    def _begin(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.longest, self._too_slow)

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
            # In the middle of an answer there is no room for another one.
            self.transport.close()
        elif not self.transport.is_closing():
            body = bytes(error_response(error).body)
            head = (
                b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head % (error.http_status, _REASONS[error.http_status], len(body)) + body)
            self.transport.close()


def _refused(error: ServingError) -> Response:
    """An application that answers with an error and hangs up."""
    response = error_response(error)
    response.headers["connection"] = "close"
    return response
