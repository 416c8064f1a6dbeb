"""Inference: the Flink shell around a model, one copy per task slot."""

from __future__ import annotations

import time
from collections.abc import Sequence

import redis
from pyflink.datastream import MapFunction, RuntimeContext

from cluster_serving.client.errors import InferenceFailed, InvalidInput, ModelError, ServingError
from cluster_serving.client.slots import SlotReport
from cluster_serving.connectors.answer import Answer
from cluster_serving.connectors.model_secret import KEY, wait_for_secret
from cluster_serving.connectors.reconnect import connect
from cluster_serving.connectors.redis_clock import RedisClock
from cluster_serving.connectors.runtime import subtask_index
from cluster_serving.connectors.slots import SlotReporter
from cluster_serving.job.batch import Arrays, group_by_shape, isolate, merge, split
from cluster_serving.job.deadline import Deadlines
from cluster_serving.job.models import load_model
from cluster_serving.job.models.spec import Model
from cluster_serving.job.options import JobOptions
from cluster_serving.job.postprocessing import Encoder, make_encoder
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.request import Request

NAME = "Inference"

_SECRET_PATIENCE = 60.0


class Predictor:
    """A loaded model with what comes before and after it; knows no Flink.

    Args:
        options: The job.
        secret: Secret and salt of an encrypted model.

    Raises:
        ModelError: The model cannot be loaded, or fails on a batch of zeros.
    """

    def __init__(self, options: JobOptions, secret: tuple[str, str] = ("", "")) -> None:
        self._options = options
        self._already_batched = options.batch.inputs_already_batched
        self._encode: Encoder = make_encoder(options.post_processing)
        self.model: Model = load_model(options.model, *secret)
        self._preprocessor = Preprocessor(
            self.model.inputs, self.model.layout, options.image, options.batch.inputs_already_batched
        )
        try:
            self.model.warm_up(batch=1)
        except InferenceFailed as error:
            raise ModelError(f"the model fails on a batch of zeros: {error}") from error

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
        """Answer requests of one signature: one call of the model, unless one of them makes it fail."""
        answers: dict[int, Answer] = {}
        ready: list[tuple[int, Arrays]] = []
        for index, request in enumerate(requests):
            try:
                if request.error is not None:
                    raise request.error
                ready.append((index, self._preprocessor.prepare(request.inputs)))
            except ServingError as error:
                answers[index] = request.fail(error)
            except Exception as error:
                message = f"the inputs cannot be prepared: {type(error).__name__}: {error}"
                answers[index] = request.fail(InvalidInput(message))
        for group in group_by_shape([arrays for _, arrays in ready]):
            members = [ready[position] for position in group]
            results = isolate(self._run, [arrays for _, arrays in members])
            for (index, _), result in zip(members, results, strict=True):
                answers[index] = self._to_answer(requests[index], result)
        return [answers[index] for index in range(len(requests))]

    def _run(self, records: Sequence[Arrays]) -> list[Arrays]:
        rows = [record[0].shape[0] if self._already_batched else 1 for record in records]
        # This line is where a batch meets the model.
        outputs = self.model.predict(merge(records, self._already_batched))
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
        self._deadlines = Deadlines(RedisClock(self._redis), self._options.request_deadline_ms)
        metrics = runtime_context.get_metrics_group()
        self._failures = metrics.counter("failures")
        self._expired = metrics.counter("expired")
        self._batch_size = metrics.distribution("batchSize")
        self._inference_ms = metrics.distribution("inferenceTimeMs")
        self._queue_wait_ms = metrics.distribution("queueWaitMs")

    def _secret(self, client: redis.Redis) -> tuple[str, str]:
        if not self._options.model.encrypted:
            return "", ""
        secret = wait_for_secret(client, _SECRET_PATIENCE)
        if secret is None:
            raise ModelError(
                f"the model is encrypted, and Redis has no secret for it: HSET {KEY} secret <secret> salt <salt>"
            )
        return secret

    def close(self) -> None:
        """Release the model."""
        predictor: Predictor | None = getattr(self, "_predictor", None)
        if predictor is not None:
            predictor.model.close()
            self._redis.close()

    def map(self, value: list[Request]) -> list[Answer]:
        """Answer one batch."""
        started = time.time()
        requests, expired = self._deadlines.check(value)
        if expired:
            self._expired.inc(expired)
        answers = self._predictor.answer(requests)
        self._batch_size.update(len(value))
        self._inference_ms.update(round((time.time() - started) * 1000))
        self._queue_wait_ms.update(max(0, round(started * 1000) - value[0].entry.queued_ms))
        failures = sum("code" in answer.fields for answer in answers)
        if failures:
            self._failures.inc(failures)
        return answers
