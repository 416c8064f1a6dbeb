"""Arrays and nested lists as inputs of a known dtype, by the table of conversions; see `table`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec
from cluster_serving.protocol.values.lists import NUMBERS, irregularity, leaf_types
from cluster_serving.protocol.values.number_lists import EXACT, whole_numbers
from cluster_serving.protocol.values.table import Refused, Target, converted, holds, target_of, unrounded

_FLOAT_LEAVES = NUMBERS | {type(None)}
_LARGE = 8
"""Bytes of a dtype that has whole numbers beyond 2^53."""


def of_array(array: Array, spec: TensorSpec, typed: bool = True) -> Array:
    """Return an array of any dtype as one of the dtype of an input, which is known; texts are an array of objects.

    Whole numbers beyond 2^53 may change if the array is not `typed`, but has values of JSON.

    Raises:
        Refused: If a value has no place in the input; the error names the first one.
    """
    target = target_of(spec)
    if array.dtype.kind in "biufc" and target not in (Target.TEXT, Target.CODES):
        return _cast(array, np.dtype(spec.dtype))
    if target is Target.TEXT and array.dtype == object and all(type(item) is str for item in array.flat):
        return array
    found = np.empty(array.shape, object if target in (Target.TEXT, Target.CODES) else spec.dtype)
    objects = array.astype(object)
    for index in np.ndindex(array.shape):
        found[index] = _converted(objects[index], spec, typed, index)
    return found


def of_lists(name: str, values: list[Any], spec: TensorSpec, typed: bool = False) -> Array:
    """Return nested lists, which hold something, as an array of the dtype of an input, which is known; see `of_array`.

    Raises:
        Refused: If a value has no place in the input.
        ValueError: If lists differ in length; the message has the place.
    """
    types = leaf_types(values)
    target = target_of(spec)
    with suppress(ValueError, OverflowError, Refused):
        if target is Target.FLOAT and types <= _FLOAT_LEAVES and not (typed and int in types):
            return _cast(np.array(values, np.float64), np.dtype(spec.dtype))
        if target is Target.WHOLE and types <= NUMBERS:
            # Objects where 64 bits do not do.
            whole = whole_numbers(values)
            if whole.dtype != object:
                return _cast(whole, np.dtype(spec.dtype))
    expected = target.value if target is not None else "a value"
    if problem := irregularity(values, name, lambda leaf: not isinstance(leaf, list), expected):
        raise ValueError(problem)
    return of_array(_objects(values), spec, typed)


def _objects(values: Sequence[Any]) -> Array:
    """Return lists of equal lengths as an array of their leaves, which may be objects with a length."""
    shape, leaves = [len(values)], list(values)
    while leaves and isinstance(leaves[0], list):
        shape.append(len(leaves[0]))
        leaves = [leaf for part in leaves for leaf in part]
    flat = np.empty(len(leaves), object)
    flat[:] = leaves
    return flat.reshape(shape)


def _converted(value: object, spec: TensorSpec, typed: bool, index: Sequence[int]) -> Any:
    try:
        return converted(value, spec, typed)
    except Refused as error:
        raise Refused(str(error), value, index) from None


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers as another dtype: whole numbers unchanged, or refused beyond 2^53; floats rounded among floats."""
    if array.dtype == dtype:
        return array
    if not array.size:
        return np.empty(array.shape, dtype)
    if dtype.kind == "f" and array.dtype.kind in "iu":
        _refuse_rounded(array, dtype)
    if np.can_cast(array.dtype, dtype, "safe"):
        return array.astype(dtype)
    if dtype.kind in "biu" and array.dtype.kind in "biuf":
        return _whole(array, dtype)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise _refused(array, np.ones(array.shape, bool), dtype.name)
    try:
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except FloatingPointError:
        most = np.finfo(dtype).max
        raise _refused(
            array, np.isfinite(array) & (np.abs(array) > most), f"a number of at most {most:.3g} ({dtype})"
        ) from None


def within(array: Array, dtype: np.dtype[Any]) -> bool:
    """Return True if a dtype can hold every number; floating-point numbers may lose digits among themselves."""
    if not array.size:
        return True
    if dtype.kind == "f":
        return not bool((np.abs(array) > np.finfo(dtype).max).any())
    low, high = _limits(dtype)
    try:
        # Compare Python numbers, because the limits of int64 are not exact in floating point.
        inside = low <= int(array.min()) and int(array.max()) <= high
    except (ValueError, OverflowError):  # not a number, or infinity
        return False
    return inside and (array.dtype.kind != "f" or bool((np.trunc(array) == array).all()))


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))


def _whole(array: Array, dtype: np.dtype[Any]) -> Array:
    if within(array, dtype):
        return array.astype(dtype)
    low, high = _limits(dtype)
    bad = [not (low <= number <= high and number % 1 == 0) for number in array.ravel().tolist()]
    expected = Target.BOOL.value if dtype.kind == "b" else f"a whole number from {low} to {high} ({dtype})"
    raise _refused(array, np.reshape(bad, array.shape), expected)


def _refuse_rounded(array: Array, dtype: np.dtype[Any]) -> None:
    """Refuse whole numbers beyond 2^53 that would change."""
    if array.dtype.itemsize < _LARGE:
        return
    beyond = np.asarray((array > EXACT) | (array < -EXACT))
    if beyond.any():
        changed = beyond.copy()
        changed[beyond] = [not holds(dtype, number) for number in array[beyond].tolist()]
        if changed.any():
            raise _refused(array, changed, unrounded(dtype))


def _refused(array: Array, bad: Array, expected: str) -> Refused:
    index = np.unravel_index(int(bad.argmax()), array.shape) if array.ndim else ()
    at = tuple(map(int, index))
    return Refused(expected, array[at].item(), at)
