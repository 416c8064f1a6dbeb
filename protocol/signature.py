"""Signatures: names, kinds, dtypes and shapes of a request's inputs. Requests of equal signature can be batched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, MAX_STRINGS, Array, Image, Images, Input, SparseTensor

DTYPES = frozenset(
    {"bool", "float16", "float32", "float64", "complex64", "complex128"}
    | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
)
"""Numeric dtypes that can be sent, by numpy name."""

LITTLE_ENDIAN = {name: np.dtype(name).newbyteorder("<") for name in DTYPES}
"""Numpy name → dtype as it is sent."""

NAMES = {dtype: name for name in DTYPES for dtype in (np.dtype(name).newbyteorder(">"), LITTLE_ENDIAN[name])}
"""Dtype in either byte order → numpy name."""

SPARSE_TYPE = pa.struct([("indices", pa.binary()), ("values", pa.binary())])
"""Arrow type of a sparse tensor."""

_TYPES = {"tensor": pa.binary(), "image": pa.binary(), "string": pa.list_(pa.utf8()), "sparse": SPARSE_TYPE}
_IMAGES = pa.list_(pa.binary())


class Column(NamedTuple):
    """Description of one input or output; the columns of all inputs are the signature of a request.

    Attributes:
        name: Name of the input or output.
        kind: `tensor`, `string`, `image` or `sparse`.
        dtype: numpy name for `tensor` and `sparse`, else "".
        shape: Dense shape; empty for an image, and the number of several.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]


Signature = tuple[Column, ...]
"""Requests of equal signature can be stacked into one batch."""


def describe(name: str, value: Input) -> Column:
    """Return the column of a value; refuse a dtype that cannot be sent."""
    if isinstance(value, Image):
        return Column(name, "image", "", ())
    if isinstance(value, Images):
        return Column(name, "image", "", (len(value),))
    if isinstance(value, SparseTensor):
        return Column(name, "sparse", dtype_name(name, value.values), tuple(value.shape))
    if value.dtype.kind in "OU":
        return Column(name, "string", "", value.shape)
    return Column(name, "tensor", dtype_name(name, value), value.shape)


def signature(tensors: Mapping[str, Input]) -> Signature:
    """Return the signature of a request's inputs, in their order."""
    return tuple(describe(name, value) for name, value in tensors.items())


@lru_cache(4096)
def any_size(signature: Signature) -> Signature:
    """Return a signature that requests of the same names, kinds, dtypes and numbers of dimensions share."""
    return tuple(column._replace(shape=(0,) * len(column.shape)) for column in signature)


def field_of(column: Column) -> pa.Field:
    """Return the Arrow field of a column."""
    metadata = {"kind": column.kind}
    if column.dtype:
        metadata["dtype"] = column.dtype
    if column.kind != "image" or column.shape:
        metadata["shape"] = ",".join(map(str, column.shape))
    try:
        return pa.field(column.name, _type(column.kind, column.shape), nullable=False, metadata=metadata)
    except UnicodeEncodeError:
        raise InvalidInput(f"an array has the name {column.name[:64]!a}, which is not Unicode text") from None


def _type(kind: str, shape: object) -> pa.DataType:
    return _IMAGES if kind == "image" and shape else _TYPES[kind]


def column_of(field: pa.Field) -> Column:
    """Read an Arrow field that `field_of` made, and refuse any other, or one of more than `MAX_STRINGS` strings."""
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind, dtype, shape = metadata.get("kind", ""), metadata.get("dtype", ""), metadata.get("shape", "")
    if kind not in _TYPES or field.type != _type(kind, shape):
        raise InvalidInput(
            f"input {field.name!r} is an Arrow {field.type} of kind {kind!r}; expected kind tensor or image (binary; "
            f"list<binary> for several images), string (list<utf8>) or sparse (struct of binary indices and values)"
        )
    if kind in ("tensor", "sparse") and dtype not in DTYPES:
        raise InvalidInput(f"input {field.name!r} has dtype {dtype!r}; expected one of {', '.join(sorted(DTYPES))}")
    try:
        dimensions = tuple(int(part) for part in shape.split(",")) if shape else ()
    except ValueError:
        raise InvalidInput(f"input {field.name!r} has shape {shape!r}; expected numbers and commas") from None
    if kind in ("string", "image") and math.prod(dimensions) > MAX_STRINGS:
        raise RequestTooLarge(f"input {field.name!r} has shape {shape}; at most {MAX_STRINGS} {kind}s are taken")
    if len(dimensions) > MAX_DIMENSIONS or any(d < 0 for d in dimensions):
        raise InvalidInput(
            f"input {field.name!r} has shape {shape!r}; expected up to {MAX_DIMENSIONS} numbers, none negative"
        )
    return Column(field.name, kind, dtype if kind in ("tensor", "sparse") else "", dimensions)


def dtype_name(name: str, array: Array) -> str:
    """Return the numpy name of an array's dtype; refuse one that cannot be sent."""
    # A look-up, because numpy composes the name at every access.
    dtype = NAMES.get(array.dtype)
    if dtype is None:
        raise InvalidInput(
            f"{name!r} has dtype {array.dtype}, which cannot be sent; expected one of {', '.join(sorted(DTYPES))}"
        )
    return dtype
