"""Predictor of a job with a handler: requests become the handler's records, and its outputs become answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.batch import isolate, search
from cluster_serving.job.computation import Computation, Steps, begin
from cluster_serving.job.handlers.failure import HandlerFailed
from cluster_serving.job.handlers.generated import Generated, Writer
from cluster_serving.job.handlers.handled import HandledModel
from cluster_serving.job.handlers.records import Record, groups
from cluster_serving.job.models.base import TensorSpec, cause
from cluster_serving.job.models.location import locate
from cluster_serving.job.options import JobOptions
from cluster_serving.job.outputs import pack
from cluster_serving.job.postprocessing import Encoder, make_encoder
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.request import Request
from cluster_serving.job.timeout import NotComputed, Watched
from cluster_serving.protocol import encryption
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ServingError
from cluster_serving.protocol.inputs import Array, Image
from cluster_serving.protocol.results import encode_error, encode_result, mark_json
from cluster_serving.protocol.slots import SlotReport

T = TypeVar("T")

_MAX_BATCH_BYTES = 256 << 20


class HandlerPredictor:
    """A handler with what comes before and after it; see `job.predictor.Predictor`.

    Raises:
        ModelError: If the handler cannot be imported, or its `load` raises an exception.
    """

    def __init__(self, options: JobOptions, secret: tuple[str, str] = ("", "")) -> None:
        self._options = options
        if options.image.record_key is not None:
            encryption.prepare(options.image.record_key)
        self._encode: Encoder = make_encoder(options.post_processing, locate(options.model.path))
        load, timeout = partial(HandledModel, options, secret), options.model.inference_timeout_s
        self._watched = Watched(load, timeout) if timeout else None
        self.handled = self._watched.loaded if self._watched else load()
        self._generated = Generated(self._call, self._fields, _failed) if self.handled.generates else None
        inputs = self.handled.inputs
        self._preprocessors = None if inputs is None else self._preprocessors_of(inputs)

    @property
    def overlaps(self) -> bool:
        """True if `start` returns while the requests are being computed."""
        return self._watched is None and self.handled.overlaps and not self._options.batch.input_already_batched

    @property
    def learned(self) -> tuple[str, list[TensorSpec]]:
        """The parts of `report` that requests may change."""
        return self.handled.one_by_one, self.handled.outputs

    @property
    def exhausted(self) -> bool:
        """True if so many calls hang that this process has to be replaced."""
        return self._watched is not None and self._watched.exhausted

    def close(self) -> None:
        """Release the handler and its models."""
        (self._watched or self.handled).close()

    def report(self) -> SlotReport:
        """Return the description of the handler; `SlotReporter` adds the slot."""
        return SlotReport(
            submission="",
            state="",
            engine=self.handled.engine,
            device=self.handled.device,
            inputs=tuple(self.handled.inputs or ()),
            outputs=tuple(self.handled.outputs),
            already_batched=self._options.batch.input_already_batched,
            post_processing=self._options.post_processing,
            max_batch_size=self._options.batch.max_batch_size,
            in_pieces=self._generated is not None,
            one_by_one=self.handled.one_by_one,
            columns=not self._options.batch.input_already_batched and self._generated is None,
        )

    def send_pieces(self, writer: Writer) -> None:
        """Send the pieces of answers to a place; without one, answers are whole."""
        if self._generated is not None:
            self._generated.writer = writer

    def start(self, requests: Sequence[Request], alone: bool) -> Computation:
        """Start to compute requests of one signature; see `Predictor.start`."""
        answers: dict[int, Answer] = {}
        started = {}
        ready: dict[int, Record] = {}
        size = 0
        batched = self._is_batched(requests[0])
        one_by_one = self.overlaps and not batched and not (alone and len(requests) == 1)
        for index, prepared in enumerate(self._prepare_all(requests, batched)):
            if isinstance(prepared, ServingError):
                answers[index] = requests[index].fail(prepared)
            elif one_by_one:
                try:
                    started[index] = self.handled.start(prepared)
                except ServingError as error:
                    answers[index] = _failed(requests[index], error)
            else:
                ready[index] = prepared
                for value in prepared.values():
                    # Texts have no such attribute, and hardly take memory.
                    size += getattr(value, "nbytes", 0)
                if size > _MAX_BATCH_BYTES:
                    for step in self._compute(requests, ready, batched):
                        answers |= step or {}
                    ready, size = {}, 0
        computed, search = begin(self._compute(requests, ready, batched))
        return Computation(requests, answers | computed, started, self._finish, search)

    def _preprocessors_of(self, inputs: Sequence[TensorSpec]) -> dict[bool, Preprocessor]:
        batch = self._options.batch
        most = None if batch.input_already_batched else batch.max_rows
        return {
            batched: Preprocessor(inputs, self.handled.layout, self._options.image, batched, most)
            for batched in (False, True)
        }

    def _is_batched(self, request: Request) -> bool:
        """Return True if the inputs of a request have a batch dimension of their own; see `Predictor`."""
        if self._preprocessors is not None:
            beyond = self._preprocessors[False].batch_dimensions(request.inputs)
            if beyond in ({0}, {1}):
                return beyond == {1}
        return self._options.batch.input_already_batched

    def _prepare_all(self, requests: Sequence[Request], batched: bool) -> Iterator[Record | ServingError]:
        first = requests[0].inputs
        if self._preprocessors is None:
            # Any inputs are taken: of their own names, and images as pixels.
            pixels = (None, None, None, 1 if self._options.image.color == "GRAY" else 3)
            specs = [
                TensorSpec(name, "uint8", pixels) if isinstance(value, Image) else TensorSpec(name, "", None)
                for name, value in first.items()
            ]
            preprocessor = self._preprocessors_of(specs)[batched]
        else:
            specs, preprocessor = self.handled.inputs or [], self._preprocessors[batched]
        names = [spec.name for spec in specs]
        # With padding, requests that share a batch may differ in shape.
        untouched = None if self._options.model.padding else preprocessor.untouched(first)
        for request in requests:
            if request.error is not None:
                yield request.error
            elif untouched == names:
                yield dict(request.inputs)
            elif untouched is not None:
                inputs = request.inputs
                yield {name: inputs[key] for name, key in zip(names, untouched, strict=True)}
            else:
                yield self._prepare(request, preprocessor, specs)

    def _prepare(
        self, request: Request, preprocessor: Preprocessor, specs: Sequence[TensorSpec]
    ) -> Record | ServingError:
        try:
            arrays = preprocessor.prepare(request.inputs)
        except ServingError as error:
            return error
        except Exception as error:
            return InvalidInput(f"the inputs cannot be prepared: {type(error).__name__}: {error}")
        if self.handled.is_direct:
            return {spec.name: array for spec, array in zip(specs, arrays, strict=True)}
        return {spec.name: _value(spec, array) for spec, array in zip(specs, arrays, strict=True)}

    def _compute(self, requests: Sequence[Request], ready: Mapping[int, Record], batched: bool) -> Steps:
        """Compute the requests whose records are ready."""
        if not ready:
            return
        if batched:
            yield {index: answer for index in ready for answer in self._compute_rows(requests[index], ready[index])}
        elif self._generated is not None:
            yield dict(self._generate(requests, ready, self._generated))
        else:
            places = [*ready]
            for step in search(self._run, [*ready.values()]):
                yield None if step is None else dict(self._answered(requests, places, step))

    def _answered(
        self, requests: Sequence[Request], places: Sequence[int], results: Mapping[int, Any]
    ) -> Iterator[tuple[int, Answer]]:
        for position, result in results.items():
            index = places[position]
            if type(result) is dict:
                yield index, self._to_answer(requests[index], [result])
            elif not isinstance(result, NotComputed):
                yield index, _failed(requests[index], result)

    def _generate(
        self, requests: Sequence[Request], ready: Mapping[int, Record], generated: Generated
    ) -> Iterator[tuple[int, Answer]]:
        """Yield the answers of a handler that generates, by index of their requests."""
        prepared = isolate(self._preprocess, [*ready.values()])
        results = dict(zip(ready, prepared, strict=True))
        for index, result in results.items():
            if isinstance(result, ServingError) and not isinstance(result, NotComputed):
                yield index, _failed(requests[index], result)
        places = [*ready]
        for members in groups([*results.values()]):
            indices = [places[member] for member in members]
            records = [cast(Record, results[index]) for index in indices]
            for position, answer in generated.answers([requests[index] for index in indices], records):
                yield indices[position], answer

    def _preprocess(self, records: Sequence[Record]) -> list[Record | ServingError]:
        return self._call(lambda handled: [handled.preprocess(record) for record in records])

    def _call(self, function: Callable[[HandledModel], T]) -> T:
        return function(self.handled) if self._watched is None else self._watched.call(function, usual=False)

    def _compute_rows(self, request: Request, batch: Record) -> list[Answer]:
        """Compute a request that is a batch, whose rows are records for the handler; it fails as a whole."""
        count = len(next(iter(batch.values())))
        results = isolate(self._run, [{name: values[row] for name, values in batch.items()} for row in range(count)])
        error = next((result for result in results if isinstance(result, ServingError)), None)
        if error is None:
            return [self._to_answer(request, results, stacked=True)]
        return [] if isinstance(error, NotComputed) else [_failed(request, error)]

    def _run(self, records: Sequence[Record]) -> list[Any]:
        """Return the outputs of each record, its error, or a `Suspect`; fail only as a whole, by a timeout."""
        if self._watched is None:
            return self.handled.compute(records)
        return self._watched.call(lambda handled: handled.compute(records), len(records))

    def _finish(self, request: Request, result: list[Array] | ServingError) -> Answer:
        """Return the answer of a record that was started."""
        if isinstance(result, ServingError):
            return _failed(request, result)
        outputs = self.handled.postprocess(self.handled.named(result))
        if isinstance(outputs, ServingError):
            return _failed(request, outputs)
        return self._to_answer(request, [outputs])

    def _to_answer(self, request: Request, outputs: Sequence[Any], stacked: bool = False) -> Answer:
        """Return the answer with the outputs of a record, or with those of several, `stacked`."""
        try:
            if request.part >= 0 and self._encode is encode_result:
                with suppress(Exception):
                    # What cannot be sent is told below.
                    arrays, documents = pack(outputs[0])
                    if not documents:
                        return request.part_answer([*arrays], [*arrays.values()])
            return request.answer(self._fields(request, *outputs, stacked=stacked))
        except ServingError as error:
            return request.fail(error)

    def _fields(self, request: Request, *outputs: Record, stacked: bool = False) -> Mapping[str, str | bytes]:
        """Return the fields of a result; raise `InferenceFailed` if the outputs cannot be sent."""
        try:
            arrays, documents = _stacked([pack(record) for record in outputs]) if stacked else pack(outputs[0])
            fields = self._encode(request.entry.native, [*arrays], [*arrays.values()])
            return mark_json(fields, documents) if documents else fields
        except Exception as error:
            # Outputs of an unexpected type concern this request alone.
            raise InferenceFailed(f"the outputs cannot be sent: {cause(error)}") from error


def _stacked(rows: Sequence[tuple[dict[str, Array], list[str]]]) -> tuple[dict[str, Array], list[str]]:
    """Return the outputs of a batch, from the packed ones of its rows; documents become a list of them.

    Raises:
        ValueError: If the rows differ in their outputs.
    """
    first, documents = rows[0]
    for row, (arrays, kinds) in enumerate(rows):
        if arrays.keys() != first.keys() or kinds != documents:
            raise ValueError(f"row 0 of the batch has the outputs {', '.join(first)}, row {row} {', '.join(arrays)}")
    stacked = {}
    for name in first:
        values = [arrays[name] for arrays, _ in rows]
        listed = f"[{','.join(value.item() for value in values)}]" if name in documents else None
        stacked[name] = np.stack(values) if listed is None else np.asarray(listed, object)
    return stacked, documents


def _failed(request: Request, error: ServingError) -> Answer:
    """Return the answer with an error; a failure of the handler's own is kept as a dead letter with its traceback."""
    if not isinstance(error, HandlerFailed):
        return request.fail(error)
    error.report()
    letter = DeadLetter.of(request.single, error, error.traceback)
    return request.answer(encode_error(error))._replace(letter=letter)


def _value(spec: TensorSpec, array: Array) -> Any:
    """Return an input as handlers get it."""
    if array.dtype == object:
        return array if array.ndim else array.item()
    dtype = spec.numpy_dtype
    # Images are decoded to bytes, whatever the type of the input.
    return array if dtype is None or array.dtype == dtype else array.astype(dtype)
