"""A loaded model with what comes before and after it; knows no Flink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from cluster_serving.client import encryption
from cluster_serving.client.errors import InferenceFailed, InvalidInput, ModelError, ServingError
from cluster_serving.client.inputs import Image
from cluster_serving.client.slots import SlotReport
from cluster_serving.connectors.answer import Answer
from cluster_serving.job.batch import Arrays, group_by_shape, isolate, merge, split
from cluster_serving.job.batch_memory import BatchMemory
from cluster_serving.job.models import load_model
from cluster_serving.job.models.spec import Model, Started, computed
from cluster_serving.job.options import JobOptions
from cluster_serving.job.postprocessing import Encoder, make_encoder
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.request import Request
from cluster_serving.job.watched_model import NotComputed, WatchedModel


class Batch:
    """Records in the model.

    Args:
        begin: Starts to compute records.
        indexes: Of their requests.
        records: At least one.
        at_once: Whether to wait for them here.
    """

    def __init__(
        self,
        begin: Callable[[Sequence[Arrays], bool], Started[list[Arrays]]],
        indexes: Sequence[int],
        records: Sequence[Arrays],
        at_once: bool,
    ) -> None:
        self.indexes = indexes
        self._begin = begin
        self._records = records
        self._first: Started[list[Arrays]] | None = self._begun(records, at_once)

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds at most; says whether all records are computed."""
        return self._first is None or self._first.wait(seconds)

    def results(self) -> list[Arrays | ServingError]:
        """Outputs of each record, or the error that it causes."""
        return isolate(self._run, self._records)

    def _run(self, records: Sequence[Arrays]) -> list[Arrays]:
        # When it fails as a whole, parts of it are computed again.
        started, self._first = self._first, None
        return (started or self._begin(records, True)).outputs()

    def _begun(self, records: Sequence[Arrays], at_once: bool) -> Started[list[Arrays]]:
        try:
            return self._begin(records, at_once)
        except Exception as error:
            failure = error

            def fail() -> list[Arrays]:
                raise failure

            return Started(fail)


class Computation:
    """Requests that are being computed.

    Args:
        requests: The requests.
        answers: Those that are answered already, by index.
        batches: Those of the others.
        to_answer: Makes an answer of a request and its outputs, or its error.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        answers: Mapping[int, Answer],
        batches: Sequence[Batch],
        to_answer: Callable[[Request, Arrays | ServingError], Answer],
    ) -> None:
        self.requests = requests
        self._answers = dict(answers)
        self._batches = batches
        self._to_answer = to_answer

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds at most; says whether all requests are computed."""
        return all(batch.wait(seconds) for batch in self._batches)

    def answers(self) -> list[Answer]:
        """Wait for the answers.

        Returns:
            An answer to each request, in order; if the process is `exhausted`, to those that could be computed.
        """
        for batch in self._batches:
            for index, result in zip(batch.indexes, batch.results(), strict=True):
                if not isinstance(result, NotComputed):
                    self._answers[index] = self._to_answer(self.requests[index], result)
        return [self._answers[index] for index in sorted(self._answers)]


class Predictor:
    """A loaded model with what comes before and after it.

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
    def overlaps(self) -> bool:
        """Whether `start` returns while the requests are being computed."""
        return self.model.overlaps

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
        """Answer requests of one signature; see `start` and `Computation.answers`."""
        return self.start(requests, alone=True).answers()

    def start(self, requests: Sequence[Request], alone: bool) -> Computation:
        """Start to compute requests of one signature: one call of the model, unless one of them makes it fail.

        Args:
            requests: At least one.
            alone: Nothing else is being computed, so a single request may have all threads.
        """
        answers: dict[int, Answer] = {}
        ready: list[tuple[int, Arrays]] = []
        for index, prepared in enumerate(self._prepare_all(requests)):
            if isinstance(prepared, ServingError):
                answers[index] = requests[index].fail(prepared)
            else:
                ready.append((index, prepared))
        batches = []
        for group in group_by_shape([arrays for _, arrays in ready]):
            members = [ready[position] for position in group]
            indexes, records = [index for index, _ in members], [arrays for _, arrays in members]
            batches.append(Batch(self._begin, indexes, records, alone and len(members) == 1))
        return Computation(requests, answers, batches, self._to_answer)

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

    def _begin(self, records: Sequence[Arrays], at_once: bool) -> Started[list[Arrays]]:
        batch = merge(records, self._memories, self._already_batched)
        # This line is where a batch meets the model.
        started = computed(self.model.predict(batch)) if at_once else self.model.start(batch)
        rows = [record[0].shape[0] if self._already_batched else 1 for record in records]
        return Started(lambda: split(started.outputs(), rows, self._already_batched), started.wait)

    def _to_answer(self, request: Request, result: Arrays | ServingError) -> Answer:
        if isinstance(result, ServingError):
            return request.fail(result)
        try:
            # Only now: some models name their outputs at the first call.
            names = [spec.name for spec in self.model.outputs]
            return request.answer(self._encode(request.entry.native, names, result))
        except ServingError as error:
            return request.fail(error)
