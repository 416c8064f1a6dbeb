"""Computing: the batches of a slot are computed, and answered; culprits of failed ones are searched."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

import redis

from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch, write_answers
from cluster_serving.connectors.slot.attempts import Attempts, noted
from cluster_serving.connectors.slot.deadlines import Deadlines
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.redis import RedisClock, connect
from cluster_serving.job.computation import Computation, Steps
from cluster_serving.job.options import JobOptions
from cluster_serving.job.overlap import Overlap
from cluster_serving.job.parts import Parts
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import GatheredBatch, Request, with_errors
from cluster_serving.job.suspects import Suspects
from cluster_serving.protocol.errors import DeadlineExceeded, InferenceFailed, InferenceTimeout, InvalidInput, QueueFull

log = logging.getLogger(__name__)

# An `InvalidInput` with a search is that of a handler that names the record.
_CULPRITS = {error.code for error in (InferenceFailed, InferenceTimeout, InvalidInput)}


class _Running(NamedTuple):
    computation: Computation[Answer]
    started: float
    wait_us: int

    def wait(self, seconds: float) -> bool:
        return self.computation.wait(seconds)


class _Batches:
    """Processing of the batches of a slot.

    Nothing that it refers to refers to it: the model is freed when PyFlink drops its function (see `SelfClosing`).
    """

    def __init__(
        self, options: JobOptions, predictor: Predictor, client: redis.Redis, metrics: Metrics, end: str
    ) -> None:
        self._options = options
        self._predictor = predictor
        self._attempts = Attempts(client, options.redis.queue.job, end)
        self._clock = RedisClock(client)
        self._deadlines = Deadlines(self._clock, options.request_deadline_ms)
        self._failures = metrics.counter("failures")
        self._expired = metrics.counter("expired")
        self._batch_size = metrics.distribution("batchSize")
        self._inference_ms = metrics.distribution("inferenceTimeMs")
        self._queue_wait_ms = metrics.distribution("queueWaitMs")
        self._suspects = Suspects()
        self._parts = Parts()
        self.flow: SlotFlowControl | None = None
        """Flow control of the requests that are computed."""
        self.computed_s = 0.0
        """Seconds for which batches were computed."""
        self.timed_out = 0
        """Records for which the model did not return in time."""

    def begin(self, value: Sequence[Request], alone: bool) -> _Running:
        """Start to compute a batch; see `Predictor.start`."""
        started = time.monotonic()
        wait_us = round(1000 * max(0, self._clock.waited_ms(value[0].entry.queued_ms) or 0))
        # The window has just checked the requests that came through its flow control.
        requests = self._checked(value, is_checked=self.flow is not None)
        if value[0].entry.one_by_one:
            self._attempts.note([value[0].entry], goes_on=True, record=value[0].part)
        with noted(self._options.redis.queue, (request.entry for request in requests)):
            return _Running(self._predictor.start(requests, alone), started, wait_us)

    def _checked(self, requests: Sequence[Request], is_checked: bool = False) -> Sequence[Request]:
        """Give the requests that have expired their error, unless they have it."""
        if not is_checked:
            requests = with_errors(
                requests, self._deadlines.expired(request.entry for request in requests if request.error is None)
            )
        if expired := sum(isinstance(request.error, DeadlineExceeded) for request in requests):
            self._expired.inc(expired)
        return requests

    def end(self, running: _Running, flow: SlotFlowControl | None) -> Iterator[AnsweredBatch]:
        """Wait for the answers of a batch; if it has failed, its suspects are left to `search`."""
        computation = running.computation
        with noted(self._options.redis.queue, (request.entry for request in computation.requests)):
            answers = computation.ready()
        seconds = time.monotonic() - running.started
        size = sum(request.size for request in computation.requests)
        self._suspects.add(computation, len(computation.requests) - len(answers), seconds)
        if computation.search is not None and flow is not None:
            self._blame(flow, answers)
        self._batch_size.update(size)
        self._inference_ms.update(round(1000 * seconds))
        self._queue_wait_ms.update(round(running.wait_us / 1000))
        parts = computation.preprocess_s, computation.postprocess_s
        yield from self._answered(answers, running.wait_us, seconds, *parts)

    def put_off(self, value: Sequence[Request], flow: SlotFlowControl) -> Iterator[AnsweredBatch]:
        """Leave a batch of a client whose requests make batches fail to `search`.

        If other clients would wait for so many of them, the rest is refused.
        """
        value = [single for request in value for single in request.each()]
        client = value[0].entry.client
        room = self._suspects.room(flow) if flow.failing.beside_others(client) else len(value)
        kept, refused = value[:room], value[room:]
        alone = flow.failing.mostly_fails(client)
        for part in [[request] for request in kept] if alone else [kept]:
            if part:
                self._suspects.put_off(part, self._steps(part))
        error = QueueFull(
            "many requests of this client make the model fail, so they are computed slowly, and as many are waiting as "
            "the job takes; send fewer, or mend those that fail"
        )
        yield from self._answered([request.fail(error) for request in refused], 0, 0.0)

    def _steps(self, value: Sequence[Request]) -> Steps[Answer]:
        computation = self._predictor.start(self._checked(value), False)
        computation.ready()
        yield computation.known
        if computation.search is not None:
            yield None
            yield from computation.search

    @property
    def searches(self) -> bool:
        """True if culprits of failed batches are searched."""
        return bool(self._suspects)

    def search(self, flow: SlotFlowControl | None) -> Iterator[AnsweredBatch]:
        """Search for the culprits of failed batches; leave the rest to the next call if new requests wait."""
        while (suspect := self._suspects.next(flow)) is not None:
            with noted(self._options.redis.queue, (request.entry for request in suspect.requests)):
                answers, seconds = suspect.step()
            self._suspects.took(suspect, len(answers), seconds)
            if flow is not None:
                self._blame(flow, answers)
            yield from self._answered(answers, 0, seconds)

    def _blame(self, flow: SlotFlowControl, answers: Sequence[Answer]) -> None:
        """Take note of the clients whose requests have made a batch fail."""
        failing, learnt = flow.failing, False
        for answer in answers:
            if answer.fields.get("code") in _CULPRITS:
                learnt |= failing.blame(answer.entry.client)
        if learnt:
            # Requests of others, which share failed batches with these, need not wait for the search.
            self._suspects.regroup(
                lambda request: request.entry.client if failing.is_apart(request.entry.client) else "", self._steps
            )

    def _answered(
        self,
        answers: Sequence[Answer],
        wait_us: int,
        seconds: float,
        preprocess_s: float = 0.0,
        postprocess_s: float = 0.0,
    ) -> Iterator[AnsweredBatch]:
        self.computed_s += seconds
        # Those of an entry of several records have one code together.
        self.timed_out += sum(answer.fields.get("code") == InferenceTimeout.code for answer in answers)
        if self._predictor.exhausted:
            self._end_process(self._parts.whole(answers))
        failures = sum("code" in answer.fields for answer in answers)
        if failures:
            self._failures.inc(failures)
        if whole := self._parts.whole(answers):
            parts = round(1e6 * preprocess_s), round(1e6 * postprocess_s)
            yield AnsweredBatch(whole, wait_us, round(1e6 * seconds), *parts, flow=self.flow)

    def _end_process(self, answers: Sequence[Answer]) -> NoReturn:
        """Write the computed answers, then end this process, which Flink or its supervisor replaces.

        The answers do not go through the sink: it runs after this function, and they would be computed again.
        """
        log.error("too many calls of the model hang: ending this process (%d), so that it is replaced", os.getpid())
        try:
            with connect(self._options.redis) as client:
                if answers:
                    options = self._options.redis.queue
                    write_answers(client, options.job, options.result_ttl_s, answers, options.version)
        finally:
            logging.shutdown()
            os._exit(1)


class Computing:
    """Runner of the batches of one slot through its model.

    Args:
        options: Options of the job.
        predictor: The model of the slot.
        client: Connection to the job's Redis.
        metrics: Metrics of the function around the model.
        end: File in which the process records its end, see `Attempt.end`.
    """

    def __init__(
        self, options: JobOptions, predictor: Predictor, client: redis.Redis, metrics: Metrics, end: str = ""
    ) -> None:
        self._batches = _Batches(options, predictor, client, metrics, end)
        self._overlap = Overlap(self._batches.begin, options.model.thread_per_model)
        # Announced requests must come here at once; otherwise answers would wait for them.
        at_once = options.batch.greedy_batching and options.execution_mode == "thread"
        self._overlaps = at_once and predictor.overlaps

    @property
    def computed_s(self) -> float:
        """Seconds for which batches were computed."""
        return self._batches.computed_s

    @property
    def timed_out(self) -> int:
        """Records for which the model did not return in time."""
        return self._batches.timed_out

    def answer(self, batch: GatheredBatch) -> Iterator[AnsweredBatch]:
        """Answer one batch; if the next batch comes before this one is computed, the answers come with that one.

        New batches go first: requests of one that has failed may be left to the calls for the next.
        """
        requests, flow = batch
        self._batches.flow = flow
        announced = flow if self._overlaps else None
        if announced is not None:
            announced.overlaps = True
        first = requests[0].entry
        if flow is not None and flow.failing and not first.one_by_one and flow.failing.is_apart(first.client):
            yield from self._batches.put_off(requests, flow)
            requests = ()
        for running in self._overlap.feed(requests, announced):
            yield from self._batches.end(running, flow)
        if self._batches.searches:
            yield from self._batches.search(flow)
