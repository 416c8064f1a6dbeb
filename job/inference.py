"""Inference: the Flink shell around a model, one copy per task slot."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import redis
from pyflink.datastream import MapFunction, RuntimeContext

from cluster_serving.client import encryption
from cluster_serving.client.errors import InferenceFailed, InvalidInput, ModelError, ServingError
from cluster_serving.client.inputs import Image
from cluster_serving.client.model_secret import secret_key
from cluster_serving.client.slots import SlotReport
from cluster_serving.connectors.answer import Answer, Answered, write_answers
from cluster_serving.connectors.attempts import noted
from cluster_serving.connectors.model_secret import wait_for_secret
from cluster_serving.connectors.reconnect import connect
from cluster_serving.connectors.redis_clock import RedisClock
from cluster_serving.connectors.runtime import closing, nothing, subtask_index
from cluster_serving.connectors.slots import SlotReporter
from cluster_serving.job.batch import Arrays, group_by_shape, isolate, merge, split
from cluster_serving.job.batch_memory import BatchMemory
from cluster_serving.job.deadline import Deadlines
from cluster_serving.job.models import load_model
from cluster_serving.job.models.spec import Model
from cluster_serving.job.options import JobOptions
from cluster_serving.job.postprocessing import Encoder, make_encoder
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.request import Request
from cluster_serving.job.watched_model import NotComputed, WatchedModel

NAME = "Inference"

log = logging.getLogger(__name__)

_SECRET_PATIENCE = 60.0


class Predictor:
    """A loaded model with what comes before and after it; knows no Flink.

    Args:
        options: The job.
        secret: Secret and salt of an encrypted model.

    Raises:
        ModelError: The model cannot be loaded, or fails on a batch of zeros; or the filter does not fit its outputs.
        EngineMissing: The engine is not installed, or what decrypts records.
    """

    def __init__(self, options: JobOptions, secret: tuple[str, str] = ("", "")) -> None:
        self._options = options
        if options.image.record_key is not None:
            encryption.prepare(options.image.record_key)
        self._already_batched = options.batch.inputs_already_batched
        self._encode: Encoder = make_encoder(options.post_processing)
        self._secret = secret
        timeout = options.model.timeout_s
        self.model: Model = WatchedModel(self._load, timeout) if timeout else self._load()
        # A copy of the model that may use several threads uses them for its images, too.
        threads = options.model.threads
        self._decoders = ThreadPoolExecutor(threads, "decoder") if threads > 1 else None
        self._memories = [BatchMemory(spec.numpy_dtype) for spec in self.model.inputs]
        self._preprocessor = Preprocessor(
            self.model.inputs, self.model.layout, options.image, options.batch.inputs_already_batched
        )

    @property
    def exhausted(self) -> bool:
        """Whether so many calls of the model hang that this process has to be replaced."""
        return isinstance(self.model, WatchedModel) and self.model.exhausted

    def close(self) -> None:
        """Release the model."""
        if self._decoders:
            self._decoders.shutdown()
        self.model.close()

    def report(self) -> SlotReport:
        """What to know of the loaded model."""
        return SlotReport(
            "",
            "",
            engine=self.model.engine,
            inputs=tuple(self.model.inputs),
            outputs=tuple(self.model.outputs),
            already_batched=self._already_batched,
            post_processing=self._options.post_processing,
            max_batch_size=self._options.batch.max_size,
        )

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer requests of one signature: one call of the model, unless one of them makes it fail.

        Returns:
            An answer to each request, in order; if the process is `exhausted`, to those that could be computed.
        """
        answers: dict[int, Answer] = {}
        ready: list[tuple[int, Arrays]] = []
        for index, prepared in enumerate(self._prepare_all(requests)):
            if isinstance(prepared, ServingError):
                answers[index] = requests[index].fail(prepared)
            else:
                ready.append((index, prepared))
        for group in group_by_shape([arrays for _, arrays in ready]):
            members = [ready[position] for position in group]
            results = isolate(self._run, [arrays for _, arrays in members])
            for (index, _), result in zip(members, results, strict=True):
                if not isinstance(result, NotComputed):
                    answers[index] = self._to_answer(requests[index], result)
        return [answers[index] for index in sorted(answers)]

    def _load(self) -> Model:
        model = load_model(self._options.model, *self._secret)
        try:
            outputs = model.warm_up(batch=1)
        except InferenceFailed as error:
            raise ModelError(f"the model fails on a batch of zeros: {error}") from error
        if outputs is not None and not model.guesses:
            self._try_filter(model, outputs)
        return model

    def _try_filter(self, model: Model, outputs: Arrays) -> None:
        (record,) = split(outputs, [1], self._already_batched)
        try:
            self._encode(True, [spec.name for spec in model.outputs], record)
        except ServingError as error:
            raise ModelError(
                f"postProcessing: {self._options.post_processing} does not fit the model: {error}; choose another "
                "filter, or the outputs that it fits (outputs in config.yaml)"
            ) from error

    def _prepare_all(self, requests: Sequence[Request]) -> Iterable[Arrays | ServingError]:
        if self._decoders and len(requests) > 1 and isinstance(next(iter(requests[0].inputs.values()), None), Image):
            return self._decoders.map(self._prepare, requests)
        return map(self._prepare, requests)

    def _prepare(self, request: Request) -> Arrays | ServingError:
        if request.error is not None:
            return request.error
        try:
            return self._preprocessor.prepare(request.inputs)
        except ServingError as error:
            return error
        except Exception as error:
            return InvalidInput(f"the inputs cannot be prepared: {type(error).__name__}: {error}")

    def _run(self, records: Sequence[Arrays]) -> list[Arrays]:
        rows = [record[0].shape[0] if self._already_batched else 1 for record in records]
        # This line is where a batch meets the model.
        outputs = self.model.predict(merge(records, self._memories, self._already_batched))
        return split(outputs, rows, self._already_batched)

    def _to_answer(self, request: Request, result: Arrays | ServingError) -> Answer:
        if isinstance(result, ServingError):
            return request.fail(result)
        try:
            # Only now: some models name their outputs at the first call.
            names = [spec.name for spec in self.model.outputs]
            return request.answer(self._encode(request.entry.native, names, result))
        except ServingError as error:
            return request.fail(error)


