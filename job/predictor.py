"""Predictor: preprocessing, model and post-processing, without Flink."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.batch import Arrays, BatchMemory, gather_records, group_by_shape, merge, search, split
from cluster_serving.job.computation import Computation, Steps, begin
from cluster_serving.job.handlers.predictor import HandlerPredictor
from cluster_serving.job.images import read_size
from cluster_serving.job.models import HANDLER, check, load_model
from cluster_serving.job.models.base import Model, Started, TensorSpec
from cluster_serving.job.models.location import locate
from cluster_serving.job.options import JobOptions
from cluster_serving.job.postprocessing import Encoder, make_encoder
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.request import Request
from cluster_serving.job.timeout import NotComputed, WatchedModel
from cluster_serving.protocol import encryption
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError, ServingError
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.results import decode_arrays, encode_result, to_fields
from cluster_serving.protocol.slots import SlotReport

_MAX_BATCH_BYTES = 256 << 20
_MANY_PIXELS = 1 << 17
"""Pixels of an image that takes longer to decode (0.6 ms) than to hand over to another thread and back (0.2 ms)."""


def load_predictor(options: JobOptions, secret: tuple[str, str] = ("", "")) -> Predictor | HandlerPredictor:
    """Load the model of a job, or its handler; see `Predictor`."""
    kind = HandlerPredictor if check(options.model).format == HANDLER else Predictor
    return kind(options, secret)


class Predictor:
    """A loaded model with its preprocessing and post-processing; `secret` has secret and salt of an encrypted model.

    Raises:
        ModelError: If the model cannot be loaded or fails on a batch of zeros, or the filter does not fit its outputs.
        EngineMissing: If the engine, or the package that decrypts records, is not installed.
    """

    def __init__(self, options: JobOptions, secret: tuple[str, str] = ("", "")) -> None:
        self._options = options
        if options.image.record_key is not None:
            encryption.prepare(options.image.record_key)
        self._already_batched = options.batch.input_already_batched
        self._encode: Encoder = make_encoder(options.post_processing, locate(options.model.path))
        self._secret = secret
        self._sent: tuple[TensorSpec, ...] = ()
        timeout = options.model.inference_timeout_s
        self.model: Model = WatchedModel(self._load, timeout) if timeout else self._load()
        # A copy of the model that may use several threads uses them to decode large images, too.
        threads = options.model.thread_per_model
        self._decoders = ThreadPoolExecutor(threads, "decoder") if threads > 1 else None
        self._memories = [BatchMemory(spec.numpy_dtype) for spec in self.model.inputs]
        most = None if self._already_batched else options.batch.max_rows
        self._preprocessors = {
            batched: Preprocessor(self.model.inputs, self.model.layout, options.image, batched, most)
            for batched in (False, True)
        }

    @property
    def overlaps(self) -> bool:
        """True if `start` returns while the requests are being computed."""
        return self.model.overlaps and not self._already_batched

    @property
    def learned(self) -> tuple[str, list[TensorSpec]]:
        """The parts of `report` that requests may change."""
        return self.model.one_by_one, self.model.outputs

    @property
    def exhausted(self) -> bool:
        """True if so many calls of the model hang that this process has to be replaced."""
        return isinstance(self.model, WatchedModel) and self.model.exhausted

    def close(self) -> None:
        """Release the model."""
        if self._decoders:
            self._decoders.shutdown()
        self.model.close()

    def report(self) -> SlotReport:
        """Return the description of the loaded model; `SlotReporter` adds the slot."""
        return SlotReport(
            submission="",
            state="",
            engine=self.model.engine,
            device=self.model.device,
            inputs=tuple(self.model.inputs),
            outputs=tuple(self.model.outputs),
            already_batched=self._already_batched,
            post_processing=self._options.post_processing,
            max_batch_size=self._options.batch.max_batch_size,
            one_by_one=self.model.one_by_one,
            sent=self._sent,
            columns=not self._already_batched,
        )

    def start(self, requests: Sequence[Request], alone: bool) -> Computation:
        """Start to compute requests of one signature: in one call, unless they are large or the call fails.

        If the model `overlaps`, each request is started as soon as it is prepared. Otherwise all are computed when this
        method returns. If nothing else is being computed (`alone`), a single request may use all threads.
        """
        answers: dict[int, Answer] = {}
        started: dict[int, Started] = {}
        ready: dict[int, Arrays] = {}
        size = 0
        batched = self._is_batched(requests[0])
        one_by_one = self.overlaps and not batched and not (alone and len(requests) == 1)
        for index, prepared in enumerate(self._prepare_all(requests, batched)):
            if isinstance(prepared, ServingError):
                answers[index] = requests[index].fail(prepared)
            elif not one_by_one:
                ready[index] = prepared
                for array in prepared:
                    size += array.nbytes
                if size > _MAX_BATCH_BYTES:
                    # Sparse tensors and images of a few hundred bytes may become many megabytes.
                    for step in self._compute(requests, ready, batched):
                        answers |= step or {}
                    ready, size = {}, 0
            else:
                try:
                    started[index] = self.model.start(prepared)
                except ServingError as error:
                    answers[index] = requests[index].fail(error)
        computed, search = begin(self._compute(requests, ready, batched))
        return Computation(requests, answers | computed, started, self._to_answer, search)

    def _load(self) -> Model:
        model = load_model(self._options.model, *self._secret)
        try:
            outputs = model.warm_up(batch=1)
        except InferenceFailed as error:
            raise ModelError(f"the model fails on a batch of zeros: {error}") from error
        if outputs is not None and self._options.post_processing:
            self._try_filter(model, outputs)
        return model

    def _try_filter(self, model: Model, outputs: Arrays) -> None:
        """Apply the filters to the outputs of zeros, and keep what clients get; guessed sizes prove no mistake."""
        (record,) = split(outputs, [1], self._already_batched)
        try:
            fields = self._encode(True, [spec.name for spec in model.outputs], record)
        except ServingError as error:
            if model.guesses:
                return
            raise ModelError(
                f"postProcessing: {self._options.post_processing} does not fit the model: {error}; choose another "
                "filter, or the outputs that it fits (outputs in config.yaml)"
            ) from error
        arrays = decode_arrays(to_fields(fields))
        self._sent = tuple(
            TensorSpec(
                name,
                "str" if array.dtype == object else array.dtype.name,
                (None, *(None for _ in array.shape[self._already_batched :])),
            )
            for name, array in arrays.items()
        )

    def _is_batched(self, request: Request) -> bool:
        """Return True if the inputs of a request have a batch dimension of their own.

        The number of dimensions tells; otherwise `inputAlreadyBatched` does. In 2.x that key was read nowhere: clients
        sent batches to all engines but OpenVINO, which took single records.
        """
        beyond = self._preprocessors[False].batch_dimensions(request.inputs)
        if beyond in ({0}, {1}):
            return beyond == {1}
        is_image = all(isinstance(value, Image) for value in request.inputs.values())
        return self._already_batched and not (is_image and self.model.engine == "OpenVINO")

    def _prepare_all(self, requests: Sequence[Request], batched: bool) -> Iterable[Arrays | ServingError]:
        # Requests that share a batch may then differ in shape.
        names = None if self.model.padded else self._preprocessors[batched].untouched(requests[0].inputs)
        if names is not None:
            return [request.error or [request.inputs[name] for name in names] for request in requests]  # type: ignore[misc]
        prepare = partial(self._prepare, self._preprocessors[batched])
        if self._decoders is None or len(requests) == 1:
            return map(prepare, requests)
        decoders = self._decoders
        handed = [decoders.submit(prepare, request) if _is_slow(request) else None for request in requests]
        return (
            prepare(request) if future is None else future.result()
            for request, future in zip(requests, handed, strict=True)
        )

    def _prepare(self, preprocessor: Preprocessor, request: Request) -> Arrays | ServingError:
        if request.error is not None:
            return request.error
        try:
            return preprocessor.prepare(request.inputs)
        except ServingError as error:
            return error
        except Exception as error:
            return InvalidInput(f"the inputs cannot be prepared: {type(error).__name__}: {error}")

    def _compute(self, requests: Sequence[Request], ready: Mapping[int, Arrays], batched: bool) -> Steps:
        """Compute the requests whose inputs are ready."""
        indices = list(ready)
        shared = self.model.padded and ready
        for group in [range(len(ready))] if shared else group_by_shape(list(ready.values())):
            members = [indices[position] for position in group]
            for step in search(partial(self._run, batched), [ready[index] for index in members]):
                if step is None:
                    yield None
                    continue
                yield {
                    members[position]: self._to_answer(requests[members[position]], result)
                    for position, result in step.items()
                    if not isinstance(result, NotComputed)
                }

    def _run(self, batched: bool, records: Sequence[Arrays]) -> list[Arrays]:
        rows = [record[0].shape[0] if batched else 1 for record in records]
        inputs = gather_records(records, batched) if self.model.padded else merge(records, self._memories, batched)
        model, count = self.model, len(records)
        outputs = model.predict(inputs, count) if isinstance(model, WatchedModel) else model.predict(inputs)
        return split(outputs, rows, batched, fill=bool(self.model.padded or not self.model.one_by_one))

    def _to_answer(self, request: Request, result: Arrays | ServingError) -> Answer:
        if isinstance(result, ServingError):
            return request.fail(result)
        try:
            # Names are read after the call: some models name their outputs at the first call only.
            names = [spec.name for spec in self.model.outputs]
            if request.part >= 0 and self._encode is encode_result:
                return request.part_answer(names, result)
            return request.answer(self._encode(request.entry.native, names, result))
        except ServingError as error:
            return request.fail(error)
        except Exception as error:
            # Outputs of an unexpected type concern this request alone.
            return request.fail(InferenceFailed(f"the outputs cannot be sent: {type(error).__name__}: {error}"))


def _is_slow(request: Request) -> bool:
    """Return True if a request has an image of many pixels, or one that does not tell how many it has."""
    sizes = [read_size(value.data) for value in request.inputs.values() if isinstance(value, Image)]
    return any(size is None or math.prod(size) >= _MANY_PIXELS for size in sizes)
