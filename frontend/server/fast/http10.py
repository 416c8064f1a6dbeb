"""Answers to HTTP/1.0, whose clients know no chunks, and whose connections stay open only where they ask for that."""

from collections.abc import MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_NO_BODY = (204, 304)


class Http10Cycle(RequestResponseCycle):
    """A request of HTTP/1.0 and its answer (RFC 9112, 6.1 and 9.3).

    The end of the connection is that of an answer of unknown length; uvicorn sends such answers in chunks.
    """

    _is_unframed = False

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        """Send a part of an answer."""
        if not self.response_started and message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            if b"content-length" not in {name.lower() for name, _ in headers} and message["status"] not in _NO_BODY:
                self.keep_alive = False
                self._is_unframed = self.scope["method"] != "HEAD"
                self.chunked_encoding = False
            if self.keep_alive:
                headers.append((b"connection", b"keep-alive"))
            message = {**message, "headers": headers}
        elif self._is_unframed:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)  # type: ignore[arg-type]
