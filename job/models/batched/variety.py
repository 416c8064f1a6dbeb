"""Records of many kinds: a model may treat some values otherwise, or records that are alike in some way."""

import math
from collections.abc import Sequence

import numpy as np

from cluster_serving.job.models.batched.records import Record
from cluster_serving.protocol.inputs import Array

_LEVELS = 64
_ODD = 37
_BESIDE = 0.05
_SINGLY = 0.3
_EXACTLY = 4
"""One of so many records has bounds, and no numbers between."""


def varied(records: Sequence[Record], count: int, careful: bool) -> list[Record]:
    """Return so many records of many values, as a model may compute something else of a few of them.

    Args:
        records: Records that a model computes. Whole numbers are those of one of them.
        count: Number of records.
        careful: Numbers with a fraction stay between those of `records`. Otherwise some are around 0, or large.
    """
    generator = np.random.default_rng(0)
    inputs = []
    for at, first in enumerate(records[0]):
        if first.dtype.kind not in "fc" and first.dtype != np.uint8:
            inputs.append([records[index % len(records)][at] for index in range(count)])
            continue
        values = _spread(generator, [record[at] for record in records[:3]], (count, *first.shape))
        if not careful and first.dtype.kind in "fc":
            with np.errstate(over="ignore"):
                values[2::4] = 3 * generator.standard_normal(values[2::4].shape)
                values[3::4] = 1000 * generator.standard_normal(values[3::4].shape)
                # Codes of categories, say.
                values[6::8] = generator.integers(0, 16, values[6::8].shape)
        inputs.append(list(values))
    return [list(record) for record in zip(*inputs, strict=True)]


def bounded(record: Record, bounds: Sequence[Array], count: int) -> list[Record]:
    """Return so many records of numbers between those that a model compares something with, some of them beside these.

    Args:
        record: A record that the model computes; its whole numbers stay.
        bounds: Numbers in the model that it may compare columns with.
        count: Number of records.
    """
    generator = np.random.default_rng(0)
    inputs = []
    for first in record:
        if first.dtype.kind not in "fc":
            inputs.append([first] * count)
            continue
        limits = [_broadcast(array, first.shape) for array in bounds]
        arrays = np.array([limit for limit in limits if limit is not None] or [np.zeros(first.shape)])
        flat = np.unique(np.concatenate([array.reshape(-1) for array in bounds]).astype(np.float64))
        # Each array has a bound of one kind, or all numbers have bounds of their own.
        chosen = generator.integers(0, len(arrays), (2, count))
        one, other = arrays[chosen[0]], arrays[chosen[1]]
        singly = generator.random((count, *[1] * first.ndim)) < _SINGLY
        own = generator.integers(0, len(flat), (count, *first.shape))
        one, other = np.where(singly, flat[own], one), np.where(singly, flat[np.minimum(own + 1, len(flat) - 1)], other)
        with np.errstate(over="ignore", invalid="ignore"):
            values = one + generator.uniform(-_BESIDE, 1 + _BESIDE, one.shape) * (other - one)
            # The bounds themselves, in any column.
            values[_EXACTLY - 1 :: _EXACTLY] = flat[own[_EXACTLY - 1 :: _EXACTLY]]
            inputs.append([*np.asarray(values, first.dtype)])
    return [list(record) for record in zip(*inputs, strict=True)]


def _broadcast(array: Array, shape: tuple[int, ...]) -> Array | None:
    """Return numbers for all elements of a record; None if they have another shape."""
    while array.ndim > len(shape) and array.shape[0] == 1:
        array = array[0]
    try:
        return np.broadcast_to(array.astype(np.float64), shape)
    except ValueError:
        return None


def _spread(generator: np.random.Generator, arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return numbers at equal distances between the least and the largest, in any order."""
    if arrays[0].dtype == np.uint8:
        return generator.integers(0, 256, shape, np.uint8)
    least = min(float(_finite(array).min(initial=0)) for array in arrays)
    most = max(float(_finite(array).max(initial=1)) for array in arrays)
    steps = generator.permutation(math.prod(shape)).reshape(shape)
    return np.asarray(least + (most - least) * (steps + 0.5) / max(1, steps.size), arrays[0].dtype)


def kindred(records: Sequence[Record], count: int, careful: bool) -> list[list[Record]]:
    """Return groups of so many records, which are of one kind in each group: dark, bright, negative, sparse ...

    Args:
        records: Records that a model computes. Whole numbers stay between the least and the largest of them.
        count: Number of records of a group.
        careful: Numbers with a fraction stay between those of `records`, too.
    """
    free = not careful and any(array.dtype.kind in "fc" for array in records[0])
    groups = []
    for kind in _KINDS if free else _BETWEEN:
        generator = np.random.default_rng(0)
        arrays = []
        for at, first in enumerate(records[0]):
            if first.dtype == object or not first.size:
                arrays.append([first] * count)
                continue
            own = kind if first.dtype.kind in "fc" else _BETWEEN[_KINDS.index(kind) % len(_BETWEEN)]
            made = _of_kind(generator, own, [record[at] for record in records[:3]], count, free)
            arrays.append([*made])
        groups.append([list(record) for record in zip(*arrays, strict=True)])
    return groups


_BETWEEN = ("dark", "bright", "level", "sparse", "near")
_KINDS = (*_BETWEEN, "negative", "positive", "tiny", "huge")


def _of_kind(generator: np.random.Generator, kind: str, arrays: Sequence[Array], count: int, free: bool) -> Array:
    first = arrays[0]
    shape, is_float = (count, *first.shape), first.dtype.kind in "fc"
    least, most = _range(arrays)
    part = generator.uniform(0, 0.1, shape) * (most - least)
    # The same for two neighbours.
    places = np.arange(count).reshape(-1, *[1] * first.ndim) // 2
    made: Array
    if kind == "dark":
        made = least + part
    elif kind == "bright":
        made = most - part
    elif kind == "level":
        # All numbers of a record are equal.
        # The first few are far from each other, too.
        levels = places * _ODD % _LEVELS
        step = max(1, (most - least) // (_LEVELS - 1))
        made = np.broadcast_to(levels if free and is_float else least + levels * step % (most - least + 1), shape)
    elif kind == "sparse":
        made = np.full(shape, min(max(0.0, least), most))
        made.reshape(count, -1)[np.arange(count), generator.integers(0, first.size, count)] = most
    elif kind == "near":
        made = np.clip(_finite(first) + part / 10, least, most) if is_float else np.full(shape, first)
    elif kind == "tiny":
        smallest = np.where(places % 2, 1e-8, float(np.finfo(first.dtype).tiny) / 4)
        made = generator.standard_normal(shape) * smallest
    elif kind == "huge":
        made = generator.standard_normal(shape) * 1e6
    else:
        made = 3 * np.abs(generator.standard_normal(shape)) * (1 if kind == "positive" else -1)
    with np.errstate(over="ignore"):
        return np.asarray(made if is_float else np.rint(made), first.dtype)


def _range(arrays: Sequence[Array]) -> tuple[float, float]:
    if arrays[0].dtype == np.uint8:
        return 0.0, 255.0
    least = min(float(_finite(array).min()) for array in arrays)
    return least, max(least, *(float(_finite(array).max()) for array in arrays))


def _finite(array: Array) -> Array:
    """Return the numbers of a record, which a client may have sent, with 0 for NaN and infinite ones."""
    return np.where(np.isfinite(array.real), array.real, 0)
