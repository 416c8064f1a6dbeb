"""Records of a v2 request: tensors are split into records for the job, and its answers are merged into tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cluster_serving.frontend.api.v2.request import InferRequest
from cluster_serving.frontend.dataplane import DecodedRequest
from cluster_serving.frontend.errors import check_count
from cluster_serving.frontend.server.http.responses import dumps
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput
from cluster_serving.protocol.inputs import Array, Images
from cluster_serving.protocol.results import Outputs
from cluster_serving.protocol.slots import SlotReport, TensorSpec, differing, filled, matched
from cluster_serving.protocol.tensors import Encoded, encode_parts
from cluster_serving.protocol.values.arrays import of_array
from cluster_serving.protocol.values.table import Refused, takes_missing, target_of

_NONE = InferRequest({})

_CODECS_NAME = re.compile(r"input(-|_|__)?\d{1,3}|predict", re.ASCII | re.IGNORECASE)
"""Names of a single tensor that tell no input: those of MLServer's codecs, and of Triton's FIL and PyTorch."""

_CODECS_OUTPUT = re.compile(r"output(-|_|__)?0|predict", re.ASCII | re.IGNORECASE)
"""Names that stand for the only output of a model, in the same clients."""


@dataclass(frozen=True, slots=True)
class RecordsRequest(DecodedRequest):
    """The records of one request.

    Attributes:
        keeps_batch: True if the job's answers have a batch dimension of their own (`inputAlreadyBatched`).
        request: The request.
    """

    keeps_batch: bool
    request: InferRequest = _NONE

    def encoded(self) -> RecordsRequest:
        """Return the batch with its records as bytes, and without the tensors that they were made of."""
        records = self.records
        if not isinstance(records, Columns):
            records = [Encoded(b"".join(encode_parts(record))) for record in records]
        return replace(self.without_inputs(), records=records)

    def without_inputs(self) -> RecordsRequest:
        """Return the batch without its records and tensors."""
        return replace(self, records=(), request=replace(self.request, inputs={}))

    def merge(self, answers: Sequence[Outputs], report: SlotReport, wanted: Mapping[str, int]) -> dict[str, Array]:
        """Merge one answer per record into the tensors of the response.

        `wanted` maps outputs to numbers of classes, or to 0 for the tensor itself; it is empty for all tensors.

        Returns:
            Name → tensor; the first dimension is the batch. Rankings and classes are "value:class", best first.

        Raises:
            InvalidInput: If an output that the request wants does not exist, or has no classes.
            InferenceFailed: If the answers differ in shape.
        """
        if isinstance(answers, Columns):
            return self._merged(answers.arrays, wanted)
        ranked = isinstance(answers[0], list)
        tensors = [_tensors(answer, report) for answer in answers]
        merged: dict[str, Array] = {}
        for name in wanted or tensors[0]:
            if name not in tensors[0]:
                raise no_output(name, tensors[0])
            parts = [tensor[name] for tensor in tensors]
            count = wanted.get(name, 0)
            if count and ranked:
                parts = [part[:count] for part in parts]
            elif count:
                parts = [_classes(name, part, count, self.keeps_batch) for part in parts]
            merged[name] = self._joined(name, parts) if self.keeps_batch and not ranked else _stacked(name, parts)
        return merged

    def _merged(self, arrays: Mapping[str, Array], wanted: Mapping[str, int]) -> dict[str, Array]:
        for name in wanted:
            if name not in arrays:
                raise no_output(name, arrays)
        return {
            name: _classes(name, arrays[name], wanted[name], True) if wanted.get(name) else arrays[name]
            for name in wanted or arrays
        }

    def _joined(self, name: str, parts: Sequence[Array]) -> Array:
        return parts[0] if len(parts) == 1 else _stacked(name, [row for part in parts for row in part])


def to_records(inputs: Mapping[str, Array], report: SlotReport, max_records: int) -> RecordsRequest:
    """Split a request along its batch dimension.

    A job with `inputAlreadyBatched` gets the whole batch as one record. Batches with images are split nevertheless,
    because a record holds one image.

    Args:
        inputs: Name → tensor; BYTES as object array of `bytes`, or None for null. An element of BYTES is UTF-8 text if
            the model takes strings or single numbers, else an image file.
        report: Describes the inputs of the model.
        max_records: Most records that a request may have.

    Raises:
        InvalidInput: If names, ranks or sizes are not those of the model, or the batch is empty.
        RequestTooLarge: If the batch has more than `max_records` records.
    """
    specs = {spec.name: spec for spec in report.inputs}
    inputs = _by_name(inputs, report.inputs)
    images = {name for name, array in inputs.items() if array.dtype == object and not _is_text(specs[name])}
    inputs = {name: array if name in images else _filled(specs[name], array) for name, array in inputs.items()}
    for name, array in inputs.items():
        _check_shape(specs[name], array, name in images)
    sizes = {name: len(array) for name, array in inputs.items()}
    size = next(iter(sizes.values()))
    if len(set(sizes.values())) > 1:
        raise InvalidInput(f"the inputs differ in their first dimension, which is the batch: {sizes}")
    if not size:
        raise InvalidInput("the batch is empty: the first dimension of the inputs is 0")
    check_count(f"input {next(iter(inputs))[:64]!r}", size, max_records)
    values: dict[str, Any] = {
        name: _strings(specs[name], array) if array.dtype == object and name not in images else array
        for name, array in inputs.items()
    }
    for name in images:
        if None in (files := inputs[name].ravel().tolist()):
            raise _missing(specs[name], files.index(None))
    values |= {name: Images(inputs[name].reshape(size).tolist()) for name in images}
    if not report.already_batched:
        return RecordsRequest(Columns(values), False)
    if not images:
        return RecordsRequest([values], True)
    # An image has no batch dimension of its own.
    rows = [
        {name: value[at, ...] if name in images else value[at : at + 1] for name, value in values.items()}
        for at in range(size)
    ]
    return RecordsRequest(rows, True)


def _by_name(inputs: Mapping[str, Array], specs: Sequence[TensorSpec]) -> Mapping[str, Array]:
    """Return tensors by the names of the model's inputs.

    MLServer's codecs of requests, the examples of MLServer and KServe, and Triton's backends name a single tensor
    themselves: that is the only input of a model. White space in the names of columns is told as for all
    clients; see `matched`.
    """
    if not specs:
        raise InvalidInput(
            "the handler of the model declares no inputs, which the v2 protocol needs: add them to its class, such as "
            'inputs = {"x": "float32[4]"} (docs/how-to/handlers.md), or use POST /models/NAME/predict'
        )
    found = matched(inputs, specs)
    names = ", ".join(repr(name[:64]) for name in inputs) or "none"
    is_column = any(spec.column for spec in specs)
    if not found or not (is_column or inputs.keys() == {spec.name for spec in specs} or _is_codecs(*inputs)):
        raise InvalidInput(
            f"{differing(inputs, specs)}the request has the inputs {names}; the model expects "
            f"{', '.join(map(str, specs))}"
        )
    return {found[name].name: array for name, array in inputs.items() if name in found}


def _is_text(spec: TensorSpec) -> bool:
    """Return True if BYTES for an input are texts: of a number, where records have a single one."""
    return spec.dtype == "str" or (target_of(spec) is not None and spec.record_shape in ((), (1,)))


def _is_codecs(name: str, *others: str) -> bool:
    return not others and _CODECS_NAME.fullmatch(name) is not None


def _filled(spec: TensorSpec, array: Array) -> Array:
    """Return a batch of single values with the dimensions of its records.

    Clients send [3] for [-1, 1], and MLServer's codecs and perf_analyzer send [3, 1] for [-1]. [3] for [-1, -1] more
    likely lacks the batch.
    """
    record_shape = spec.record_shape
    if record_shape == () and array.ndim > 1 and array.size == len(array):
        return array.reshape(len(array))
    if array.ndim != 1 or None in (record_shape or ()):
        return array
    return array.reshape(len(array), *filled((), record_shape))


def _check_shape(spec: TensorSpec, array: Array, is_image: bool) -> None:
    shape = list(array.shape)
    if is_image:
        if not shape or array.size != len(array):
            raise InvalidInput(
                f"input {spec.name!r} is BYTES of shape {shape}; expected [-1]: an image file per record"
            )
        return
    expected = spec.record_shape
    if expected is None:
        if not shape:
            raise InvalidInput(f"input {spec.name!r} is a scalar; expected a tensor whose first dimension is the batch")
        return
    if len(shape) != len(expected) + 1 or any(
        wanted not in (None, size) for size, wanted in zip(shape[1:], expected, strict=True)
    ):
        wanted_shape = [-1, *(-1 if size is None else size for size in expected)]
        raise InvalidInput(
            f"input {spec.name!r} has shape {shape}; expected {wanted_shape}, where the first dimension is the batch"
        )


def _strings(spec: TensorSpec, array: Array) -> Array:
    texts = np.empty(array.shape, object)
    for index, item in enumerate(array.flat):
        if item is None:
            if not takes_missing(spec):
                raise _missing(spec, index)
            continue
        try:
            texts.flat[index] = item.decode()
        except UnicodeDecodeError:
            raise InvalidInput(f"input {spec.name!r} takes text, but element {index} is not UTF-8") from None
    if spec.dtype == "str":
        return texts
    try:
        return of_array(texts, spec, typed=False)
    except Refused as error:
        raise InvalidInput(f"{error.of(spec.name)}; the model expects {spec}") from None


def _missing(spec: TensorSpec, index: int) -> InvalidInput:
    expected = "a text" if _is_text(spec) else "an image file"
    return InvalidInput(f"input {spec.name!r}: element {index} is null; expected {expected}")


def _classes(name: str, output: Array, count: int, keeps_batch: bool) -> Array:
    if output.dtype.kind not in "biuf" or not output.size:
        raise InvalidInput(f"output {name!r} is {output.dtype} of shape {list(output.shape)} and has no classes")
    if keeps_batch:
        return np.stack([_classes(name, row, count, False) for row in output])
    flat = output.reshape(-1)
    best = np.argsort(-flat.astype(np.float64), kind="stable")[:count]
    return _texts([(int(index), flat[index]) for index in best])


def _texts(ranking: Sequence[tuple[int, np.generic]]) -> Array:
    return np.fromiter((f"{value!s}:{index}" for index, value in ranking), object)


def _tensors(answer: Outputs, report: SlotReport) -> dict[str, Array]:
    """Return the tensors of an answer by name; a ranking becomes a tensor of texts, and so does a JSON document."""
    if not isinstance(answer, list):
        return {name: _text_of(array) if array.dtype == object else array for name, array in answer.items()}
    names = [spec.name for spec in report.outputs]
    if len(names) != len(answer):
        names = [f"output_{index}" for index in range(len(answer))]
    # The job sent float32; float64 would show digits without meaning.
    texts = [_texts([(index, np.float32(value)) for index, value in ranking]) for ranking in answer]
    return dict(zip(names, texts, strict=True))


def _text_of(array: Array) -> Array:
    if array.ndim or isinstance(array.item(), str):
        return array
    return np.array(dumps(array.item()).decode(), object)


def _stacked(name: str, parts: Sequence[Array]) -> Array:
    if len({part.shape for part in parts}) > 1:
        shapes = ", ".join(sorted({str(list(part.shape)) for part in parts}))
        raise InferenceFailed(
            f"output {name!r} differs in shape between the records: {shapes}; send them one at a time"
        )
    return parts[0][np.newaxis] if len(parts) == 1 else np.stack(parts)


def output_of(name: str, known: Sequence[str]) -> str:
    """Return the output of the model that a request means; the name of an only output does not matter."""
    return known[0] if len(known) == 1 and name not in known and _CODECS_OUTPUT.fullmatch(name) else name


def no_output(name: str, names: Iterable[str]) -> InvalidInput:
    """Return the error for an output that the model does not have."""
    return InvalidInput(f"the model has no output {name[:64]!r}; it has: {', '.join(names)}")
