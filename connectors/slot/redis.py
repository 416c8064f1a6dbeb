"""Redis as the job uses it: connections, timeout while Redis is away, writes to a full Redis, and its clock."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import RECONNECTS
from cluster_serving.protocol.redis.connection import foreign_key, open_redis
from cluster_serving.protocol.scripts import PUT_FIELDS, Call, call, flat

T = TypeVar("T")

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_TIMEOUT = 30.0
_CLOCK_REFRESH = 30.0
# Clocks that differ by more are two clocks: Redis has failed over to another machine, or its clock was set.
_CLOCK_JUMP_MS = 1000.0


def connect(options: RedisOptions) -> redis.Redis:
    """Make a client of the job's Redis; it connects when first used."""
    seconds = options.timeout_ms / 1000
    return open_redis(
        options.url, options.job, socket_timeout=seconds, socket_connect_timeout=seconds, socket_keepalive=True
    )


def write_hash(client: redis.Redis, key: str, fields: Mapping[str, str | int], replace: bool = False) -> None:
    """Write one or more fields of a hash, also if Redis is full: only a job that runs can make room again.

    With `replace`, all other fields are deleted.
    """
    call(client, Call(PUT_FIELDS, [key], ["all" if replace else "some", *flat(fields)]))


class Backoff:
    """Pauses that grow with each failure in a row; the first failure and the recovery are logged.

    The log names the user of Redis by `name`. Each failure calls `on_failure`, and is one of the `counts`.
    """

    def __init__(self, name: str, on_failure: Callable[[], None] = lambda: None, counts: Counts | None = None) -> None:
        self._name = name
        self._on_failure = on_failure
        self._counts = counts or Counts()
        self._failures = 0

    def failed(self, error: RedisError) -> None:
        """Report a failure and wait: 50 ms, then twice as long each time, up to 2 s."""
        self._failures += 1
        self._on_failure()
        self._counts.add(RECONNECTS)
        if self._failures == 1:
            text = f"{error}{foreign_key(error)}"
            log.warning("%s: Redis is not usable, trying again until it is: %s", self._name, text)
        time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)))

    def succeeded(self) -> None:
        """Report that Redis answered."""
        if self._failures:
            log.warning("%s: Redis is back after %d failed attempts", self._name, self._failures)
            self._failures = 0

    def persist(self, action: Callable[[], T]) -> T:
        """Repeat an action until Redis carries it out; the action must be safe to repeat.

        Raises:
            redis.RedisError: If Redis is away for 30 s. Flink then restarts the job. An operator that waits longer
                cannot be cancelled, and Flink ends the whole TaskManager because of it.
        """
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                result = action()
            except RedisError as error:
                if time.monotonic() > deadline:
                    raise
                self.failed(error)
            else:
                self.succeeded()
                return result


class RedisClock:
    """The clock of Redis, read from this machine without a request each time; two threads may read it at once.

    Entry ids are times of that clock, which may differ from the clock of this machine.

    Args:
        client: Connection to the job's Redis; first used when the time is first read.
        refresh_s: Seconds after which Redis is asked again, since clocks drift and are set.
    """

    def __init__(self, client: redis.Redis, refresh_s: float = _CLOCK_REFRESH) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._refresh_s = refresh_s
        self._offset_ms: float | None = None
        self._next_refresh = 0.0
        # Offset before the clock jumped, and the time on that clock at which the jump was noticed.
        self._before: tuple[float, float] | None = None

    def now_ms(self) -> float | None:
        """Return milliseconds since the epoch, never ahead of Redis; None if Redis has not answered yet."""
        if time.monotonic() >= self._next_refresh:
            # The source reports that Redis is away; until Redis is back, the last offset is good enough.
            self.refresh()
        return None if self._offset_ms is None else self._offset_ms + _monotonic_ms()

    def waited_ms(self, queued_ms: float) -> float | None:
        """Return milliseconds since a time of this clock, never too many; None if Redis has not answered yet.

        If the clock has jumped ahead since that time, the clock before the jump counts.
        """
        now = self.now_ms()
        if now is not None and self._before is not None and queued_ms <= self._before[1]:
            return min(now, self._before[0] + _monotonic_ms()) - queued_ms
        return None if now is None else now - queued_ms

    def refresh(self) -> bool:
        """Read the clock of Redis now; return False if Redis does not answer."""
        self._next_refresh = time.monotonic() + self._refresh_s
        try:
            seconds, microseconds = self._client.time()
        except RedisError:
            return False
        # Redis read its clock before this line, so the result is behind by one trip through the network at most.
        offset = seconds * 1000 + microseconds / 1000 - _monotonic_ms()
        if self._offset_ms is not None and offset - self._offset_ms > _CLOCK_JUMP_MS:
            self._before = self._offset_ms, self._offset_ms + _monotonic_ms()
        self._offset_ms = offset
        return True


def _monotonic_ms() -> float:
    return time.monotonic() * 1000
