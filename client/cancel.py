"""Withdrawing a request that waits."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cluster_serving.protocol import payload_files
from cluster_serving.protocol.errors import RequestCancelled
from cluster_serving.protocol.keys import GROUP, limits_key, result_key, streams_of
from cluster_serving.protocol.original import image_stream
from cluster_serving.protocol.results import encode_error
from cluster_serving.protocol.scripts import NEWEST, WITHDRAW, Call, Procedure, flat, page_call

DEFAULT_RESULT_TTL = 3600
"""Seconds that the answer to a withdrawn request is kept if no job has said how long."""

_MOST_REMEMBERED = 10_000


class Place(NamedTuple):
    """Where a request is."""

    stream: str
    entry_id: bytes


class RecentEntries:
    """Where the latest requests of a queue were put, so that they need not be searched; safe for threads."""

    def __init__(self, limit: int = _MOST_REMEMBERED) -> None:
        self._limit = limit
        self._entries: dict[str, Place] = {}
        self._lock = threading.Lock()

    def remember(self, uri: str, place: Place) -> None:
        """Note where a request is; the oldest note is forgotten."""
        with self._lock:
            self._entries.pop(uri, None)
            self._entries[uri] = place
            if len(self._entries) > self._limit:
                del self._entries[next(iter(self._entries))]

    def find(self, uri: str) -> Place | None:
        """Place of the latest request of that uri, if it is remembered."""
        with self._lock:
            return self._entries.get(uri)


def cancel(job: str, uri: str, place: Place | None) -> Procedure[bool]:
    """Withdraw a request and answer it with `RequestCancelled`.

    Args:
        job: `jobName`.
        uri: The request.
        place: Where it is; None to search the streams for all requests of that uri, newest first, in pages.

    Returns:
        Whether one was withdrawn. False: it is being computed, is answered, or never was.
    """
    answer = encode_error(RequestCancelled(f"the request {uri!r} was cancelled before it was computed"))
    if place is not None:
        return clear_withdrawn((yield withdraw_call(job, uri, place, answer)))
    done = False
    for stream in streams_of(job):
        last = NEWEST
        while last:
            last, found = yield page_call(stream, last, "uri", _bytes(uri))
            for entry_id, _ in found:
                done = clear_withdrawn((yield withdraw_call(job, uri, Place(stream, entry_id), answer))) or done
    return done


def clear_withdrawn(reply: object) -> bool:
    """Remove the file of a request, if it had one, once it is withdrawn.

    Args:
        reply: To `withdraw_call`.

    Returns:
        Whether it was withdrawn.
    """
    if isinstance(reply, list):
        payload_files.discard(*reply)
    return bool(reply)


def withdraw_call(job: str, uri: str, place: Place, answer: Mapping[str, str | bytes] = MappingProxyType({})) -> Call:
    """The call that takes a request out of the stream, unless it is being computed.

    Args:
        job: `jobName`.
        uri: The request.
        place: Where it is.
        answer: Fields of a result hash for it; none if nobody waits for it any more.
    """
    keys = [place.stream, result_key(job, uri), limits_key(job)]
    if job == image_stream.STREAM:
        keys.append(image_stream.result_key(uri))
    return Call(WITHDRAW, keys, [GROUP, place.entry_id, _bytes(uri), DEFAULT_RESULT_TTL, *flat(answer)])


def _bytes(uri: str) -> bytes:
    return uri.encode("utf8", "surrogateescape")
