"""Answering: the answers of a slot are written to Redis."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import AnsweredBatch, write_answers
from cluster_serving.connectors.slot.attempts import noted
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.redis import Backoff, RedisClock, connect
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeAnswerStage
from cluster_serving.protocol.redis.dedicated import DedicatedConnection


class Answering:
    """Writer of the answered batches of one slot.

    While Redis is away it tries again, and its slot waits.

    Args:
        options: Redis, job and generation of the slot.
        stages: What makes the stages of the slot, in their order.
        shared: What the slot shares.
        metrics: Metrics of the sink.
        beside: Writer of another queue of the slot, whose connections this one uses in the same thread. It is closed
            after this one. None for connections of its own.
    """

    def __init__(
        self,
        options: RedisOptions,
        stages: Sequence[MakeAnswerStage],
        shared: SharedSlot,
        metrics: Metrics,
        beside: Answering | None = None,
    ) -> None:
        self._options = options.queue
        self._closes = beside is None
        self._client: redis.Redis = beside._client if beside else connect(self._options)
        self._writing: DedicatedConnection = beside._writing if beside else DedicatedConnection(self._client)
        # The slot shares its counts for as long as one of its parts holds it.
        self._shared = shared
        name = f"Redis hash sink of {self._options.job}"
        self._backoff = Backoff(name, metrics.counter("reconnects").inc, shared.counts)
        self._clock: RedisClock = beside._clock if beside else RedisClock(self._client)
        self._stages = [make(self._client, options, self._clock, shared.counts) for make in stages]

    def write(self, batch: AnsweredBatch) -> None:
        """Write a batch of answers."""
        for stage in self._stages:
            batch = stage.answering(batch)
        options, answers = self._options, batch.answers
        started = time.monotonic()
        with noted(options, (answer.entry for answer in answers)):
            self._backoff.persist(
                lambda: write_answers(self._writing, options.job, options.result_ttl_s, answers, options.version)
            )
        if batch.flow is not None:
            batch.flow.answer(len(answers))
        write_us = round((time.monotonic() - started) * 1e6)
        for stage in self._stages:
            stage.answered(batch, write_us)

    def close(self) -> None:
        """Close the stages, which write what they have gathered, and the connections of its own."""
        with ExitStack() as closing:
            if self._closes:
                closing.callback(self._client.close)
                closing.callback(self._writing.close)
            for stage in reversed(self._stages):
                closing.callback(stage.close)
