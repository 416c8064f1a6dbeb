"""Predicting: requests are prepared, computed and answered, without Flink and without Redis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cluster_serving.job import rows
from cluster_serving.job.batch import Arrays, split
from cluster_serving.job.computation import Answerable, Computation, Steps, begin
from cluster_serving.job.copies import NotComputed
from cluster_serving.job.encoding import Unfit
from cluster_serving.job.models.base import CallWatch, StartedRecord, TensorSpec
from cluster_serving.job.options import BatchOptions, ImageOptions, JobOptions, ModelOptions
from cluster_serving.job.pieces import Writer
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.servable import Given, Servable, Way
from cluster_serving.job.ways import CONVERSION, KINDS, copies_of, way_of
from cluster_serving.protocol.errors import InvalidInput, ModelError, ServingError
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import CLOSED
from cluster_serving.protocol.inputs import Image, Input
from cluster_serving.protocol.results import decode_arrays, to_fields
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.protocol.versions import FIRST

T = TypeVar("T")
P = TypeVar("P", bound="Predicting")

_BATCH = BatchOptions()
_IMAGE = ImageOptions()
_MAX_BATCH_BYTES = 256 << 20
_KINDS = {kind.type: kind for kind in KINDS}


class Predicting:
    """A model folder, with its handler if it has one, that answers the requests of a slot.

    One thread at a time may use it.

    Args:
        model: The folder, or all options of the model: device, threads, padding, time limit and so on.
        batch: Options of batches, of which `max_batch_size` and `input_already_batched` apply here.
        image: Options of encoded images.
        post_processing: Filters of the outputs, such as "softmax | topN(3)"; empty for none.
        secret: Secret and salt of an encrypted model.
        job: Name for the handler's `context.job`.
        version: Version for the handler's `context.version`.
        counts: Place of figures, those of the handler too.
        watch: Watches the calls that records share; a program that gives one calls `check`.

    Raises:
        ModelError: If the model cannot be loaded or fails on a batch of zeros, a filter does not fit its outputs, or
            the size of images fits no input. Of a handler: if it cannot be imported, or its `load` raises an exception,
            which is the cause.
        EngineMissing: If the engine, or the package that decrypts, is not installed.
    """

    def __init__(
        self,
        model: str | Path | ModelOptions,
        batch: BatchOptions = _BATCH,
        image: ImageOptions = _IMAGE,
        post_processing: str = "",
        *,
        secret: tuple[str, str] = ("", ""),
        job: str = "",
        version: str = FIRST,
        counts: Counts | None = None,
        watch: CallWatch | None = None,
    ) -> None:
        options = model if isinstance(model, ModelOptions) else ModelOptions(str(Path(model).absolute()))
        self._counts = counts or Counts()
        self._watch = watch
        self._answering_s = 0.0
        self._padding = bool(options.padding)
        self._threads = options.thread_per_model
        self._batch = batch
        self._image = image
        self._post_processing = post_processing
        self._already_batched = batch.input_already_batched
        way = way_of(Given(options, secret, image, batch.max_batch_size, job, version, self._counts))
        for kind in KINDS:
            kind.prepare(image)
        self._encoding = way.encoding(post_processing)
        self._copies = copies_of(partial(_watched, way.load, watch), options)
        self._call = self._copies.call
        self._encoding.counter = self.servable.counter
        self._generated = self.servable.generated(self._call, self._encoding)
        # A copy of the model that may use several threads uses them to decode large images, too.
        threads = options.thread_per_model
        self._decoders = ThreadPoolExecutor(threads, "decoder") if threads > 1 else None
        inputs = self.servable.inputs
        self._preprocessors = (
            None if inputs is None else {batched: self._preprocessor(inputs, batched) for batched in (False, True)}
        )
        self._in_rows = self._preprocessor_of_rows(way)
        try:
            for kind in KINDS:
                kind.check(inputs or (), self.servable.layout, image)
            self._sent = self._filtered_zeros()
        except ModelError:
            self.close()
            raise

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def of(
        cls: type[P],
        options: JobOptions,
        secret: tuple[str, str] = ("", ""),
        counts: Counts | None = None,
        watch: CallWatch | None = None,
    ) -> P:
        """Return the predictor of a slot of a job."""
        return cls(
            options.model,
            options.batch,
            options.image,
            options.post_processing,
            secret=secret,
            job=options.redis.job,
            version=options.redis.version,
            counts=counts,
            watch=watch,
        )

    @property
    def servable(self) -> Servable:
        """The copy that computes."""
        return self._copies.loaded

    @property
    def overlaps(self) -> bool:
        """True if `start` returns while the records are being computed."""
        return self._copies.in_place and self.servable.overlaps and not self._already_batched

    @property
    def learned(self) -> tuple[str, str, list[TensorSpec]]:
        """The parts of `report` that records may change."""
        return self.servable.one_by_one, self.servable.untried, self.servable.outputs

    @property
    def exhausted(self) -> bool:
        """True if too many calls hang: this process has to be replaced."""
        return self._copies.exhausted

    def close(self) -> None:
        """Release the model, or the handler and its models."""
        if self._decoders:
            # Python may collect a predictor in any thread: this waits for none.
            self._decoders.shutdown(wait=False)
        self._copies.close()

    def report(self) -> SlotReport:
        """Return the description of what was loaded; `SlotReporter` adds the slot."""
        servable, in_pieces = self.servable, self._generated is not None
        return SlotReport(
            submission="",
            state="",
            engine=servable.engine,
            device=servable.device,
            inputs=tuple(servable.inputs or ()),
            outputs=tuple(servable.outputs),
            already_batched=self._already_batched,
            post_processing=self._post_processing,
            max_batch_size=self._batch.max_batch_size,
            in_pieces=in_pieces,
            one_by_one=servable.one_by_one,
            untried=servable.untried,
            sent=self._sent,
            columns=not self._already_batched and not in_pieces,
            threads=self._threads,
        )

    def send_pieces(self, writer: Writer | None) -> None:
        """Send the pieces of answers to a place; without one, answers are whole."""
        if self._generated is not None:
            self._generated.writer = writer

    def start(self, requests: Sequence[Answerable[T]], alone: bool) -> Computation[T]:
        """Start to compute records of one signature: in one call, unless they are large or the call fails.

        If the predictor `overlaps`, each record is started as soon as it is prepared. Otherwise all are computed when
        this method returns. If nothing else is being computed (`alone`), a single record may use all threads.
        """
        if not any(request.rows for request in requests):
            return self._start(requests, alone)
        outcomes: list[Any] | ServingError | None = None
        if self._in_rows is not None and not (self.servable.one_by_one or self.overlaps):
            # Where a record cannot be a row, or is wrong, each is prepared by itself.
            with suppress(ServingError):
                outcomes = rows.compute(requests, self._in_rows, self._call)
        if isinstance(outcomes, list):
            answers = [
                request.succeed(outcome, self._encoding) for request, outcome in zip(requests, outcomes, strict=True)
            ]
            return Computation(requests, dict(enumerate(answers)), {}, self._finish)
        return self._start([single for request in requests for single in request.each()], alone, outcomes)

    def check(self) -> None:
        """Compute the record again alone that the watch has kept, if there is one; see `Watch.check`."""
        if self._watch is not None and self._watch.is_due:
            self._watch.check(lambda judge: self._call(lambda _: judge(), usual=False))

    def _start(
        self, requests: Sequence[Answerable[T]], alone: bool, failure: ServingError | None = None
    ) -> Computation[T]:
        answers: dict[int, T] = {}
        started: dict[int, StartedRecord] = {}
        ready: dict[int, Arrays] = {}
        size = 0
        began, self._answering_s = time.monotonic(), 0.0
        first = requests[0].inputs
        batched = self._is_batched(first)
        preprocessor = self._preprocessors[batched] if self._preprocessors else self._preprocessor_of(first, batched)
        one_by_one = self.overlaps and not batched and not (alone and len(requests) == 1)
        for index, prepared in enumerate(self._prepare_all(requests, preprocessor)):
            if isinstance(prepared, ServingError):
                answers[index] = requests[index].fail(prepared)
            elif not one_by_one:
                ready[index] = prepared
                for array in prepared:
                    size += array.nbytes
                if size > _MAX_BATCH_BYTES:
                    # Sparse tensors and images of a few hundred bytes may become many megabytes.
                    self._counts.add(CLOSED, label="memory")
                    for step in self._compute(requests, preprocessor.names, ready, batched, failure):
                        answers |= step or {}
                    ready, size = {}, 0
            else:
                try:
                    started[index] = self.servable.start(preprocessor.names, prepared)
                except ServingError as error:
                    answers[index] = requests[index].fail(error)
        prepared_s = time.monotonic() - began
        computed, search = begin(self._compute(requests, preprocessor.names, ready, batched, failure))
        return Computation(requests, answers | computed, started, self._finish, search, prepared_s, self._answering_s)

    def _filtered_zeros(self) -> tuple[TensorSpec, ...]:
        """Return what clients get of zeros, if a filter changes it; zeros of guessed sizes prove no mistake.

        A filter that fits an output of no size is one all the same.
        """
        servable, filters = self.servable, self._post_processing
        if servable.zeros is None or not filters:
            return ()
        (record,) = split(servable.zeros, [1], self._already_batched)
        try:
            fields = self._encoding.fields(True, ([spec.name for spec in servable.outputs], record))
        except ServingError as error:
            is_mistake = isinstance(error, Unfit) and error.always
            if servable.model and servable.model.guesses and not is_mistake:
                return ()
            raise ModelError(
                f"postProcessing: {filters} does not fit the model: {error}; choose another filter, or the outputs "
                "that it fits (outputs in config.yaml)"
            ) from error
        return tuple(
            TensorSpec(
                name,
                "str" if array.dtype == object else array.dtype.name,
                (None, *(None for _ in array.shape[self._already_batched :])),
            )
            for name, array in decode_arrays(to_fields(fields)).items()
        )

    def _preprocessor(self, inputs: Sequence[TensorSpec], batched: bool, any_rows: bool = False) -> Preprocessor:
        most = None if self._already_batched or any_rows else self._batch.max_rows
        servable = self.servable
        return Preprocessor(inputs, servable.layout, self._image, batched, most, servable.is_direct, KINDS, CONVERSION)

    def _preprocessor_of_rows(self, way: Way) -> Preprocessor | None:
        """Return the preprocessor of records that are rows; None if records cannot be rows.

        Records of one size can be rows if their outputs are sent as they are.
        """
        servable, inputs = self.servable, self.servable.inputs
        is_padded = servable.model is not None and bool(servable.model.padded)
        if not inputs or is_padded or self._already_batched or not (way.in_rows and self._encoding.is_plain):
            return None
        return self._preprocessor(inputs, True, any_rows=True)

    def _preprocessor_of(self, inputs: Mapping[str, Input], batched: bool) -> Preprocessor:
        """Return the preprocessor for inputs of any names."""
        kinds = {name: _KINDS.get(type(value)) for name, value in inputs.items()}
        specs = [kind.spec(name, self._image) if kind else TensorSpec(name, "", None) for name, kind in kinds.items()]
        return self._preprocessor(specs, batched)

    def _is_batched(self, inputs: Mapping[str, Input]) -> bool:
        """Return True if the inputs of a record have a batch dimension of their own.

        The number of dimensions tells; otherwise `inputAlreadyBatched` does. In 2.x that key was read nowhere: clients
        sent batches to all engines but OpenVINO, which took single records.
        """
        if self._preprocessors:
            beyond = self._preprocessors[False].batch_dimensions(inputs)
            if beyond in ({0}, {1}):
                return beyond == {1}
        is_image = all(isinstance(value, Image) for value in inputs.values())
        return self._already_batched and not (is_image and self.servable.engine == "OpenVINO")

    def _prepare_all(
        self, requests: Sequence[Answerable[T]], preprocessor: Preprocessor
    ) -> Iterable[Arrays | ServingError]:
        # With padding, records that share a batch may differ in shape.
        names = None if self._padding else preprocessor.untouched(requests[0].inputs)
        if names is not None:
            return [request.error or [request.inputs[name] for name in names] for request in requests]  # type: ignore[misc]
        prepare = partial(_prepare, preprocessor)
        if self._decoders is None or len(requests) == 1:
            return map(prepare, requests)
        decoders = self._decoders
        handed = [decoders.submit(prepare, request) if _is_slow(request) else None for request in requests]
        return (
            prepare(request) if future is None else future.result()
            for request, future in zip(requests, handed, strict=True)
        )

    def _compute(
        self,
        requests: Sequence[Answerable[T]],
        names: Sequence[str],
        ready: Mapping[int, Arrays],
        batched: bool,
        failure: ServingError | None,
    ) -> Steps[T]:
        """Compute the records whose inputs are ready; after the `failure` of a call of all, search for its culprits."""
        if not ready:
            return
        indices, records = [*ready], [*ready.values()]
        if self._generated is not None and not batched:
            generated = self._generated.answers([requests[index] for index in indices], names, records)
            yield {indices[position]: answer for position, answer in generated}
            return
        for step in self.servable.steps(self._call, names, records, batched, failure):
            if step is None:
                yield None
                continue
            answers, computed = {}, time.monotonic()
            for position, outcome in step.items():
                index = indices[position]
                if not isinstance(outcome, ServingError):
                    answers[index] = requests[index].succeed(outcome, self._encoding)
                elif not isinstance(outcome, NotComputed):
                    answers[index] = requests[index].fail(outcome)
            self._answering_s += time.monotonic() - computed
            yield answers

    def _finish(self, request: Answerable[T], result: Any) -> T:
        """Return the answer of a record that was started, from its outputs or its error."""
        outcome = result if isinstance(result, ServingError) else self.servable.finish(result)
        if isinstance(outcome, ServingError):
            return request.fail(outcome)
        return request.succeed(outcome, self._encoding)


def _watched(load: Callable[[], Servable], watch: CallWatch | None) -> Servable:
    """Load a copy, whose shared calls are watched if there is a watch."""
    servable = load()
    if watch is not None and servable.model is not None:
        servable.model.watch_with(watch)
    return servable


def _prepare(preprocessor: Preprocessor, request: Answerable[Any]) -> Arrays | ServingError:
    if request.error is not None:
        return request.error
    try:
        return preprocessor.prepare(request.inputs)
    except ServingError as error:
        return error
    except Exception as error:
        return InvalidInput(f"the inputs cannot be prepared: {type(error).__name__}: {error}")


def _is_slow(request: Answerable[Any]) -> bool:
    """Return True if a value of a record is slow to read (`InputKind.is_slow`)."""
    return any((kind := _KINDS.get(type(value))) and kind.is_slow(value) for value in request.inputs.values())
