"""The clock of Redis, on this machine: entry ids are times of that clock, which need not agree with ours."""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.exceptions import RedisError

_REFRESH_S = 30.0


class RedisClock:
    """Tells the time of Redis without asking each time; safe for threads, of which two may ask at once.

    Args:
        client: Connection to the job's Redis; first used when the time is first asked for.
        refresh_s: Seconds after which Redis is asked again, since clocks drift and are set.
    """

    def __init__(self, client: redis.Redis, refresh_s: float = _REFRESH_S) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._refresh_s = refresh_s
        self._offset_ms: float | None = None
        self._next_refresh = 0.0

    def now_ms(self) -> float | None:
        """Milliseconds since the epoch, never ahead of Redis; None if Redis could not be asked yet."""
        if time.monotonic() >= self._next_refresh:
            try:
                seconds, microseconds = self._client.time()
                # Redis read its clock before this, so the result lags by a trip through the network at most.
                self._offset_ms = seconds * 1000 + microseconds / 1000 - time.monotonic() * 1000
            except RedisError:
                # The reader reports that Redis is away; until it is back, the last offset is good enough.
                pass
            self._next_refresh = time.monotonic() + self._refresh_s
        return None if self._offset_ms is None else self._offset_ms + time.monotonic() * 1000
