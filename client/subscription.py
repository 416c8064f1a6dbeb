"""The subscription of the synchronous client to the channels on which results are announced (`announcements`)."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import redis
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from cluster_serving.client import announcements
from cluster_serving.client.announcements import RECONNECT_PAUSE, SUBSCRIBE_TIMEOUT, new_channel, replies_in
from cluster_serving.protocol.keys import to_bytes
from cluster_serving.protocol.results import Fields

T = TypeVar("T")


class _PubSub(redis.client.PubSub):
    """A subscription that can be sent while its connection is broken.

    Some releases of redis-py then connect again, subscribe to earlier channels within the same command, and wait
    forever for the lock that this command holds.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        super().__init__(pool)
        self._lock = threading.RLock()  # type: ignore[assignment]


class Subscription:
    """One subscription connection, for one thread at a time."""

    def __init__(self, client: redis.Redis, job: str) -> None:
        self._client = client
        self._pubsub: redis.client.PubSub | None = None
        self._subscribed: set[str] = set()
        self._dropped: deque[str] = deque()
        self.reply_channel = new_channel(job)

    def subscribe(self, channel: str) -> bool:
        """Subscribe to a channel and wait until Redis has confirmed the subscription; return False if it was before.

        After a pause, the connection is checked before.

        Raises:
            redis.RedisError: If Redis cannot be used, or does not confirm it in time.
        """
        self._check()
        while self._dropped:
            self.unsubscribe(self._dropped.popleft())
        if channel in self._subscribed:
            return False
        if self._pubsub is None:
            self._pubsub = _PubSub(self._client.connection_pool)
        self._pubsub.subscribe(channel)  # type: ignore[no-untyped-call]
        name = to_bytes(channel)
        if not self._read_until(lambda message: message["type"] == "subscribe" and message["channel"] == name):
            self.close()
            raise TimeoutError(f"Redis did not confirm a subscription within {SUBSCRIBE_TIMEOUT:g} s")
        self._subscribed.add(channel)
        return True

    def unsubscribe(self, channel: str) -> None:
        """Unsubscribe from a channel."""
        if channel in self._subscribed and self._pubsub is not None:
            self._subscribed.discard(channel)
            self._pubsub.unsubscribe(channel)  # type: ignore[no-untyped-call]

    def drop(self, channel: str) -> None:
        """Unsubscribe from a channel at the next `subscribe`; any thread may call this, at any time."""
        self._dropped.append(channel)

    def wait(self, channel: str, uri: str, fetch: Callable[[Fields], T | None], timeout: float) -> T | None:
        """Wait until `fetch` returns a result; call `fetch` whenever the uri is announced.

        Args:
            channel: A subscribed channel, which is subscribed again after a lost connection.
            uri: Uri of the request.
            fetch: Gets the fields of the result that the announcement holds, empty if it holds none. Then it looks for
                the result, and returns None while there is none. The first call comes after a wait, so the caller must
                look once after subscribing, or queue the request after subscribing.
            timeout: Seconds to wait.
        """
        deadline = time.monotonic() + timeout
        connection_lost = False
        wanted = to_bytes(uri)
        announced: dict[bytes, Fields] = {}

        def concerns(message: dict[str, object]) -> bool:
            if message["type"] == "subscribe":
                # redis-py has subscribed again; messages may have been lost before.
                return True
            announced.update(replies_in(message["data"]))
            return wanted in announced

        while (remaining := deadline - time.monotonic()) > 0:
            announced.clear()
            try:
                # Messages may have been lost before a subscription, and a check skips them.
                may_miss = self._check() or self.subscribe(channel)
                if not connection_lost and not may_miss:
                    self._read_until(concerns, min(remaining, announcements.RECHECK))
                connection_lost = False
            except (ConnectionError, TimeoutError):
                connection_lost = True
                self.close()
                time.sleep(min(RECONNECT_PAUSE, max(0.0, deadline - time.monotonic())))
                continue
            if (result := fetch(announced.get(wanted, {}))) is not None:
                return result
        return fetch({})

    def close(self) -> None:
        """Close the connection."""
        pubsub, self._pubsub = self._pubsub, None
        self._subscribed.clear()
        self._dropped.clear()
        if pubsub is not None:
            pubsub.close()

    def _check(self) -> bool:
        """Close a connection that has been silent for some time and does not answer; return True if it was silent."""
        if self._pubsub is None or not getattr(self._pubsub.connection, "is_silent", False):
            return False
        if not self._subscribed:
            self.close()
            return True
        end = time.monotonic() + announcements.CONFIRM_TIMEOUT
        try:
            # redis-py asks a silent connection for a sign of life whenever it reads.
            while getattr(self._pubsub.connection, "is_silent", False):
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the subscription is dead")
                self._pubsub.get_message(timeout=left)
        except RedisError:
            self.close()
        return True

    def _read_until(self, is_wanted: Callable[[dict[str, object]], bool], timeout: float = SUBSCRIBE_TIMEOUT) -> bool:
        """Read messages until the wanted one, or until the timeout; return True if it has come."""
        pubsub = self._pubsub
        if pubsub is None:
            raise ConnectionError("not subscribed")
        deadline = time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0:
            message = pubsub.get_message(timeout=remaining)
            if message is not None and is_wanted(message):
                return True
        return False
