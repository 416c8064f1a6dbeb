"""The clock of Redis, on this machine: entry ids are times of that clock, which need not agree with ours."""

from __future__ import annotations

import time
from typing import Any

import redis
from redis.exceptions import RedisError

_REFRESH_S = 30.0
# Clocks that differ by more are two: a failover has put another Redis in place of the old one, or somebody has set it.
_JUMP_MS = 1000.0


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
        # Of the clock before a jump: its offset, and what it showed when the jump was noticed.
        self._before: tuple[float, float] | None = None

    def now_ms(self) -> float | None:
        """Milliseconds since the epoch, never ahead of Redis; None if Redis could not be asked yet."""
        if time.monotonic() >= self._next_refresh:
            # The reader reports that Redis is away; until it is back, the last offset is good enough.
            self.refresh()
        return None if self._offset_ms is None else self._offset_ms + _monotonic_ms()

    def waited_ms(self, queued_ms: float) -> float | None:
        """Milliseconds since a time of this clock, never too many; None if Redis could not be asked yet.

        Args:
            queued_ms: What the clock of Redis showed. If it has jumped ahead since, the clock before the jump counts.
        """
        now = self.now_ms()
        if now is not None and self._before is not None and queued_ms <= self._before[1]:
            return min(now, self._before[0] + _monotonic_ms()) - queued_ms
        return None if now is None else now - queued_ms

    def refresh(self) -> bool:
        """Ask Redis now; after a failover it is another one, with another clock.

        Returns:
            Whether it answered.
        """
        self._next_refresh = time.monotonic() + self._refresh_s
        try:
            seconds, microseconds = self._client.time()
        except RedisError:
            return False
        # Redis read its clock before this, so the result lags by a trip through the network at most.
        offset = seconds * 1000 + microseconds / 1000 - _monotonic_ms()
        if self._offset_ms is not None and offset - self._offset_ms > _JUMP_MS:
            self._before = self._offset_ms, self._offset_ms + _monotonic_ms()
        self._offset_ms = offset
        return True


def _monotonic_ms() -> float:
    return time.monotonic() * 1000
