"""Figures of a slot in Redis (`protocol.figures.metrics`), of what it reads and of what it answers."""

import time
from collections import Counter
from typing import Any

import redis
from redis.exceptions import RedisError, ResponseError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.periodic import Periodic
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage, Stage
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.figures import metrics
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import ALIVE, KEPT_S
from cluster_serving.protocol.figures.stats import LAST_ANSWER
from cluster_serving.protocol.keys import JobKeys, as_text
from cluster_serving.protocol.scripts import COUNT, Call, call, flat

_INTERVAL = 1.0
_GAUGES_S = 5.0
_PRUNE_S = 60.0


class _Writer(Periodic):
    """Adds the counts of a slot to the hashes of its job once a second.

    So counting costs a slot no trip to Redis, and the last batch before a pause is written too. Counts that Redis does
    not take are kept for the next time; nothing fails because of them. A shadow counts in the hash of its generation
    alone: no client gets its answers.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions, counts: Counts) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._counts = counts
        keys = JobKeys(options.job)
        of_generation = keys.stats(options.generation)
        self._keys = [of_generation] if options.shadow else [keys.stats(), of_generation, keys.slot_stats]
        self._prefix = f"{options.version}/{counts.slot}/"
        self._prunes = counts.slot == 0 and not options.shadow
        self._next_gauges = self._next_prune = 0.0
        self._has_turn = False
        self.begin_periodic("stats", options.url, _INTERVAL)

    def work(self) -> bool:
        """Write the counts."""
        # In thread mode, source and sink have the same counts: one of the two writes.
        self._has_turn = self._has_turn or self._counts.writing.acquire(blocking=False)
        return not self._has_turn or self._write()

    def end(self) -> None:
        """Write the remaining counts."""
        self._write()
        if self._has_turn:
            self._counts.writing.release()

    def _write(self) -> bool:
        """Return False if Redis does not answer."""
        now = time.monotonic()
        gauges = {name: read() for name, read in self._counts.gauges.items()} if now >= self._next_gauges else {}
        totals = self._counts.take()
        if not (totals or gauges):
            return True
        answered = LAST_ANSWER if metrics.BATCH_SIZE.sum in totals else ""
        try:
            if gauges:
                began = time.monotonic()
                self._client.ping()
                gauges[metrics.REDIS_TRIP.name] = round(1e6 * (time.monotonic() - began))
            call(
                self._client,
                Call(COUNT, self._keys, [self._prefix, answered, KEPT_S, len(gauges), *flat(gauges), *flat(totals)]),
            )
            if gauges:
                self._next_gauges = now + _GAUGES_S
            if self._prunes and now >= self._next_prune:
                self._prune()
                self._next_prune = now + _PRUNE_S
        except (RedisError, OSError) as error:
            self._counts.give_back(totals)
            return isinstance(error, ResponseError)
        return True

    def _prune(self) -> None:
        """Delete the figures of versions whose last slot has ended long ago."""
        key = self._keys[-1]
        found = {as_text(name): value for name, value in self._client.hgetall(key).items()}
        alive: Counter[str] = Counter()
        for name, value in found.items():
            version, _, field = name.split("/", 2)
            alive[version] = max(alive[version], int(value) if field == ALIVE else 0)
        seconds = int(self._client.time()[0])
        ended = {version for version, last in alive.items() if last < 1000 * (seconds - KEPT_S)}
        if old := [name for name in found if name.partition("/")[0] in ended]:
            self._client.hdel(key, *old)


class Counting(Stage):
    """Counts the requests that a slot reads."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(slot)
        # The copies that a shadow reads are no requests of the job.
        self._writer = None if slot.options.shadow else _Writer(slot.client, slot.options, slot.counts)

    def admit(self, entries: list[Entry]) -> list[Entry]:
        """Count the requests."""
        if entries:
            more = sum([entry.record_count - 1 for entry in entries if entry.records])
            self.slot.counts.add(metrics.REQUESTS_IN, len(entries))
            self.slot.counts.add(metrics.RECORDS_IN, len(entries) + more)
        return entries

    def readmit(self, entry: Entry) -> Entry | None:
        """Count a request that is computed again."""
        self.slot.counts.add(metrics.REDELIVERIES)
        return entry

    def close(self) -> None:
        """Write the remaining counts."""
        if self._writer:
            self._writer.end_periodic()


class Stats(AnswerStage):
    """Counts the batches of a slot, and what they took."""

    def __init__(self, client: redis.Redis, options: RedisOptions, clock: RedisClock, counts: Counts) -> None:
        self._counts = counts
        self._writer = _Writer(client, options, counts)

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Count a batch."""
        answers, counts = batch.answers, self._counts
        size = len(answers) + sum([each.entry.record_count - 1 for each in answers if each.entry.records])
        compute_us, parts = batch.inference_us, batch.preprocess_us + batch.postprocess_us
        total_us = batch.wait_us + compute_us + write_us
        failing = batch.failing
        failures = Counter(code for each in failing for code in each.codes)
        for code, count in failures.items():
            counts.add(metrics.FAILED, count, code)
        if given_up := sum([len(each.letters) for each in failing]):
            counts.add(metrics.GIVEN_UP, given_up)
        if failed := sum(failures.values()):
            counts.add(metrics.FAILED_TIME, failed * total_us)
        counts.observe(
            (metrics.BATCH_SIZE, size, 1),
            (metrics.QUEUE_WAIT, batch.wait_us, size),
            (metrics.REQUEST, total_us, size),
            (metrics.COMPUTE, compute_us, 1),
            (metrics.PREPROCESS, batch.preprocess_us, 1),
            (metrics.INFERENCE, max(0, compute_us - parts), 1),
            (metrics.POSTPROCESS, batch.postprocess_us, 1),
            (metrics.WRITE, write_us, 1),
            also=((metrics.ANSWERED.name, size - failed), (metrics.RECORD_COMPUTE.name, size * compute_us)),
        )

    def close(self) -> None:
        """Write the remaining counts."""
        self._writer.end_periodic()
