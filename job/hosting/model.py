"""One model of a job that serves several; or in place of a model that is not served, what tells clients why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.pieces import PieceWriter
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.computing import Computing
from cluster_serving.job.culprits.search import CulpritSearch
from cluster_serving.job.hosting.leak import Leak
from cluster_serving.job.hosting.threads import fitted
from cluster_serving.job.models.batched.watch import Watch
from cluster_serving.job.options import JobOptions
from cluster_serving.job.parts import Parts
from cluster_serving.job.predicting import Predicting
from cluster_serving.job.request import GatheredBatch
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.hosting.orders import HANGS
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport

_MOST_TIMEOUTS = 2
"""Records on which a model may hang before it is put aside. Each leaves up to two calls in the process."""


class HostedModel:
    """One model, ready for requests.

    Args:
        options: Options of the model, as if it were a job.
        index: Index of the slot.
        client: Connection to the job's Redis.
        metrics: Metrics of the function around the models.
        secret: Secret and salt of an encrypted model.
        end: File in which the process records its end, see `Attempt.end`.

    Raises:
        Exception: If the model cannot be loaded.
    """

    def __init__(
        self,
        options: JobOptions,
        index: int,
        client: redis.Redis,
        metrics: Metrics,
        secret: tuple[str, str],
        end: str = "",
    ) -> None:
        self.options = options
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        # Counts live for as long as one of the parts of a slot holds them.
        self.shared = SharedSlot.of(options.redis.name, index)
        self._watch = Watch(self.shared.counts)
        self._predictor = Predicting.of(fitted(options).in_slot(index), secret, self.shared.counts, self._watch)
        self._predictor.send_pieces(PieceWriter(client, options.redis))
        self._computing = Computing(options, self._predictor, client, metrics, end, CulpritSearch)
        self._reported = self._predictor.learned
        self._counted = self._hung = 0
        self._leak = Leak()

    @property
    def is_suspected(self) -> bool:
        """True if the next calls should be the only ones of the process; see `Leak`."""
        return self._leak.is_suspected

    def problem(self) -> str:
        """Return why further calls would end the process of all models; empty if they would not."""
        if self._hangs():
            limit = self.options.model.inference_timeout_s
            return f"its calls have not returned within {limit:g} s (inferenceTimeout), twice"
        return self._leak.problem

    def _hangs(self) -> bool:
        if new := self._computing.timed_out - self._counted:
            self._counted += new
            self._hung += new
            # Those of all slots count.
            with suppress(RedisError):
                known = self._client.hincrby(JobKeys(self.options.redis.job).record, HANGS, new)
                self._hung = max(self._hung, known)
        return self._hung >= _MOST_TIMEOUTS

    def answer(self, batch: GatheredBatch) -> Iterator[AnsweredBatch]:
        """Compute and answer a batch; see `Computing.answer`."""
        with self._leak.measured():
            yield from self._computing.answer(batch)

    def check(self) -> bool:
        """Let the watch compute a record again; return True if `report` has changed."""
        self._watch.computed_s = self._computing.computed_s
        self._predictor.check()
        reported, self._reported = self._reported, self._predictor.learned
        return reported != self._reported

    def report(self) -> SlotReport:
        """Return the description of the model."""
        redis = self.options.redis
        return replace(
            self._predictor.report(), state="ready", version=redis.version, numbered=redis.numbered, time=time.time()
        )

    def close(self) -> None:
        """Release the model."""
        self._predictor.close()


class AbsentModel:
    """Answers all requests with an error: a model is not loaded, or a request names the job instead of a model.

    Args:
        options: Options of the model, as if it were a job.
        shared: What the slot shares under this name.
        error: The error.
    """

    is_suspected = False

    def __init__(self, options: JobOptions, shared: SharedSlot, error: ServingError) -> None:
        self.options = options
        self.shared = shared
        self._error = error
        self._parts = Parts()

    def answer(self, batch: GatheredBatch) -> Iterator[AnsweredBatch]:
        """Answer a batch with the error."""
        if answers := self._parts.whole([request.fail(request.error or self._error) for request in batch.requests]):
            yield AnsweredBatch(answers, 0, 0, flow=batch.flow)

    def check(self) -> bool:
        """Return False: nothing changes."""
        return False
