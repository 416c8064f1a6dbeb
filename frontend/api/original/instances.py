"""The JSON body `{"instances": […]}`, or the list alone, and its conversion to requests of a job.

A body of another form raises `InvalidInput`; one with too many values or instances, `RequestTooLarge`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from cluster_serving.frontend.api import json_text
from cluster_serving.frontend.api.json_text import as_object, check_names, kind_of
from cluster_serving.frontend.errors import MOST_STREAMS, ModelNotReady, check_count
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, Array, Image, Images, Input
from cluster_serving.protocol.original.json import to_input
from cluster_serving.protocol.slots import SlotReport, TensorSpec, differing, filled, matched
from cluster_serving.protocol.tensors import Encoded, Inputs, encode
from cluster_serving.protocol.values.arrays import of_array
from cluster_serving.protocol.values.floats import encode_floats, pack_floats

EXPECTED = 'expected {"instances": [{"name": value, …}, …]}'

_SUBMISSION = ("instances", "model", "version", "callback", "stream")

_UNNAMED = (list, str, int, float)
"""Types of an instance that is the value of the only input."""

_ANYTHING = TensorSpec("", "", None)
_FLOATS = ("float32", "")
"""Dtypes of inputs whose numbers are sent as float32."""


def instances_of(content: Mapping[str, Any], most: int) -> list[Any]:
    """Return the instances of a body that `parse` has read: at most `most`."""
    instances = content.get("instances")
    if not isinstance(instances, list):
        problem = "has no 'instances'" if instances is None else f"has {kind_of(instances)} as 'instances'"
        raise InvalidInput(f"the body {problem}; {EXPECTED}")
    if not instances:
        raise InvalidInput(f"'instances' is empty; {EXPECTED}")
    check_count("'instances'", len(instances), most)
    return instances


Records = Sequence[Inputs | InvalidInput]
"""Inputs of each record, or its error; `Columns` if all are alike, and numbers, texts or images."""


def read(body: bytes, most: int, model: SlotReport | None) -> Records:
    """Read the requests of a body; it may be the list of instances.

    Raises:
        ModelNotReady: If an instance has no names, and those of the inputs are not known: no slot has loaded the model.
    """
    content = json_text.loads(body, json_text.FILE_IN_INSTANCES)
    content = {"instances": content} if isinstance(content, list) else as_object(content)
    check_names(content, ("instances",))
    instances = instances_of(content, most)
    if model is None and any(isinstance(instance, _UNNAMED) for instance in instances):
        raise ModelNotReady(
            'no slot has loaded the model yet, so its inputs are not known: send {"name": value, …}, or ask again'
        )
    return to_records(instances, model)


class Submission(NamedTuple):
    """A body that may name its model.

    Attributes:
        model: Name of the model; empty for the default model.
        version: Version of the model that is to answer; empty for any.
        callback: Address to which the results are posted; None for none.
        stream: True if the answers are to come in pieces.
        records: The requests.
    """

    model: str
    version: str
    callback: str | None
    stream: bool
    records: Records


def read_submission(body: bytes, most: int, models: Mapping[str, SlotReport | None]) -> Submission:
    """Read a body that may name its model.

    `models` has the report of each model by name; the empty name is the default model's.
    """
    content = json_text.parse(body, json_text.FILE_IN_INSTANCES)
    check_names(content, _SUBMISSION)
    instances = instances_of(content, most)
    name, version, callback = content.get("model", ""), content.get("version", ""), content.get("callback")
    if not isinstance(name, str):
        raise InvalidInput("'model' is not a text; expected the name of a model")
    if not isinstance(version, str | int) or isinstance(version, bool):
        raise InvalidInput("'version' is not a number; expected that of a version of the model")
    if not isinstance(callback, str | None):
        raise InvalidInput("'callback' is not a text; expected an address")
    stream = content.get("stream", False)
    if not isinstance(stream, bool):
        raise InvalidInput("'stream' is not true or false")
    if stream:
        check_count("'instances'", len(instances), MOST_STREAMS)
    return Submission(name, str(version), callback, stream, to_records(instances, models.get(name)))


def to_records(instances: Sequence[Any], model: SlotReport | None, batched: bool = False) -> Records:
    """Convert instances to records; without `model`, its inputs are unknown.

    Unless they are columns, the records are encoded, since a process passes bytes on at a fraction of the cost of
    arrays. If they are to be `batched`, each tensor gets a batch dimension of 1.
    """
    specs = model.inputs if model is not None else ()
    if not batched and len(instances) > 1 and (columns := _columns(instances, specs)) is not None:
        return columns
    return [_record(index, instance, specs, batched) for index, instance in enumerate(instances)]


def _columns(instances: Sequence[Any], specs: Sequence[TensorSpec]) -> Columns | None:
    """Return instances as columns; None if they differ, or are to be converted one by one."""
    if len(specs) == 1 and set(map(type, instances)) in ({list}, {str}):
        named: list[tuple[str, list[Any]]] = [(specs[0].name, [*instances])]
    else:
        names = tuple(instances[0]) if isinstance(instances[0], dict) else ()
        if not names or not all([isinstance(row, dict) and tuple(row) == names for row in instances]):
            return None
        named = [(name, [row[name] for row in instances]) for name in names]
    expected = matched(dict(named), specs)
    arrays: dict[str, Array | Images] = {}
    for name, values in [column for column in named if column[0] in expected] or named:
        array = _column(values, expected[name]) if name in expected else None
        if array is None:
            return None
        arrays[name] = array
    return Columns(arrays)


def _column(values: list[Any], spec: TensorSpec) -> Array | Images | None:
    """Return the values of an input as `to_input` converts each, stacked; None if they are to be converted so."""
    if spec.dtype == "str" and set(map(type, values)) == {str}:
        shape = (1,) if spec.record_shape is None else filled((), spec.record_shape)
        return np.array(values, object).reshape(len(values), *shape)
    if not isinstance(values[0], list):
        return _images(values, spec)
    if spec.dtype == "float32":
        packed = pack_floats(values)
        return None if packed is None else np.frombuffer(packed[0], "<f4").reshape(packed[1])
    # A list of true and false alone is a tensor of them, but among numbers NumPy makes numbers of them.
    if spec.dtype.startswith("int") and not any(map(_begins_with_bool, values)):
        # Lists of different lengths are no array. A number that the dtype does not hold fails its record alone.
        with suppress(ValueError):
            array = np.array(values)
            if array.dtype == np.int64 and array.size and array.ndim <= MAX_DIMENSIONS:
                return of_array(array, spec)
    return None


def _images(values: list[Any], spec: TensorSpec) -> Images | None:
    files = []
    with suppress(InvalidInput):
        for value in values:
            image = to_input("", value, spec)
            if not isinstance(image, Image):
                return None
            files.append(image.data)
        return Images(files)
    return None


def _begins_with_bool(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, bool)


def _record(index: int, instance: Any, specs: Sequence[TensorSpec], batched: bool) -> Encoded | InvalidInput:
    try:
        row = _named(index, instance, specs)
    except InvalidInput as error:
        return error
    expected = matched(row, specs)
    row = {name: row[name] for name in row if name in expected} or row
    if all(spec.dtype in _FLOATS for spec in expected.values()):
        lists = {name: [value] for name, value in row.items() if isinstance(value, list)} if batched else row
        known = bool(expected) and all(spec.dtype for spec in expected.values())
        if len(lists) == len(row) and (encoded := encode_floats(lists, exact=not known)) is not None:
            return Encoded(encoded)
    record: dict[str, Input] = {}
    for name, value in row.items():
        try:
            read = to_input(name, value, expected.get(name, _ANYTHING))
            record[name] = read[np.newaxis] if batched and isinstance(read, np.ndarray) else read
        except InvalidInput as error:
            if not expected and (told := differing(row, specs)):
                # Of an unknown input, no value is right.
                names = told.removesuffix(": ")
                return InvalidInput(f"instances[{index}]: {names}; expected the inputs of the model, and no others")
            # The error is that of an input, whose name is told already.
            return type(error)(f"instances[{index}].{name}{str(error).removeprefix(f'input {name!r}')}")
    try:
        return Encoded(encode(record))
    except InvalidInput as error:
        return type(error)(f"instances[{index}]: {error}")


def _named(index: int, instance: Any, specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Return an instance with the name of its input, which it may lack if the model has one."""
    if isinstance(instance, dict) and instance:
        return instance
    if isinstance(instance, _UNNAMED) and len(specs) == 1:
        return {specs[0].name: instance}
    of_model = f"; the model expects {', '.join(map(str, specs))}" if specs else ""
    kind = "empty ({})" if instance == {} else kind_of(instance)
    raise InvalidInput(f'instances[{index}] is {kind}; expected {{"name": value, …}}{of_model}')
