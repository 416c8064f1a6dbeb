"""Positions of requests in the streams: a queue that knows them can cancel a request, and notices that one is lost."""

from __future__ import annotations

import math
import threading
import time
from typing import NamedTuple
from weakref import WeakValueDictionary

from cluster_serving.protocol.keys import JobKeys, to_bytes
from cluster_serving.protocol.redis.connection import Client, address
from cluster_serving.protocol.scripts import NEWEST, Procedure, page_call


class Position(NamedTuple):
    """Stream and entry id of a request, and the monotonic time at which its deadline passes, if that is known."""

    stream: str
    entry_id: bytes
    expires: float = math.inf


def search(job: str, uri: str) -> Procedure[list[Position]]:
    """Return the positions of all requests of a uri that wait or are being computed, newest first in each stream."""
    positions = []
    for stream in JobKeys(job).streams:
        last = NEWEST
        while last:
            last, matches = yield page_call(stream, last, "uri", to_bytes(uri))
            positions += [Position(stream, entry_id) for entry_id, _ in matches]
    return positions


class RecentEntries:
    """Positions of the latest requests to a job; safe for threads."""

    def __init__(self, limit: int = 10_000) -> None:
        self._limit = limit
        self._entries: dict[str, Position] = {}
        self._lock = threading.Lock()

    def remember(self, uri: str, position: Position, deadline: float | None = None) -> None:
        """Remember the position of a request and its deadline, seconds from now; forget the oldest of too many."""
        if deadline is not None:
            position = position._replace(expires=time.monotonic() + deadline)
        with self._lock:
            self._entries.pop(uri, None)
            self._entries[uri] = position
            if len(self._entries) > self._limit:
                del self._entries[next(iter(self._entries))]

    def find(self, uri: str) -> Position | None:
        """Return the position of the latest request of a uri, if it is remembered."""
        with self._lock:
            return self._entries.get(uri)

    def forget(self, uri: str) -> None:
        """Forget a request whose result is there: the result may be taken, and the request is not lost then."""
        with self._lock:
            self._entries.pop(uri, None)


_shared: WeakValueDictionary[tuple[str, object, str], RecentEntries] = WeakValueDictionary()
_making = threading.Lock()


def recent_entries(client: Client, job: str) -> RecentEntries:
    """Return the recent entries that all queues of this process share for a job of a Redis."""
    key = address(client), client.connection_pool.connection_kwargs.get("db") or 0, job
    with _making:
        return _shared.setdefault(key, RecentEntries())