class Inference(MapFunction):
    """Runs batches through the model and reports the slot's state.

    Args:
        options: The job.
    """

    def __init__(self, options: JobOptions) -> None:
        self._options = options
        self._close: Callable[[], object] = nothing

    def open(self, runtime_context: RuntimeContext) -> None:
        """Load the model, once per task slot.

        Raises:
            ModelError: It cannot be loaded; the launcher shows the message and cancels the job.
        """
        with connect(self._options.redis) as client:
            index = subtask_index(runtime_context)
            reporter = SlotReporter(client, self._options.name, self._options.submission, index)
            reporter.loading()
            try:
                self._predictor = Predictor(self._options, self._secret(client))
            except ServingError as error:
                reporter.failed(error)
                raise
            except Exception as error:
                reporter.failed(ModelError(f"{type(error).__name__}: {error}"))
                raise
            reporter.ready(self._predictor.report())
        self._redis = connect(self._options.redis)
        self._close = closing(self, self._predictor.close, self._redis.close)
        self._clock = RedisClock(self._redis)
        self._deadlines = Deadlines(self._clock, self._options.request_deadline_ms)
        metrics = runtime_context.get_metrics_group()
        self._failures = metrics.counter("failures")
        self._expired = metrics.counter("expired")
        self._batch_size = metrics.distribution("batchSize")
        self._inference_ms = metrics.distribution("inferenceTimeMs")
        self._queue_wait_ms = metrics.distribution("queueWaitMs")

    def _secret(self, client: redis.Redis) -> tuple[str, str]:
        if not self._options.model.encrypted:
            return "", ""
        secret = wait_for_secret(client, self._options.name, _SECRET_PATIENCE)
        if secret is None:
            raise ModelError(
                "the model is encrypted, and Redis has no secret for it: HSET "
                f"{secret_key(self._options.name)} secret <secret> salt <salt>"
            )
        return secret

    def close(self) -> None:
        """Release the model."""
        self._close()

    def map(self, value: list[Request]) -> Answered:
        """Answer one batch."""
        started = time.monotonic()
        wait_us = round(1000 * max(0, self._clock.waited_ms(value[0].entry.queued_ms) or 0))
        requests, expired = self._deadlines.check(value)
        if expired:
            self._expired.inc(expired)
        with noted(self._options.redis, self._options.name, (request.entry for request in requests)):
            answers = self._predictor.answer(requests)
        if self._predictor.exhausted:
            self._end_process(answers)
        inference_us = round(1e6 * (time.monotonic() - started))
        self._batch_size.update(len(value))
        self._inference_ms.update(round(inference_us / 1000))
        self._queue_wait_ms.update(round(wait_us / 1000))
        failures = sum("code" in answer.fields for answer in answers)
        if failures:
            self._failures.inc(failures)
        return Answered(answers, wait_us, inference_us)

    def _end_process(self, answers: Sequence[Answer]) -> NoReturn:
        """Answer what was computed, then let Flink, or what keeps it alive, replace this process.

        Not through the sink: that comes after this function, and what it had not written would be computed again.
        """
        log.error("too many calls of the model hang: ending this process, which is process %d", os.getpid())
        try:
            with connect(self._options.redis) as client:
                if answers:
                    write_answers(client, self._options.name, self._options.redis.result_ttl_s, answers)
        finally:
            logging.shutdown()
            os._exit(1)
