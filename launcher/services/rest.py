"""A client of HTTP for the REST APIs of Flink; httpx and its certificates take a quarter of a second of CPU more."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit


class Unanswered(Exception):
    """A server that does not answer, or not in HTTP."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of an answer."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        """True if the status is one of 200 to 299."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.body.decode("utf8", "replace")

    def json(self) -> Any:
        """Return the body as JSON; raise `ValueError` if it is not."""
        return json.loads(self.body)


def request(
    method: str, url: str, query: dict[str, str] | None = None, body: Any = None, timeout: float | None = 10
) -> Answer:
    """Send a request, with a `body` as JSON, and return the answer.

    Proxies of the environment are for the internet, and not for a cluster. Redirects are not followed. The `timeout`
    is that of the connection, and of each part of the answer, in seconds.

    Raises:
        Unanswered: If there is no answer.
    """
    parts = urlsplit(url)
    path = f"{parts.path}?{urlencode(query)}" if query else parts.path
    sent, headers = (None, {}) if body is None else (json.dumps(body), {"Content-Type": "application/json"})
    try:
        # One request for each connection: none is ever closed by the server in between.
        with closing(_connection(parts, timeout)) as connection:
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
    except (OSError, HTTPException, UnicodeError) as error:
        raise Unanswered(str(error) or type(error).__name__) from None


def _connection(url: SplitResult, timeout: float | None) -> HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "http":
        return HTTPConnection(host, url.port, timeout=timeout)
    # Imported here: few clusters have TLS. The certificates are those that all our clients of HTTP trust.
    from httpx import create_ssl_context

    return HTTPSConnection(host, url.port, timeout=timeout, context=create_ssl_context(trust_env=False))
