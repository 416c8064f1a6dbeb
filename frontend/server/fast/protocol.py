"""Limits that uvicorn lacks: time, size and form of headers, number of connections; errors in the form of others."""

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any

from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from cluster_serving.frontend.errors import (
    ExpectationFailed,
    HeadersTooLarge,
    HttpVersionNotSupported,
    MalformedHttp,
    NotSupported,
    Overloaded,
    UrlTooLong,
)
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server import unread
from cluster_serving.frontend.server.admission.descriptors import SURPLUS
from cluster_serving.frontend.server.fast.header_cache import CachedHead, HeaderCache
from cluster_serving.frontend.server.fast.http10 import Http10Cycle
from cluster_serving.frontend.server.http import cycle
from cluster_serving.frontend.server.http.responses import error_response
from cluster_serving.protocol.errors import ServingError

_TOO_LARGE = HeadersTooLarge("the address and the headers of the request are too large (maxHeaderBytes)")
_URL_TOO_LONG = UrlTooLong("the address of the request is too long (maxHeaderBytes)")
_SHOWN = 1024
_VERSION = HttpVersionNotSupported("this port takes HTTP/1.1 and HTTP/1.0; gRPC has a port of its own (grpcPort)")
_METHOD = NotSupported("no resource has the method of the request; /docs lists the API")
_TARGET = MalformedHttp("the address of the request is '*' of another method than OPTIONS, or has a fragment")
_EXPECT = ExpectationFailed("the header Expect is not '100-continue'")
_HOST = MalformedHttp("the request needs one header Host with the name of a host")
_CODING = MalformedHttp("the header Transfer-Encoding does not end with 'chunked', or the request is HTTP/1.0")
_UNKNOWN_CODING = NotSupported("the header Transfer-Encoding has other codings than 'chunked'")
_UPGRADE = MalformedHttp("the request asks for another protocol (Upgrade or CONNECT) in a way that cannot be ignored")
_FULL = Overloaded("the front end has no room for another connection (maxConnections)")
_HOST_NAME = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")
_UPGRADE_HEADER = re.compile(rb"(?i)(?<=\r\n)upgrade(?=[ \t]*:)")
_IGNORED = b"x-ignored-upgrade"
_END_OF_HEAD = b"\r\n\r\n"
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) [!-~]+ HTTP/(\d\.\d)\r\n")
_MAJOR = "1."
"""A higher minor version is answered as 1.1 is (RFC 9110, 6.2)."""


