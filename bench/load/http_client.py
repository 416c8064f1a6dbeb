"""An HTTP/1.1 client that costs little: requests are bytes made beforehand, and answers are parsed in C.

A general client takes several times as much CPU per request; the measurement would then be one of the client.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

MOST_CONNECTIONS = 1024
"""Most connections. Further requests of the open mode wait for one, and their latency counts the wait."""

V2_LENGTH = "inference-header-content-length"
"""Header of the KServe v2 binary extension: length of the JSON that precedes the tensors."""

_V2_LENGTH = V2_LENGTH.encode()


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; `v2_length` is the value of its header `V2_LENGTH`, if there is one."""

    status: int
    body: bytes
    v2_length: int | None


def encode_request(url: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a POST request."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {"Host": parts.netloc, "Content-Length": str(len(body)), "Content-Type": "application/json", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin1") + body


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._parts: list[bytes] = []
        self._length: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionError(f"the server closed the connection ({exc or 'no error'})"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not HTTP: {error}"))
            self.transport.close()

    def on_message_begin(self) -> None:
        self._parts, self._length = [], None

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _V2_LENGTH:
            self._length = int(value)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.transport.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Response(self._parser.get_status_code(), b"".join(self._parts), self._length))

    async def ask(self, request: bytes, deadline: float) -> Response:
        """Send one request and wait for its answer until the deadline, a time of the event loop."""
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        self.transport.write(request)
        # A timer costs less than a task or a context manager per request, and Python 3.10 has no asyncio.timeout.
        timer = loop.call_at(deadline, self._fail, TimeoutError("no answer in time"))
        try:
            return await self._answer
        finally:
            timer.cancel()

    def _fail(self, error: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class HttpClient:
    """Connections to one server that stay open; each carries one request at a time.

    Args:
        url: Any address on the server.

    Raises:
        ValueError: If the address is not one of HTTP.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an address; expected http://host:port or https://host:port")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._idle: deque[_Connection] = deque()
        self._limit = asyncio.Semaphore(MOST_CONNECTIONS)

    async def ask(self, request: bytes, timeout: float) -> Response:
        """Send a request that `encode_request` made.

        Raises:
            OSError: If the server cannot be reached, closes the connection, or does not answer within `timeout`.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        async with self._limit:
            connection = await self._connection(timeout)
            try:
                return await connection.ask(request, deadline)
            except BaseException:
                # The answer may still come, and must not be read as that of another request.
                connection.transport.close()
                raise
            finally:
                self._idle.append(connection)

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().transport.close()

    async def _connection(self, timeout: float) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.transport.is_closing():
                return connection
        loop = asyncio.get_running_loop()
        opening = loop.create_task(loop.create_connection(_Connection, self._host, self._port, ssl=self._tls))
        if not (await asyncio.wait([opening], timeout=timeout))[0]:
            opening.cancel()
            raise TimeoutError(f"no connection to {self._host}:{self._port} within {timeout:g} s")
        return opening.result()[1]
