"""Connections of the job to Redis, and patience while it is away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.connection import open_redis

T = TypeVar("T")

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_PATIENCE = 30.0


def connect(options: RedisOptions) -> redis.Redis:
    """Make a client of the job's Redis; it connects when first used."""
    seconds = options.timeout_ms / 1000
    return open_redis(
        options.url, options.job, socket_timeout=seconds, socket_connect_timeout=seconds, socket_keepalive=True
    )


class Backoff:
    """Waits longer after each failure in a row, and says once that Redis is away and once that it is back."""

    def __init__(self, what: str, on_failure: Callable[[], None]) -> None:
        self._what = what
        self._on_failure = on_failure
        self._failures = 0

    def failed(self, error: RedisError) -> None:
        """Report a failure and wait: 50 ms, then twice as long each time, up to 2 s."""
        self._failures += 1
        self._on_failure()
        if self._failures == 1:
            log.warning("%s: Redis is not usable, trying again until it is: %s", self._what, error)
        time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures - 1, 10)))

    def succeeded(self) -> None:
        """Report that Redis answered."""
        if self._failures:
            log.warning("%s: Redis is back after %d failed attempts", self._what, self._failures)
            self._failures = 0

    def persist(self, action: Callable[[], T]) -> T:
        """Repeat an action until Redis carries it out; the action must be safe to repeat.

        Raises:
            redis.RedisError: Redis was away for `_PATIENCE`. Flink then restarts the job; an operator that waited on
                could not be cancelled, and Flink would end the whole TaskManager for it.
        """
        deadline = time.monotonic() + _PATIENCE
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