class _LimitedProtocol(HttpToolsProtocol):
    limits: HttpOptions
    most_connections: int
    closed: Callable[[], None]
    header_cache: HeaderCache
    draining = False
    _served: RequestResponseCycle | None = None
    _timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    _read = (0, 0)
    _answered = False
    _unused_bytes = 0
    _progressed = False
    _in_headers = False
    _is_between = True
    _is_refused = False
    _is_surplus = False
    _first = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.parser.set_dangerous_leniencies(lenient_version=True)  # `_fault` looks at the version.
        self._is_surplus = len(self.connections) > self.most_connections
        if len(self.connections) > self.most_connections + SURPLUS:
            self._is_refused = True
            self._refuse(_FULL)
            return
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        super().connection_lost(exc)
        # uvicorn tells the request that came last alone, which with pipelined ones is not the one that is served.
        for lost in filter(None, {self._served, self.cycle}):
            if not lost.response_complete:
                lost.disconnected = True
            lost.message_event.set()
            cycle.disconnected(lost)
        self.pipeline.clear()
        self.closed()

    def data_received(self, data: bytes) -> None:
        if self._is_between:
            head = self.header_cache.find(data)
            if head is not None and len(data) == head.size + head.length and self._is_free():
                self._serve(head, data)
                return
            # A head that is known need not be remembered again.
            self._first = data if head is None else b""
            data = _without_upgrade(data)
        if self._is_refused:
            return
        self._progressed = False
        self._unset_keepalive_if_required()
        # As uvicorn does it, but for warnings in the log: what a client sends is no fault of the server.
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade:
            # It is refused already.
            pass
        except HttpParserError as error:
            self._refuse(self._parse_error(error))
        # Bytes that complete no part and are no body belong to headers, to a trailer or to a chunk extension.
        self._unused_bytes = 0 if self._progressed else self._unused_bytes + len(data)
        if self._unused_bytes > self.limits.max_header_bytes:
            self._end()
            self._refuse(_TOO_LARGE if len(self.url) <= self.limits.max_header_bytes else _URL_TOO_LONG)
        elif self._in_headers or (self.cycle is not None and self.cycle.response_complete):
            # Most headers arrive as a whole, and need no timer.
            # Any data ends the wait for the next request (keepAliveTimeout), even the rest of an answered one.
            self._begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers, which follow a body, are not headers, and no API uses them.
        if self._in_headers:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = self._is_between = True
        super().on_message_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._is_between = False

    def on_headers_complete(self) -> None:
        self._progressed = True
        self._in_headers = False
        self._end()
        served = self.app
        if (error := self._fault()) is not None:
            self.app = _refused(error, _path(self.url))
        if error is _URL_TOO_LONG:
            # A longer one cannot be parsed.
            self.url = self.url[:_SHOWN]
        super().on_headers_complete()
        self.app = served
        if self.parser.get_http_version() == "1.0" and self.cycle is not None:
            self.cycle.__class__ = Http10Cycle
            self.cycle.keep_alive = self.parser.should_keep_alive()
        if self.draining:
            self.cycle.keep_alive = False
        if self._first and error is None:
            self.header_cache.remember(self._first, self.scope)
        self._first = b""

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered = True
        self._watch_reader()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    def _is_free(self) -> bool:
        """Return True if a request can be served at once, which the limits that change allow."""
        return (self.cycle is None or self.cycle.response_complete) and not self.draining and not self._is_full()

    def _is_full(self) -> bool:
        """Return True if this connection was one too many when it came, and still is."""
        return self._is_surplus and len(self.connections) > self.most_connections

    def _serve(self, head: CachedHead, data: bytes) -> None:
        """Serve a request that has arrived as a whole, without the parser."""
        self._end()
        self._unset_keepalive_if_required()
        self._unused_bytes = 0
        self.scope = {**head.scope, "server": self.server, "client": self.client, "scheme": self.scheme}  # type: ignore[typeddict-item]
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        self.cycle.body += data[head.size :]
        self.cycle.more_body = False
        self.cycle.message_event.set()
        self._start_asgi_task(self.cycle, self.app)

    def _watch_reader(self) -> None:
        if self._reader_timer is None:
            self._answered = False
            self._read = _bytes_read(self.transport)
            self._reader_timer = self.loop.call_later(self.limits.write_timeout, self._look_at_reader)

    def _look_at_reader(self) -> None:
        """Abort the connection if something is left to read, and its client has read nothing since the last look."""
        self._reader_timer = None
        count, left = _bytes_read(self.transport)
        if left and count == self._read[0] and not self._answered:
            with self.transport.get_extra_info("socket").dup() as sock:
                unread.drop_rest(sock)
            self.transport.abort()
        elif left:
            self._watch_reader()

    def _fault(self) -> ServingError | None:
        """Return why a request is refused. A request that a proxy may understand differently is (RFC 9112)."""
        version = self.parser.get_http_version()
        size, hosts, expects = len(self.url), 0, False
        for name, value in self.headers:
            size += len(name) + len(value)
            if name == b"host":
                # The second one makes it invalid, as a bad name does.
                hosts += 1 if _HOST_NAME.fullmatch(value) else 2
            elif name == b"transfer-encoding" and (error := _coding_fault(value, version)) is not None:
                return error
            elif name == b"expect" and value.lower() != b"100-continue":
                expects = True
        if self.parser.should_upgrade():
            # The parser takes nothing that follows for the body, so nothing that follows is read.
            self._is_refused = True
            return _UPGRADE
        # Headers that arrive in one piece are complete before their bytes are counted.
        if size > self.limits.max_header_bytes:
            return _TOO_LARGE if len(self.url) <= self.limits.max_header_bytes else _URL_TOO_LONG
        if not version.startswith(_MAJOR):
            return _VERSION
        if hosts != 1 and not (version == "1.0" and not hosts):
            return _HOST
        if b"#" in self.url or (self.url == b"*" and self.parser.get_method() != b"OPTIONS"):
            return _TARGET
        # HTTP/1.0 has no such header.
        if expects and version != "1.0":
            return _EXPECT
        return _FULL if self._is_full() else None

    def _parse_error(self, raised: HttpParserError) -> ServingError:
        """Return why the parser refuses a request, whose first line is known if it arrived in one piece."""
        line = _REQUEST_LINE.match(self._first)
        if line is not None:
            method, version = line[1], line[2].decode()
            if not version.startswith(_MAJOR):
                return _VERSION
            if method == b"CONNECT" or isinstance(raised, HttpParserInvalidMethodError):
                return _METHOD
            for name, value in self.headers:
                if name == b"transfer-encoding" and (error := _coding_fault(value, version)) is not None:
                    return error
        return MalformedHttp(f"the request is not HTTP/1.1: {raised}")

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
            response = error_response(error, _path(getattr(self, "url", b"")))
            fields = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
            head = STATUS_LINE[error.http_status]
            head += b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n"
            self.transport.write(head + bytes(response.body))
            self.transport.close()


