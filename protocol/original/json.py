"""JSON requests: whole HTTP bodies that the original's front end puts into the stream unread (`serde` is `stream`).

    {"instances": [{"x": [[1, 2], [3, 4]], "n": 5, "img": "<base64>", "words": ["a", "b"],
                    "sp": {"shape": [100, 10], "indices": [[1, 1], [2, 2]], "data": [0.2, 0.5]}}]}

Only the first instance is read, since that front end sends an entry per instance.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, MAX_INPUTS, Array, Image, Input, SparseTensor
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.slots import TensorSpec, filled
from cluster_serving.protocol.values import base64_text
from cluster_serving.protocol.values.arrays import of_array, of_lists
from cluster_serving.protocol.values.lists import NUMBERS, first_parts, irregularity, leaf_types, shown
from cluster_serving.protocol.values.number_lists import float32_if_exact, is_whole, whole_numbers
from cluster_serving.protocol.values.table import Refused, target_of

_LIMITS = ((b",", 2, 1 << 22, "values"), (b"[{", 2, 1 << 20, "lists"), (b":", 5, 1 << 16, "names"))
"""Limits of a body: characters that cost far more to parse than others, the bytes that JSON has at least for each such
character (as in `1,`, `[]` and `"":1,`), the most such characters, and what they stand for."""

_EXPECTED = 'expected {"instances": [{"name": value, …}]}'
_SPARSE = ("shape", "data", "indices")
_PATH = re.compile(r"[/\\]|\.(png|jpe?g|gif|bmp|webp|tiff?)$", re.IGNORECASE)
_LEAST_OF_IMAGES = 2
"""Dimensions of an image at least."""


def decode_request(data: bytes) -> dict[str, Input]:
    """Return the inputs of the first instance of a request body (UTF-8), in the order sent; see `to_input`."""
    check_size(data)
    try:
        body = json.loads(data)
    except RecursionError:
        raise InvalidInput(
            f"the JSON text is nested too deeply; at most {MAX_DIMENSIONS} dimensions are taken"
        ) from None
    except ValueError as error:
        raise InvalidInput(f"field 'data' ({len(data)} bytes, starts {data[:16]!r}) is not JSON: {error}") from None
    instances = body.get("instances") if isinstance(body, dict) else None
    if not isinstance(instances, list) or not instances:
        raise InvalidInput(f"the JSON text has no list 'instances' with an instance in it; {_EXPECTED}")
    instance = instances[0]
    if not isinstance(instance, dict) or not instance:
        raise InvalidInput(f"the first instance is {shown(instance)}; {_EXPECTED}")
    if len(instance) > MAX_INPUTS:
        raise InvalidInput(f"the first instance has {len(instance)} inputs; at most {MAX_INPUTS} are taken")
    return {name: to_input(name, value) for name, value in instance.items()}


def check_size(data: bytes) -> None:
    """Refuse JSON with too many values, lists or names, before it is parsed."""
    for marks, least, most, what in _LIMITS:
        # Most texts are too short to exceed a limit, and counting takes as long as parsing.
        if len(data) > least * most and sum(data.count(mark) for mark in marks) > most:
            raise RequestTooLarge(
                f"the JSON text ({len(data)} bytes) holds more than {most} {what}; send it in parts, or in binary form"
            )


def to_input(name: str, value: object, expected: TensorSpec | None = None) -> Input:
    """Convert one value of an instance.

    | JSON                             | becomes                                                |
    |----------------------------------|--------------------------------------------------------|
    | number                           | float32 tensor of shape (1,)                           |
    | nested lists of numbers          | float32 tensor                                         |
    | text                             | image (base64), or a string tensor if it holds a `|`   |
    | nested lists of texts            | string tensor                                          |
    | object of shape, data, indices   | sparse tensor                                          |
    | object of b64                    | image (base64)                                         |

    If the model's input is known (`expected`), values become its dtype by the table of conversions (`values.table`),
    or are refused, and a single value has as many dimensions as `expected`. Without a dtype, whole numbers that float32
    cannot hold stay integers.

    The indices of a sparse tensor have a row per dimension or a row per value. The original Python client sends the
    former, the HTTP example of the original's guides the latter.

    Raises:
        InvalidInput: If the value is none of these; the message names the input.
    """
    if isinstance(value, list):
        return _tensor(name, value, expected)
    if isinstance(value, Mapping):
        if set(value) != {"b64"}:
            return _sparse(name, value, expected)
        if not isinstance(value["b64"], str):
            raise InvalidInput(f"input {name!r}: 'b64' is {shown(value['b64'])}; expected the base64 text of an image")
        return _image(name, value["b64"])
    if isinstance(value, str) and (expected is None or expected.dtype != "str"):
        return _text(name, value, expected)
    shape = None if expected is None else expected.record_shape
    if value is None and (shape not in ((), (1,)) or not (expected and expected.dtype)):
        raise InvalidInput(f"input {name!r} holds null; expected numbers, texts or lists of them")
    array = _tensor(name, [value], expected, alone=True)
    return array if shape is None else array.reshape(filled((), shape))


def _text(name: str, text: str, expected: TensorSpec | None) -> Input:
    shape = None if expected is None else expected.record_shape
    if expected is not None and target_of(expected) is not None and len(shape or ()) < _LEAST_OF_IMAGES:
        try:
            array = of_array(np.array(text, object), expected, typed=False)
            return array.reshape(1) if shape is None else array.reshape(filled((), shape))
        except Refused as error:
            if shape is not None:
                raise InvalidInput(f"{error.of(name)}; the model expects {expected}") from None
    try:
        return original_arrow.decode_text(name, text)
    except InvalidInput:
        if expected is None:
            raise
        if not expected.dtype:
            # A text that is no image and has no mark of a tensor can only be a string.
            return np.array([text], object)
        reason = ", which is not an image in base64"
        if _PATH.search(text):
            reason = ", as of a file: send the content of the file in base64"
        raise InvalidInput(f"input {name!r} is the text {text[:32]!r}{reason}; the model expects {expected}") from None


def _image(name: str, text: str) -> Image:
    try:
        return Image(base64_text.decode(text))
    except ValueError as error:
        raise InvalidInput(f"input {name!r}: 'b64' is not base64 text: {error}") from None


def _tensor(name: str, value: list[object], expected: TensorSpec | None = None, alone: bool = False) -> Array:
    """Return lists as an array; `alone` tells that the list is ours, around a single value."""
    lengths, sample = first_parts(value)
    if sample == []:
        raise InvalidInput(f"input {name!r} holds an empty list; expected numbers or texts")
    if (depth := len(lengths)) > MAX_DIMENSIONS:
        raise InvalidInput(f"input {name!r} is nested {depth} lists deep; at most {MAX_DIMENSIONS} are taken")
    if expected is not None and target_of(expected) is not None:
        return _typed(name, value, expected, alone)
    if not isinstance(sample, (str, int, float)):
        raise InvalidInput(f"input {name!r} holds {shown(sample)}; expected numbers, texts or lists of them")
    if not isinstance(sample, str):
        return _numbers(name, value)
    with suppress(ValueError):
        array = np.array(value, object)
        if array.ndim == depth and all(isinstance(item, str) for item in array.flat):
            return array
    problem = irregularity(value, name, lambda leaf: isinstance(leaf, str), "a text")
    raise InvalidInput(f"input {name!r} is not a tensor: {problem}")


def _typed(name: str, value: list[object], expected: TensorSpec, alone: bool) -> Array:
    """Return values in the dtype of the model."""
    try:
        return of_lists(name, value, expected)
    except Refused as error:
        told = Refused(str(error), error.value, () if alone else error.index).of(name)
        raise InvalidInput(f"{told}; the model expects {expected}") from None
    except ValueError as error:
        raise InvalidInput(f"input {name!r} is not a tensor: {error}") from None


def _numbers(name: str, value: list[object]) -> Array:
    """Return numbers for an input of unknown dtype: as float32 if that holds them."""
    types = leaf_types(value)
    array = None
    if types <= NUMBERS:
        with suppress(ValueError):
            array = (np.array if float in types else whole_numbers)(value)
    # An array of integers with more than 64 bits is an array of objects.
    if array is None or array.dtype.kind not in "biuf":
        problem = irregularity(value, name, _is_number, "a number of at most 64 bits")
        problem = problem or "its whole numbers are beyond int64, and some are negative"
        raise InvalidInput(f"input {name!r} is not a tensor: {problem}")
    return float32_if_exact(array) if array.dtype.kind in "iu" else _float32(name, array)


def _is_number(leaf: object) -> bool:
    return isinstance(leaf, float) or is_whole(leaf)


def _float32(name: str, array: Array) -> Array:
    try:
        with np.errstate(over="raise"):
            return array.astype("f4")
    except FloatingPointError:
        raise InvalidInput(f"input {name!r} holds numbers too large for float32") from None


def _sparse(name: str, value: Mapping[str, object], expected: TensorSpec | None) -> SparseTensor:
    if set(value) != set(_SPARSE):
        raise InvalidInput(
            f"input {name!r} is an object with {list(value)[:8]}; expected {', '.join(_SPARSE)} of a sparse tensor, or "
            "b64 alone, of an image"
        )
    shape, indices = (_integers(f"{name}.{key}", value[key]) for key in ("shape", "indices"))
    place = f"{name}.data"
    listed = _list(place, value["data"])
    if expected is not None and target_of(expected) is not None:
        data = _typed(place, listed, expected, alone=False)
    else:
        data = _numbers(place, listed)
    if shape.ndim != 1 or data.ndim != 1 or indices.ndim != 2 or (shape < 0).any():
        raise InvalidInput(
            f"input {name!r} is sparse with a shape of {shape.ndim}, data of {data.ndim} and indices of {indices.ndim} "
            "dimensions; expected 1, 1 and 2, and no negative size"
        )
    for part, numbers in (("shape", shape), ("indices", indices)):
        if numbers.dtype.kind not in "iu":
            raise InvalidInput(f"input {name!r} is sparse and its {part!r} are not whole numbers")
    rows = _row_per_dimension(name, indices.astype("i8"), shape.astype("i8"), data.size)
    return SparseTensor(rows, data, tuple(int(size) for size in shape))


def _integers(name: str, value: object) -> Array:
    """Return whole numbers; lists that are none as another array."""
    try:
        return np.array(_list(name, value), None if value else "i8")
    except ValueError:
        raise _no_list(name, value) from None


def _list(name: str, value: object) -> list[object]:
    if isinstance(value, list) and leaf_types(value) <= NUMBERS:
        return value
    raise _no_list(name, value)


def _no_list(name: str, value: object) -> InvalidInput:
    return InvalidInput(f"{name!r} is {reprlib.repr(value)}; expected a list of numbers")


def _row_per_dimension(name: str, indices: Array, shape: Array, count: int) -> Array:
    """Return the indices as (ndim, nnz), from either of the two ways in which clients send them."""
    layouts = [rows for rows in (indices, indices.T) if rows.shape == (shape.size, count)]
    if not layouts:
        raise InvalidInput(
            f"input {name!r} is sparse with indices of shape {list(indices.shape)} for {count} values in {shape.size} "
            f"dimensions; expected {[shape.size, count]} or {[count, shape.size]}"
        )
    if len(layouts) == 1 or np.array_equal(indices, indices.T):
        return layouts[0]
    inside = [rows for rows in layouts if (rows >= 0).all() and (rows < shape[:, np.newaxis]).all()]
    if len(inside) != 1:
        raise InvalidInput(
            f"input {name!r} is sparse with as many values as dimensions, so its 'indices' can be read with a row per "
            "dimension or a row per value; add a value of 0, which makes it clear"
        )
    return inside[0]
