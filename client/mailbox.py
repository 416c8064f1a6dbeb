"""Hearing that a result is there, without asking again and again.

The job publishes the uris of answered requests on a channel: the one that the request named in `reply_to`, or the
result key's own, with the results themselves if it asked for them. The results are in hashes, too, so a lost message
costs time and never a result.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

import hiredis
import redis
from redis.exceptions import ConnectionError, TimeoutError

from cluster_serving.protocol.results import Fields

T = TypeVar("T")

RECHECK = 5.0
"""Seconds after which a waiter looks at the hash although no message came."""

RECONNECT_PAUSE = 0.1
"""Seconds before Redis is tried again after a lost connection."""


def new_channel(job: str) -> str:
    """Name of a reply channel that no other client has."""
    return f"cluster-serving_{job}|reply|{uuid.uuid4().hex}"


def uris_in(message: object) -> list[bytes]:
    """Uris that a message may announce: those of one batch of the channel, a line each, or one that holds a newline."""
    if not isinstance(message, bytes):
        return []
    lines = message.split(b"\n")
    return lines if len(lines) == 1 else [*lines, message]


def replies_in(message: object) -> dict[bytes, Fields]:
    """What a message tells a client that wants results: uris with the fields of their results.

    The answers of one batch are RESP arrays in a row: the uri, then names and values in turn. A result that is too
    large is missing there, and has to be fetched. What is withdrawn, or answered by an older job, comes in lines.
    """
    if not isinstance(message, bytes) or not message.startswith(b"*"):
        return {uri: {} for uri in uris_in(message)}
    reader = hiredis.Reader()
    reader.feed(message)
    replies = {}
    try:
        while (answer := reader.gets()) is not False:
            uri, *fields = answer
            replies[uri] = dict(zip(fields[::2], fields[1::2], strict=True))
    except (ValueError, TypeError, hiredis.HiredisError):
        replies = {}
    # A uri may begin like an array.
    return replies or {uri: {} for uri in uris_in(message)}


class _Subscription(redis.client.PubSub):
    """A subscription that may be sent while its connection is broken.

    redis-py then connects again, subscribes to the earlier channels within the same command, and waits forever for the
    lock that this command holds.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        super().__init__(pool)
        self._lock = threading.RLock()  # type: ignore[assignment]


class Mailbox:
    """One subscription connection, for one thread at a time."""

    def __init__(self, client: redis.Redis, job: str) -> None:
        self._client = client
        self._pubsub: redis.client.PubSub | None = None
        self._subscribed: set[str] = set()
        self.reply_channel = new_channel(job)

    def subscribe(self, channel: str) -> None:
        """Start to receive a channel; returns when Redis has confirmed it.

        Raises:
            redis.ConnectionError: Redis cannot be reached.
        """
        if channel in self._subscribed:
            return
        if self._pubsub is None:
            self._pubsub = _Subscription(self._client.connection_pool)
        self._pubsub.subscribe(channel)  # type: ignore[no-untyped-call]
        self._until(lambda message: message["type"] == "subscribe" and message["channel"] == channel.encode())
        self._subscribed.add(channel)

    def unsubscribe(self, channel: str) -> None:
        """Stop receiving a channel."""
        if channel in self._subscribed and self._pubsub is not None:
            self._subscribed.discard(channel)
            self._pubsub.unsubscribe(channel)  # type: ignore[no-untyped-call]

    def wait(self, channel: str, uri: str, fetch: Callable[[], T | None], timeout: float) -> T | None:
        """Wait until `fetch` gives something: look whenever the uri is announced.

        Args:
            channel: A subscribed channel; it is subscribed again after a lost connection.
            uri: Request to wait for.
            fetch: Looks the result up; None while there is none. It is first called after a wait, so the caller
                must have looked once after subscribing, or have queued the request since.
            timeout: Seconds.
        """
        deadline = time.monotonic() + timeout
        was_cut = False
        wanted = uri.encode(errors="surrogateescape")
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                self.subscribe(channel)
                if not was_cut:
                    # A confirmation means that redis-py has subscribed again by itself: something may have been missed.
                    self._until(
                        lambda message: message["type"] == "subscribe" or wanted in uris_in(message["data"]),
                        min(remaining, RECHECK),
                    )
                was_cut = False
            except (ConnectionError, TimeoutError):
                was_cut = True
                self.close()
                time.sleep(min(RECONNECT_PAUSE, max(0.0, deadline - time.monotonic())))
                continue
            if (found := fetch()) is not None:
                return found
        return fetch()

    def close(self) -> None:
        """Give the connection back."""
        pubsub, self._pubsub = self._pubsub, None
        self._subscribed.clear()
        if pubsub is not None:
            pubsub.close()

    def _until(self, is_wanted: Callable[[dict[str, object]], bool], timeout: float = 5.0) -> bool:
        """Read messages until the wanted one, or until the time is over."""
        pubsub = self._pubsub
        if pubsub is None:
            raise ConnectionError("not subscribed")
        deadline = time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0:
            message = pubsub.get_message(timeout=remaining)
            if message is not None and is_wanted(message):
                return True
        return False