def _without_upgrade(data: bytes) -> bytes:
    """Rename the header Upgrade in a head, since a server may ignore it (RFC 9110); the parser would skip the body."""
    end = data.find(_END_OF_HEAD)
    if end < 0 or not _UPGRADE_HEADER.search(data, 0, end):
        return data
    return _UPGRADE_HEADER.sub(_IGNORED, data[:end]) + data[end:]


def _coding_fault(value: bytes, version: str) -> ServingError | None:
    """Return why a header Transfer-Encoding is refused (RFC 9112, 6.1 and 6.3); None if it is not."""
    *others, last = [coding.strip() for coding in value.lower().split(b",")]
    if last != b"chunked" or version == "1.0":
        return _CODING
    return _UNKNOWN_CODING if others else None


def _bytes_read(transport: asyncio.BaseTransport) -> tuple[int, int]:
    """See `unread.bytes_read`; 0 and 0 where that cannot be told."""
    pseudo = transport.get_extra_info("socket")
    if pseudo is None or pseudo.fileno() < 0 or not unread.CAN_TELL:
        return 0, 0
    with pseudo.dup() as sock:
        return unread.bytes_read(sock)


def _path(url: bytes) -> str:
    """Return the path of a request, as far as its address has arrived."""
    return url.partition(b"?")[0].decode("latin1")


def _refused(error: ServingError, path: str) -> Response:
    """Return an application that answers with an error and closes the connection."""
    response = error_response(error, path)
    response.headers["connection"] = "close"
    return response


def limited(options: HttpOptions, closed: Callable[[], None]) -> type[asyncio.Protocol]:
    """Return a protocol class for a server of uvicorn, with the limits of the options.

    `closed` is called when a connection has ended.
    """
    members = {"limits": options, "most_connections": options.connections_each, "header_cache": HeaderCache()}
    return type("Limited", (_LimitedProtocol,), members | {"closed": staticmethod(closed)})


def drain(protocol: type[asyncio.Protocol], connections: Iterable[object]) -> None:
    """Let all further answers of a class from `limited` ask their clients to close the connection."""
    if issubclass(protocol, _LimitedProtocol):
        protocol.draining = True
    for connection in connections:
        if isinstance(connection, _LimitedProtocol) and connection.cycle is not None:
            # Without effect on an answer whose headers are sent already: the connection is closed after it.
            connection.cycle.keep_alive = False


def is_any_new(connections: Iterable[object]) -> bool:
    """Return True if a connection has brought no request yet."""
    return any(isinstance(connection, _LimitedProtocol) and connection.cycle is None for connection in connections)
