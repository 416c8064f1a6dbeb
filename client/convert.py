"""Conversion of the values that callers pass to `enqueue` into inputs."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import numpy as np

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Image, Input, SparseTensor

_ACCEPTED = (
    "a numpy array, a number, a path of an image file (str or Path), bytes of an image file, {'path': …}, {'b64': …}, "
    "a list of str, or a sparse tensor [indices, values, shape] of numpy arrays"
)


def to_inputs(values: Mapping[str, object]) -> dict[str, Input]:
    """Convert the keyword arguments of `enqueue`.

    Raises:
        InvalidInput: If a value has none of the accepted types, or an image file cannot be read; the message names it.
    """
    for name in values:
        if not isinstance(name, str):
            raise InvalidInput(f"an input is called {name!r} ({type(name).__name__}); expected a str")
    return {name: to_input(name, value) for name, value in values.items()}


def inputs_of(value: object) -> Mapping[str, object]:
    """Return the inputs of `predict`, which reads its argument as the original does."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return {"t": value}
        try:
            return {name: np.asarray(item) for name, item in parsed["instances"][0].items()}
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidInput(
                f'cannot read the JSON text ({error!r}); expected {{"instances": [{{"name": numbers, …}}]}}'
            ) from None
    return {"t": value}


def to_input(name: str, value: object) -> Input:
    """Convert one value.

    | value                                     | is sent as                                              |
    |-------------------------------------------|---------------------------------------------------------|
    | numpy array, numpy or Python number       | tensor of the same dtype (Python numbers: int64, float64)|
    | str, Path, {"path": str}                  | the image file at that path, unchanged                  |
    | bytes, {"b64": str}                       | an encoded image                                        |
    | {"path": ndarray}                         | tensor of that dtype: pixels are not re-encoded         |
    | list of str                               | string tensor                                           |
    | [indices, values, shape] of numpy arrays  | sparse tensor; indices are (ndim, nnz)                  |
    """
    if isinstance(value, (np.ndarray, SparseTensor, Image)):
        return value
    # Tested before numpy's values: elements of a numpy array of texts are both.
    if isinstance(value, (str, PathLike)):
        return _read_image(name, value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Image(bytes(value))
    if isinstance(value, (bool, int, float, np.generic)):
        return np.asarray(value)
    if isinstance(value, Mapping):
        return _from_mapping(name, value)
    if isinstance(value, (list, tuple)):
        return _from_list(name, value)
    raise InvalidInput(f"input {name!r} is of type {type(value).__name__}; expected {_ACCEPTED}")


def _read_image(name: str, path: str | PathLike[str]) -> Image:
    try:
        return Image(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"input {name!r}: cannot read the image file {str(path)[:200]!r}: {error}") from None


def _from_mapping(name: str, value: Mapping[object, object]) -> Input:
    if "path" in value:
        path = value["path"]
        if isinstance(path, np.ndarray):
            return path
        if isinstance(path, (str, PathLike)):
            return _read_image(name, path)
        raise InvalidInput(f"input {name!r}: 'path' is of type {type(path).__name__}; expected str, Path or ndarray")
    if "b64" in value:
        text = value["b64"]
        if not isinstance(text, (str, bytes)):
            raise InvalidInput(f"input {name!r}: 'b64' is of type {type(text).__name__}; expected base64 text")
        try:
            return Image(base64.b64decode(text, validate=True))
        except ValueError as error:
            raise InvalidInput(f"input {name!r}: 'b64' is not base64 text: {error}") from None
    raise InvalidInput(f"input {name!r} is a dict with the keys {list(value)}; expected 'path' or 'b64'")


def _from_list(name: str, value: list[object] | tuple[object, ...]) -> Input:
    if not value:
        raise InvalidInput(f"input {name!r} is an empty list; expected {_ACCEPTED}")
    if all(isinstance(item, str) for item in value):
        return np.array(value, object)
    if len(value) == 3 and all(isinstance(item, np.ndarray) for item in value):
        indices, values, shape = (np.asarray(item) for item in value)
        if indices.ndim != 2 or values.ndim != 1 or shape.ndim != 1 or indices.shape != (shape.size, values.size):
            raise InvalidInput(
                f"input {name!r} is a sparse tensor with indices {indices.shape}, values {values.shape} and shape "
                f"{shape.tolist()}; expected indices (ndim, nnz), values (nnz,) and a shape of ndim numbers"
            )
        if indices.dtype.kind not in "iu" or shape.dtype.kind not in "iu":
            raise InvalidInput(
                f"input {name!r} is a sparse tensor with {indices.dtype} indices and {shape.dtype} shape; "
                "expected integers"
            )
        return SparseTensor(indices.astype("i8"), values, tuple(int(d) for d in shape))
    kinds = sorted({type(item).__name__ for item in value})
    raise InvalidInput(f"input {name!r} is a list of {', '.join(kinds)}; expected {_ACCEPTED}")
