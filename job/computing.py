"""Computing: the batches of a slot are computed, and answered."""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, NoReturn, Protocol

import redis

from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch, write_answers
from cluster_serving.connectors.slot.attempts import Attempts, noted
from cluster_serving.connectors.slot.deadlines import Deadlines
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.redis import RedisClock, connect
from cluster_serving.job.computation import Computation
from cluster_serving.job.options import JobOptions
from cluster_serving.job.overlap import Overlap
from cluster_serving.job.parts import Parts
from cluster_serving.job.predicting import Predicting
from cluster_serving.job.request import GatheredBatch, Request, with_errors
from cluster_serving.protocol.errors import DeadlineExceeded, InferenceTimeout

log = logging.getLogger(__name__)


class Running(NamedTuple):
    """A batch that is being computed, since when, and how long its oldest request had waited."""

    computation: Computation[Answer]
    started: float
    wait_us: int

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds; return True if the batch is computed."""
        return self.computation.wait(seconds)


class Search(Protocol):
    """What becomes of batches that fail, and of the clients that send them (`culprits.search`)."""

    def puts_off(self, requests: Sequence[Request], flow: SlotFlowControl | None) -> bool:
        """Return True if a batch is not to be computed now, but left to `put_off`."""

    def put_off(self, requests: Sequence[Request], flow: SlotFlowControl | None) -> Iterator[AnsweredBatch]:
        """Leave a batch to `go_on`; yield the answers of requests that are refused."""

    def note(
        self, computation: Computation[Answer], answers: Sequence[Answer], seconds: float, flow: SlotFlowControl | None
    ) -> None:
        """Take note of a batch, which took so many seconds; requests without an answer have it from its `search`."""

    def go_on(self, flow: SlotFlowControl | None) -> Iterator[AnsweredBatch]:
        """Yield the answers of requests that were put off, or whose batch has failed; new requests may go first."""


class Batches:
    """Processing of the batches of a slot.

    Nothing that it refers to refers to it: the model is freed when PyFlink drops its function (see `SelfClosing`).
    """

    def __init__(
        self, options: JobOptions, predictor: Predicting, client: redis.Redis, metrics: Metrics, end: str
    ) -> None:
        self.predictor = predictor
        self._options = options
        self._attempts = Attempts(client, options.redis.queue.job, end)
        self._clock = RedisClock(client)
        self._deadlines = Deadlines(self._clock, options.request_deadline_ms)
        self._failures = metrics.counter("failures")
        self._expired = metrics.counter("expired")
        self._batch_size = metrics.distribution("batchSize")
        self._inference_ms = metrics.distribution("inferenceTimeMs")
        self._queue_wait_ms = metrics.distribution("queueWaitMs")
        self._parts = Parts()
        self.flow: SlotFlowControl | None = None
        """Flow control of the requests that are computed."""
        self.computed_s = 0.0
        """Seconds for which batches were computed."""
        self.timed_out = 0
        """Records for which the model did not return in time."""

    def noted(self, requests: Sequence[Request]) -> AbstractContextManager[None]:
        """Note an exception that interrupts requests; see `attempts.noted`."""
        return noted(self._options.redis.queue, (request.entry for request in requests))

    def begin(self, value: Sequence[Request], alone: bool) -> Running:
        """Start to compute a batch; see `Predicting.start`."""
        started = time.monotonic()
        wait_us = round(1000 * max(0, self._clock.waited_ms(value[0].entry.queued_ms) or 0))
        # The window has just checked the requests that came through its flow control.
        requests = self.checked(value, is_checked=self.flow is not None)
        if value[0].entry.one_by_one:
            self._attempts.note([value[0].entry], goes_on=True, record=value[0].part)
        with self.noted(requests):
            return Running(self.predictor.start(requests, alone), started, wait_us)

    def checked(self, requests: Sequence[Request], is_checked: bool = False) -> Sequence[Request]:
        """Give the requests that have expired their error, unless they have it."""
        if not is_checked:
            requests = with_errors(
                requests, self._deadlines.expired(request.entry for request in requests if request.error is None)
            )
        if expired := sum(isinstance(request.error, DeadlineExceeded) for request in requests):
            self._expired.inc(expired)
        return requests

    def end(self, running: Running, flow: SlotFlowControl | None, search: Search | None) -> Iterator[AnsweredBatch]:
        """Wait for the answers of a batch; if it has failed, some are left to `search`, or searched at once."""
        computation = running.computation
        with self.noted(computation.requests):
            answers = computation.answers() if search is None else computation.ready()
        seconds = time.monotonic() - running.started
        if search is not None:
            search.note(computation, answers, seconds, flow)
        self._batch_size.update(sum(request.size for request in computation.requests))
        self._inference_ms.update(round(1000 * seconds))
        self._queue_wait_ms.update(round(running.wait_us / 1000))
        parts = computation.preprocess_s, computation.postprocess_s
        yield from self.answered(answers, running.wait_us, seconds, *parts)

    def answered(
        self,
        answers: Sequence[Answer],
        wait_us: int,
        seconds: float,
        preprocess_s: float = 0.0,
        postprocess_s: float = 0.0,
    ) -> Iterator[AnsweredBatch]:
        """Yield answers, those of whole entries, and count them."""
        self.computed_s += seconds
        # Counted by record: `whole` makes one answer, with one code, of the records of an entry.
        self.timed_out += sum(answer.fields.get("code") == InferenceTimeout.code for answer in answers)
        if self.predictor.exhausted:
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


MakeSearch = Callable[[Batches], Search]


class Computing:
    """Runner of the batches of one slot through its model.

    Args:
        options: Options of the job.
        predictor: The model of the slot.
        client: Connection to the job's Redis.
        metrics: Metrics of the function around the model.
        end: File in which the process records its end, see `Attempt.end`.
        search: Makes what goes on with batches that fail; None to search for their culprits before the next batch.
    """

    def __init__(
        self,
        options: JobOptions,
        predictor: Predicting,
        client: redis.Redis,
        metrics: Metrics,
        end: str = "",
        search: MakeSearch | None = None,
    ) -> None:
        self._batches = Batches(options, predictor, client, metrics, end)
        self._search = search(self._batches) if search else None
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
        search = self._search
        self._batches.flow = flow
        announced = flow if self._overlaps else None
        if announced is not None:
            announced.overlaps = True
        if search is not None and search.puts_off(requests, flow):
            yield from search.put_off(requests, flow)
            requests = ()
        for running in self._overlap.feed(requests, announced):
            yield from self._batches.end(running, flow, search)
        if search is not None:
            yield from search.go_on(flow)
