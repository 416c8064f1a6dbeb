"""Records to try a model with: random ones of its shapes, or variants of a real one."""

import math
from collections.abc import Sequence

import numpy as np

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.batched.axes import Reading
from cluster_serving.protocol.inputs import Array

Record = list[Array]

SMALL, ZEROS, WIDE, SIGNED, COUNTS = KINDS = ("small", "zeros", "wide", "signed", "counts")
"""Kinds of records: numbers from 0 to 1; zeros and empty texts; up to 255, whole ones up to 9; around 0; above 0.

Models that take numbers often fail on negative ones, which a signed record may have. Numbers of something, such as
lengths of sequences, may have to be above 0.
"""

LARGEST = 4096
"""Largest guess of a free size."""

# Never 1, 2 or 3, which are the sizes of the batches.
_SMALLEST = 4
_SIZES = (8, 24, 64, 224, 1024, LARGEST)
_IMAGE_SIZES = (64, 96, 224, 24, 640)
_MOST_ELEMENTS = 2e6

_TEXTS = {
    SMALL: ("a", "b c", "d", "e f g"),
    ZEROS: ("", "", "", ""),
    WIDE: ("1", "2", "3", "10"),
    SIGNED: ("-1", "0.5", "x", "-20"),
    COUNTS: ("a", "b c", "d", "e f g"),
}


def sizes(reading: Reading, weights: Sequence[int] = ()) -> list[int | None]:
    """Return guesses of the sizes that the model leaves open, the smallest first; [None] if it fixes all sizes.

    Args:
        reading: How the inputs are read.
        weights: Sizes of the weights: an open size may have to be one of them.
    """
    shapes = [place.record for place in reading.places]
    if not any(None in shape for shape in shapes):
        return [None]
    images = any(len(shape) == 3 and shape.count(None) == 2 for shape in shapes)
    return [
        size
        for size in (_IMAGE_SIZES if images else sorted({*_SIZES, *(size for size in weights if size >= _SMALLEST)}))
        if all(math.prod(known or size for known in shape) <= _MOST_ELEMENTS for shape in shapes)
    ] or [_SIZES[0]]


def generated(
    reading: Reading, specs: Sequence[TensorSpec], size: int | None, kind: str, whole: Record | None = None
) -> list[Record]:
    """Return four records of one kind, which differ in each input that has a batch.

    The numbers of the last one are larger: it changes what a model computes from all records at once.

    Args:
        reading: How the inputs are read.
        specs: Inputs of the model.
        size: Stands for the sizes that the records leave free.
        kind: One of `KINDS`.
        whole: Has the tensors without a batch. By default they are ones: parameters, such as a scale or a number of
            results, are often refused if they are 0, and take much memory if they are large.
    """
    generator = np.random.default_rng(0)
    inputs = []
    for at, (place, spec) in enumerate(zip(reading.places, specs, strict=True)):
        shape = [(size or 1) if known is None else known for known in place.record]
        if place.axis is not None:
            values = [_values(generator, spec, shape, kind, index) for index in range(4)]
            inputs.append([*values[:3], _louder(values[3], kind)])
        elif reading.is_batched:
            inputs.append([_ones(spec, shape) if whole is None else whole[at]] * 4)
        else:
            inputs.append([_values(generator, spec, shape, kind, 0)] * 4)
    return [list(record) for record in zip(*inputs, strict=True)]


def variants(reading: Reading, records: Sequence[Record]) -> list[Record]:
    """Return four records like real ones, which differ if they can; the last one has larger numbers.

    A model may refuse values that no client sends, such as an index beyond its table. So those of whole numbers and
    texts are values of the first record.
    """
    generator = np.random.default_rng(0)
    first = records[0]
    found = [first, *(record for record in records[1:] if not _equal(first, record))][:3]
    found += [[_like(generator, array) for array in first] for _ in range(4 - len(found))]
    found[3] = [_louder(array, SMALL) for array in found[3]]
    # Tensors without the batch are those of the first record.
    kept = [place.axis is None for place in reading.places]
    return [[own if keep else array for keep, own, array in zip(kept, first, record, strict=True)] for record in found]


def has_indices(array: Array) -> bool:
    """Return True for an array of whole numbers that may be indices into a table, unlike those of images."""
    return array.dtype.kind in "iu" and array.dtype != np.uint8


def _values(generator: np.random.Generator, spec: TensorSpec, shape: Sequence[int], kind: str, index: int) -> Array:
    dtype = spec.numpy_dtype or np.dtype(np.float32)
    values: Array
    if spec.dtype == "str":
        values = np.full(shape, _TEXTS[kind][index], object)
    elif kind == ZEROS:
        values = np.zeros(shape, dtype)
    elif dtype.kind in "fc":
        most = 255 if kind == WIDE else 1
        drawn = generator.standard_normal(shape) if kind == SIGNED else generator.uniform(0, most, shape)
        drawn += (1 + index) * (kind == COUNTS)
        values = np.asarray(drawn, dtype)
    elif dtype == np.uint8:
        values = generator.integers(0, 26, shape, dtype)
    elif kind == COUNTS and dtype.kind != "b":
        values = np.full(shape, 1 + index, dtype)
    else:
        # Whole numbers may be indices into a table, which may have two rows.
        most = 10 if kind == WIDE and dtype.kind != "b" else 2
        values = np.asarray(generator.integers(0, most, shape), dtype)
        if values.size:
            values.reshape(-1)[0] = (index + (kind == WIDE)) % most
    return values


def _ones(spec: TensorSpec, shape: Sequence[int]) -> Array:
    return np.full(shape, "a", object) if spec.dtype == "str" else np.ones(shape, spec.dtype or "float32")


def _louder(array: Array, kind: str) -> Array:
    # Indices stay small where they are.
    if array.dtype.kind in "fc" or array.dtype == np.uint8 or (kind == WIDE and array.dtype.kind in "iu"):
        with np.errstate(over="ignore"):
            return np.asarray(array * array.dtype.type(10), array.dtype)
    return array


def _like(generator: np.random.Generator, array: Array) -> Array:
    """Return an array of values of another one; other statistics than a shuffled one has tell more about a model."""
    drawn = generator.choice(array.reshape(-1), array.shape) if array.size else array
    return np.asarray(drawn * generator.uniform(0.5, 1.5), array.dtype) if array.dtype.kind in "fc" else drawn


def _equal(one: Record, other: Record) -> bool:
    return all(np.array_equal(own, array) for own, array in zip(one, other, strict=True))
