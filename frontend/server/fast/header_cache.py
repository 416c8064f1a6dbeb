"""Cache of parsed heads of requests: a client sends the same bytes again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_MOST = 1024
_LARGEST = 4096
"""Heads that are remembered, and bytes of each: some megabytes."""

_END = b"\r\n\r\n"
_BY_NAME = "headers_by_name"


class CachedHead(NamedTuple):
    """What a head says.

    Attributes:
        size: Bytes of the head.
        length: Bytes of the body that follows.
        scope: The scope of ASGI.
    """

    size: int
    length: int
    scope: Mapping[str, Any]


class HeaderCache:
    """Cache of parsed heads by their bytes, common to all connections of a server.

    The same bytes mean the same, so that a head which was accepted once needs no parser, and no checks, again. Only
    heads of a plain form are remembered: a POST with the length of its body, which leaves the connection open.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, CachedHead] = {}

    def find(self, data: bytes) -> CachedHead | None:
        """Return the head at the start of some data; None if it is not remembered."""
        return self._known.get(data[: data.find(_END) + len(_END)])

    def remember(self, data: bytes, scope: Mapping[str, Any]) -> None:
        """Remember the head at the start of some data, of whose parts `scope` consists, unless its form is another."""
        head = data[: data.find(_END) + len(_END)]
        if not head.startswith(b"POST ") or len(head) > _LARGEST or scope["http_version"] != "1.1":
            return
        # A parser might end a head, or a line of it, elsewhere.
        if head.count(b"\r\n") != len(scope["headers"]) + 2 or b"\n" in head.replace(b"\r\n", b""):
            return
        headers = by_name(scope)
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or headers.keys() & {b"transfer-encoding", b"expect", b"upgrade"}:
            return
        if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
            return
        if len(self._known) >= _MOST:
            # The oldest one.
            del self._known[next(iter(self._known))]
        self._known[head] = CachedHead(len(head), int(length), {**scope, _BY_NAME: headers})


def by_name(scope: Mapping[str, Any]) -> Mapping[bytes, bytes]:
    """Return the headers of a request by their names in small letters; several of one name are a list.

    Its parts are joined by commas (RFC 9110, 5.3), so that a header that may not be a list is refused as any other
    wrong value of it.
    """
    found: Mapping[bytes, bytes] | None = scope.get(_BY_NAME)
    if found is not None:
        return found
    headers = scope["headers"]
    named = dict(headers)
    if len(named) == len(headers):
        return named
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    return {name: b", ".join(parts) for name, parts in values.items()}
