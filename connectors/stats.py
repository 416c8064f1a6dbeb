"""Writes the totals of a task slot to Redis; `protocol.stats` says which."""

from __future__ import annotations

import threading
import time
from collections import Counter

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.answer import Answered
from cluster_serving.connectors.redis_clock import RedisClock
from cluster_serving.protocol.keys import stats_key
from cluster_serving.protocol.stats import SEEN, SEEN_EVERY_S, add_batch

_INTERVAL = 1.0
_CLOSE_PATIENCE = 2.0


class StatsWriter:
    """Counts batches, and adds the counts to the hash of the job once a second, from a thread of its own.

    Counting costs a slot no trip to Redis, and the last batch before a rest is written too. Totals that Redis does not
    take are kept for the next time; nothing fails for them.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        clock: The clock of that Redis.
    """

    def __init__(self, client: redis.Redis, job: str, clock: RedisClock) -> None:
        self._client = client
        self._key = stats_key(job)
        self._clock = clock
        self._totals: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._next_sign = 0.0
        self._thread = threading.Thread(target=self._run, name="stats", daemon=True)
        self._thread.start()

    def add(self, batch: Answered, write_us: int) -> None:
        """Count a batch; see `protocol.stats.add_batch`."""
        failures = sum("code" in answer.fields for answer in batch.answers)
        with self._lock:
            add_batch(
                self._totals,
                len(batch.answers),
                failures,
                wait_us=batch.wait_us,
                inference_us=batch.inference_us,
                write_us=write_us,
            )

    def close(self) -> None:
        """Write what is left, unless Redis makes that a long wait."""
        self._closed.set()
        self._thread.join(_CLOSE_PATIENCE)

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL):
            self._write()
        self._write()

    def _write(self) -> None:
        with self._lock:
            totals, self._totals = self._totals, Counter()
        if not totals and time.monotonic() < self._next_sign:
            return
        try:
            with self._client.pipeline(transaction=True) as pipeline:
                for field, count in totals.items():
                    if count:
                        pipeline.hincrby(self._key, field, count)
                if (now := self._clock.now_ms()) is not None:
                    pipeline.hset(self._key, SEEN, str(round(now)))
                pipeline.execute()
            self._next_sign = time.monotonic() + SEEN_EVERY_S
        except (RedisError, OSError):
            with self._lock:
                self._totals.update(totals)
