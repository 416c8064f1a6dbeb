"""Numbers in nested lists, as JSON and Python have them: read exactly, or refused; and written with their digits."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

WHOLE = "a whole number of at most 64 bits, in digits"
"""Leaves that `is_whole` takes, in words."""

_EXACT = 1 << 53
"""Largest whole number up to which a float64 holds all; JSON parsers make floats of integers of more than 64 bits."""


def is_whole(leaf: object) -> bool:
    """Return True for an integer of 64 bits, or a float that surely is the whole number that was written."""
    if isinstance(leaf, float):
        return abs(leaf) <= _EXACT and leaf.is_integer()
    return isinstance(leaf, Integral) and -(1 << 63) <= int(leaf) < 1 << 64


def whole_numbers(values: list[Any]) -> Array:
    """Return whole numbers, some of which may be written as 1.0: as integers or bool, or objects if 64 bits do not do.

    Raises:
        ValueError: If the lists differ in length, or `is_whole` is False for a leaf.
    """
    array = np.array(values)
    if array.dtype.kind in "biu" or not array.size:
        return array
    # numpy would convert them to floating point, if some need 64 bits without a sign.
    array = np.array(values, object)
    if not all(map(is_whole, array.flat)):
        raise ValueError
    integers = np.array([int(leaf) for leaf in array.flat], object).reshape(array.shape)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= integers.min() and integers.max() <= np.iinfo(dtype).max:
            return integers.astype(dtype)
    return integers


def exact(name: str, values: Sequence[Any]) -> Array:
    """Return lists of numbers, and of anything else, as numpy reads them; but no whole number is changed.

    Raises:
        InvalidInput: If floating-point numbers beside a whole number would change it; the message has its place.
        ValueError: If the lists differ in length.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fc" or not (np.abs(array) >= _EXACT).any():
        return array
    leaves = np.array(values, object)
    if all(isinstance(leaf, Integral) for leaf in leaves.flat):
        integers = whole_numbers(leaves.tolist())
        if integers.dtype != object:
            return integers
    for index, leaf in np.ndenumerate(leaves):
        if isinstance(leaf, Integral) and int(array[index].real) != int(leaf):
            place = f"{name}{''.join(f'[{i}]' for i in index)}"
            raise InvalidInput(
                f"input {name!r}: {place} is {leaf}, which {array.dtype} does not hold, the type of all numbers with "
                "those beside it; send a numpy array of one dtype"
            )
    return array


def float32_if_exact(integers: Array) -> Array:
    """Return integers as float32, or unchanged if float32 does not hold all of them."""
    with np.errstate(invalid="ignore"):
        floats = integers.astype("f4")
        return floats if np.array_equal(floats.astype(integers.dtype), integers) else integers


def own_digits(array: Array) -> Any:
    """Return an array as `tolist` does, but floating-point numbers of less than 64 bits with their own digits: 0.1."""
    short = array.dtype.kind == "f" and array.dtype.itemsize < 8
    return (array.astype(str).astype(float) if short else array).tolist()
