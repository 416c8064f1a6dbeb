"""Totals of a job in its Redis (`protocol.stats`)."""

import threading
from collections import Counter

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.answer import AnsweredBatch
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.redis import RedisClock
from cluster_serving.connectors.stages.base import AnswerStage
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.stats import ANSWERED, add_batch

_INTERVAL = 1.0
_CLOSE_TIMEOUT = 2.0


class Stats(AnswerStage):
    """Counts the batches of one slot; a thread adds the counts to the job's hash (`protocol.stats`) every second.

    The hash of the slot's generation gets them, too, so that generations can be compared.

    So counting costs a slot no trip to Redis, and the last batch before a pause is written too. Totals that Redis does
    not take are kept for the next time; nothing fails because of them.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions, clock: RedisClock) -> None:
        self._client = client
        # The answers of a shadow are none of the job.
        keys = JobKeys(options.job)
        self._keys = [*([] if options.shadow else [keys.stats()]), keys.stats(options.generation)]
        self._clock = clock
        self._totals: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stats", daemon=True)
        self._thread.start()

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Count a batch; see `protocol.stats.add_batch`."""
        failures = sum(answer.failures for answer in batch.answers)
        with self._lock:
            add_batch(
                self._totals,
                sum(answer.entry.record_count for answer in batch.answers),
                failures,
                wait_us=batch.wait_us,
                inference_us=batch.inference_us,
                write_us=write_us,
            )

    def close(self) -> None:
        """Write the remaining counts, unless Redis takes longer than 2 s."""
        self._closed.set()
        self._thread.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL):
            self._write()
        self._write()

    def _write(self) -> None:
        with self._lock:
            totals, self._totals = self._totals, Counter()
        if not totals:
            return
        try:
            with self._client.pipeline(transaction=True) as pipeline:
                now = self._clock.now_ms()
                for key in self._keys:
                    for field, count in totals.items():
                        if count:
                            pipeline.hincrby(key, field, count)
                    if now is not None:
                        pipeline.hset(key, ANSWERED, str(round(now)))
                pipeline.execute()
        except (RedisError, OSError):
            with self._lock:
                self._totals.update(totals)
