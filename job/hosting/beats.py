"""Signs of life of a slot that has others beside it: without them, the others take over what it computes."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from cluster_serving.connectors.slot.peers import HEARTBEAT_S
from cluster_serving.connectors.slot.redis import connect
from cluster_serving.connectors.slot.stream import AFTER_ALL
from cluster_serving.job.options import JobOptions
from cluster_serving.protocol.keys import GROUP, JobKeys

_IDLE_S = 1.0
_PER_CLAIM = 10


class Beats:
    """Signs of life of one slot, in the streams of its job, and now and then in those of all models.

    The thread of the source gives them: the one that computes may be in a long batch.

    Args:
        options: Options of the job.
        index: Index of the slot.
    """

    def __init__(self, options: JobOptions, index: int) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = connect(options.redis)
        self._job = options.redis.job
        self._consumer = JobKeys(self._job).consumer(0, index)
        self._all_s = options.redis.claim_idle_time_s / _PER_CLAIM
        self._next = self._next_all = 0.0

    def give(self, models: Collection[str], is_idle: bool) -> None:
        """Give a sign of life if it is time."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_IDLE_S if is_idle else HEARTBEAT_S)
        names = [self._job]
        if now >= self._next_all:
            self._next_all = now + self._all_s
            names += models
        for name in names:
            # The reader tells of an error, and creates what is missing.
            with suppress(RedisError):
                self._read(name)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _read(self, name: str) -> None:
        streams = JobKeys(name).streams
        command = ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", 1, "STREAMS")
        self._client.execute_command(*command, *streams, *(AFTER_ALL for _ in streams))
