"""Sparse tensors: they are made dense, once the places of their values are checked."""

import math
from collections.abc import Callable

import numpy as np

from cluster_serving.job.input_kind import InputKind
from cluster_serving.job.input_rule import InputRule
from cluster_serving.job.models.base import Layout
from cluster_serving.job.options import ImageOptions
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, Array, SparseTensor
from cluster_serving.protocol.slots import fits, type_text

MAX_DENSE_ELEMENTS = 1 << 24
"""Most elements of a sparse tensor that is made dense; a request of a few bytes may ask for 64 MiB of float32."""


class SparseTensors(InputKind):
    """Sparse tensors, which become dense arrays."""

    type = SparseTensor

    def reader(
        self, rule: InputRule, layout: Layout, image: ImageOptions, keeps_bytes: bool
    ) -> Callable[[str, SparseTensor], Array]:
        """See `InputKind.reader`; it raises `RequestTooLarge` as `indices_of` does."""

        def read(name: str, value: SparseTensor) -> Array:
            shape = tuple(value.shape)
            if not fits(shape, rule.shape):
                raise rule.refused(name, value.values, shape, "sparse ")
            indices = indices_of(name, value)
            values = rule.converted(name, value.values)
            dense = np.zeros(shape, values.dtype)
            dense[tuple(indices)] = values
            return dense

        return read


def indices_of(name: str, value: SparseTensor) -> Array:
    """Return the indices of the values of a sparse tensor, a row per dimension.

    Raises:
        InvalidInput: If shape, indices and values do not fit together; the message names the input.
        RequestTooLarge: If the dense tensor would have more than `MAX_DENSE_ELEMENTS`.
    """
    shape = tuple(value.shape)
    if not 1 <= len(shape) <= MAX_DIMENSIONS or any(size < 0 for size in shape):
        raise InvalidInput(
            f"input {name!r} is sparse and of shape {list(shape)}; expected 1 to {MAX_DIMENSIONS} sizes of at least 0"
        )
    if math.prod(max(size, 1) for size in shape) > MAX_DENSE_ELEMENTS:
        raise RequestTooLarge(
            f"input {name!r} is sparse and of shape {list(shape)}; at most {MAX_DENSE_ELEMENTS} elements are taken"
        )
    indices, values = value.indices, value.values
    layouts = [rows for rows in (indices, indices.T) if rows.shape == (len(shape), values.size)]
    if values.ndim != 1 or not layouts or indices.dtype.kind not in "iu":
        raise InvalidInput(
            f"input {name!r} is sparse with indices {type_text(indices.dtype.name, indices.shape)} for "
            f"{values.size} values in {len(shape)} dimensions; expected int64[{len(shape)}, {values.size}]"
        )
    # The guides of the original show a row of indices per value, its code takes a row per dimension: both fit here.
    inside = [rows for rows in layouts if (rows >= 0).all() and (rows < np.array(shape)[:, np.newaxis]).all()]
    if not inside:
        raise InvalidInput(f"input {name!r} is sparse with an index outside its shape {list(shape)}")
    indices = inside[0]
    taken = np.zeros(shape, bool)
    taken[tuple(indices)] = True
    if np.count_nonzero(taken) < values.size:
        places, counts = np.unique(indices, axis=1, return_counts=True)
        raise InvalidInput(
            f"input {name!r} is sparse with several values at index {places[:, counts > 1][:, 0].tolist()}; "
            "expected one value per index"
        )
    return indices
