"""Conversion of the values that callers pass to `enqueue` into inputs."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.protocol.columns import STACKED_BYTES, Columns
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array, Image, Input, SparseTensor
from cluster_serving.protocol.slots import TensorSpec
from cluster_serving.protocol.values import base64_text, utf8
from cluster_serving.protocol.values.arrays import of_array
from cluster_serving.protocol.values.number_lists import exact
from cluster_serving.protocol.values.table import Kind, Refused, is_missing, kind_of

_IMAGE = re.compile(
    rb"\xff\xd8\xff|\x89PNG|GIF8|BM|RIFF....WEBP|II\*\x00|MM\x00\*|P[1-7]\s|\x00\x00\x00\x0cjP|\xff\x4f\xff\x51|#\?RADIANCE"
    rb"|v/1\x01|....ftyp(avif|heic|mif1)",
    re.DOTALL,
)
"""Beginnings of the image files that the job may decode."""

_NUMBERS = {Kind.NAN, Kind.INFINITE, Kind.BOOL, Kind.WHOLE, Kind.FRACTION}
"""Numbers that may stand beside a missing one, and be decimals."""

_ACCEPTED = (
    "an array of numpy, PyTorch, TensorFlow or JAX, a number, nested lists of numbers or of str, a path of an image "
    "file (str or Path), bytes of an image file, {'path': …}, {'b64': …}, or a sparse tensor [indices, values, shape] "
    "of numpy arrays"
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
            parsed = json.loads(value.removeprefix("\ufeff"))
        except ValueError:
            return {"t": value}
        if not isinstance(parsed, (dict, list)):
            return {"t": value}
        instances = parsed.get("instances") if isinstance(parsed, dict) else parsed
        if not (isinstance(instances, list) and instances):
            raise InvalidInput(
                f'the JSON text {value[:64]!r} has no instance; expected {{"instances": [{{"name": numbers, …}}]}}'
            )
        # A row may lack the name, if the model has one input.
        row = instances[0] if isinstance(instances[0], dict) else {"t": instances[0]}
        # A str in JSON is no path. Lists of different lengths are named by `to_inputs`.
        return {name: item if isinstance(item, (list, dict)) else np.asarray(item) for name, item in row.items()}
    return {"t": value}


def stacked(items: Sequence[object]) -> Columns | None:
    """Return items of `predict_many` as columns, if they are small arrays of numbers that are alike; else None."""
    rows = [item if type(item) is dict else {"t": item} for item in items]
    names = rows[0].keys()
    if any(row.keys() != names for row in rows) or set(map(type, names)) != {str}:
        return None
    arrays = {}
    for name in rows[0]:
        values: list[Any] = [row[name] for row in rows]
        if set(map(type, values)) != {np.ndarray} or len({(value.dtype, value.shape) for value in values}) > 1:
            return None
        if values[0].dtype.kind not in "biufc" or values[0].nbytes > STACKED_BYTES:
            return None
        arrays[name] = np.stack(values)
    return Columns(arrays)


def to_input(name: str, value: object) -> Input:
    """Convert one value.

    | value                                     | is sent as                                               |
    |-------------------------------------------|----------------------------------------------------------|
    | array of numpy, PyTorch, TensorFlow, JAX; | tensor of the same dtype; bfloat16, which numpy lacks,   |
    | anything with `__array__`                 | as float32                                               |
    | numpy or Python number                    | scalar of the same dtype (Python numbers: int64, float64)|
    | nested lists of numbers                   | tensor of int64, float64 or bool                         |
    | Decimal; numbers beside None or NA        | float64, with NaN for a missing number                   |
    | None, NA, NaT                             | missing value: NaN, or a missing text                    |
    | nested lists of str                       | string tensor                                            |
    | str                                       | the image file at that path, unchanged; no other file    |
    | Path, {"path": str}                       | the file at that path, unchanged                         |
    | bytes, {"b64": str}                       | an encoded image                                         |
    | PIL image                                 | an image, encoded as PNG                                 |
    | {"path": ndarray}                         | tensor of that dtype: pixels are not re-encoded          |
    | [indices, values, shape] of numpy arrays  | sparse tensor; indices are (ndim, nnz)                   |
    """
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        return value
    if isinstance(value, (SparseTensor, Image)):
        return value
    # Tested before numpy's values: elements of a numpy array of texts are both.
    if isinstance(value, str):
        return _image_of_text(name, value)
    if isinstance(value, PathLike):
        return _read_image(name, value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return Image(bytes(value))
    if isinstance(value, (bool, int, float, complex, Decimal)) or is_missing(value):
        return _to_array(name, value)
    if isinstance(value, Mapping):
        return _from_mapping(name, value)
    if _is_a(value, "PIL.Image", "Image"):
        return _to_png(name, value)
    if hasattr(value, "__array__"):
        return _to_array(name, value)
    if isinstance(value, Sequence):
        return _from_list(name, value)
    raise InvalidInput(f"input {name!r} is of type {type(value).__name__}; expected {_ACCEPTED}")


def _is_a(value: object, module: str, kind: str) -> bool:
    """Return True for an instance of a class of a package, which is not imported for the test."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, kind, ()))


