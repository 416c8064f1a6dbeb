"""Failures: the requests that a slot has computed in vain are logged."""

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot import failures
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.protocol.figures.counts import Counts


class Failures(AnswerStage):
    """Logs the failed requests of a batch; those that are never computed are logged where they are refused."""

    def __init__(self, client: redis.Redis, options: RedisOptions, clock: RedisClock, counts: Counts) -> None:
        self._options = options
        self._slot = counts.slot

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Log a line for each request that has failed, or has a record that failed."""
        for answer in batch.failing:
            # Records of different shapes have fields of their own, though none may have failed.
            if codes := answer.codes:
                failures.note(answer.entry, codes[0], self._options, self._slot)