def _to_png(name: str, image: Any) -> Image:
    file = io.BytesIO()
    try:
        image.save(file, "PNG")
    except Exception as error:
        raise InvalidInput(f"input {name!r} ({type(image).__name__}) cannot be encoded as PNG: {error}") from None
    return Image(file.getvalue())


def _to_array(name: str, value: Any) -> Array:
    """Return an array of numbers or of str.

    Raises:
        InvalidInput: If the value cannot be read as such an array.
    """
    try:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError("a mask cannot be sent; fill it with its method filled")
        array = np.asarray(_on_cpu(value) if _is_a(value, "torch", "Tensor") else value)
    except Exception as error:
        raise InvalidInput(f"input {name!r} ({_kind(value)}) cannot be read as an array: {error}") from None
    if array.dtype.kind in "OSU":
        return _texts(name, _kind(value), array)
    return array.astype("f4") if array.dtype.name == "bfloat16" else array


def _kind(value: Any) -> str:
    """Return the type of a value, and the shape and dtype that it has."""
    facts = [type(value).__name__]
    facts += [f"{fact} {getattr(value, fact)}" for fact in ("dtype", "shape") if hasattr(value, fact)]
    return ", ".join(facts)


def _on_cpu(tensor: Any) -> Any:
    """Return a PyTorch tensor that numpy can read."""
    torch = sys.modules["torch"]
    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).resolve_conj().resolve_neg()


def _texts(name: str, kind: str, array: Array) -> Array:
    """Return an array of str and None as objects, and one of numbers and None as floats with NaN.

    Bytes, which TensorFlow's arrays hold, are read as UTF-8.
    """
    objects = array.astype(object)
    for index, item in np.ndenumerate(objects):
        if isinstance(item, bytes) and (problem := utf8.fault(item)):
            raise InvalidInput(f"input {name!r} ({kind}): element {list(index)} is bytes, and not text: {problem}")
    flat = [_leaf(item) for item in objects.ravel()]
    kinds = set(map(kind_of, flat)) - {Kind.NULL}
    if kinds and kinds <= _NUMBERS:
        try:
            return of_array(objects, TensorSpec(name, "float64", None))
        except Refused as error:
            raise error.of(name) from None
    if Kind.NAN in kinds and kinds <= {Kind.NAN, Kind.TEXT}:
        # pandas has NaN for a missing text.
        flat = [item if isinstance(item, str) else None for item in flat]
    elif others := [item for item in flat if item is not None and not isinstance(item, str)]:
        types = ", ".join(sorted({type(item).__name__ for item in others}))
        mixed = " and str" if len(others) < len(flat) else ""
        raise InvalidInput(
            f"input {name!r} ({kind}) holds items of type {types}{mixed}; expected numbers of 64 bits at most, or str"
        )
    objects.reshape(-1)[:] = flat
    return objects


def _leaf(item: Any) -> Any:
    return None if is_missing(item) else item.decode() if isinstance(item, bytes) else item


def _image_of_text(name: str, text: str) -> Image:
    """Return the image file at a path that is a plain text; a text of somebody else must not give away another file."""
    image = _read_image(name, text, "; send a text as np.array(text)")
    if not _IMAGE.match(image.data):
        raise InvalidInput(
            f"input {name!r} is the text {text[:200]!r}, a file that is not an image; send a text as np.array(text), "
            "and a file in another format, or an encrypted one, as Path(text)"
        )
    return image


def _read_image(name: str, path: str | PathLike[str], remedy: str = "") -> Image:
    try:
        return Image(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"input {name!r}: cannot read the image file {str(path)[:200]!r}: {reason}{remedy}"
        ) from None


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
            return Image(base64_text.decode(text))
        except ValueError as error:
            raise InvalidInput(f"input {name!r}: 'b64' is not base64 text: {error}") from None
    raise InvalidInput(f"input {name!r} is a dict with the keys {list(value)}; expected 'path' or 'b64'")


def _from_list(name: str, value: Sequence[Any]) -> Input:
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
    if len(value) and hasattr(value[0], "__array__") and not isinstance(value[0], np.generic):
        value = [_to_array(f"{name}[{index}]", item) for index, item in enumerate(value)]
    try:
        array = exact(name, value)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"input {name!r} (list of {len(value)}) is not a tensor: {error}") from None
    if not array.size:
        raise InvalidInput(f"input {name!r} is an empty list, which has no dtype; send a numpy array")
    if array.dtype.kind not in "OSU":
        return array
    # numpy turns numbers among texts into texts.
    return _texts(name, f"list of shape {list(array.shape)}", np.array(value, object))
