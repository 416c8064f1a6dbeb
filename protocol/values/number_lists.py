"""Numbers in nested lists, as JSON and Python have them: read exactly, or refused; and written with their digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

_INTEGERS = (int, np.integer)
LEAST, MOST = -(1 << 63), (1 << 64) - 1
"""The least and the most whole number of 64 bits, with or without a sign."""

EXACT = 1 << 53
"""Below it, a float64 is the whole number that was written. JSON parsers make floats of integers beyond 64 bits."""


def is_whole(leaf: object) -> bool:
    """Return True for an integer of 64 bits, or a float that surely is the whole number that was written."""
    if isinstance(leaf, float):
        return abs(leaf) < EXACT and leaf.is_integer()
    return isinstance(leaf, _INTEGERS) and LEAST <= int(leaf) <= MOST


def whole_numbers(values: list[Any]) -> Array:
    """Return whole numbers, also if written as 1.0: as integers or bool, or objects if 64 bits do not do.

    Raises:
        ValueError: If the lists differ in length, or `is_whole` is False for a leaf.
    """
    array = np.array(values)
    if array.dtype.kind in "biu" or not array.size:
        return array
    if array.dtype.kind == "f" and (np.abs(array) < EXACT).all():
        if (np.trunc(array) != array).any():
            raise ValueError
        return array.astype(np.int64)
    # numpy has converted them to floating point, since some need 64 bits without a sign.
    array = np.array(values, object)
    leaves = array.ravel().tolist()
    if set(map(type, leaves)) != {int}:
        if not all(map(is_whole, leaves)):
            raise ValueError
        leaves = list(map(int, leaves))
    low, high = min(leaves), max(leaves)
    if low < LEAST or high > MOST:
        raise ValueError
    dtype = np.int64 if high < 1 << 63 else np.uint64 if low >= 0 else object
    return np.array(leaves, dtype).reshape(array.shape)


def exact(name: str, values: Sequence[Any]) -> Array:
    """Return lists of numbers, and of anything else, as numpy reads them; but no whole number is changed.

    Raises:
        InvalidInput: If floating-point numbers beside a whole number would change it; the message has its place.
        ValueError: If the lists differ in length.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fc" or not (np.abs(array) >= EXACT).any():
        return array
    leaves = np.array(values, object)
    if all(isinstance(leaf, _INTEGERS) for leaf in leaves.flat):
        integers = whole_numbers(leaves.tolist())
        if integers.dtype != object:
            return integers
    for index, leaf in np.ndenumerate(leaves):
        if isinstance(leaf, _INTEGERS) and int(array[index].real) != int(leaf):
            place = f"{name}{''.join(f'[{i}]' for i in index)}"
            raise InvalidInput(
                f"input {name!r}: {place} is {leaf}, which {array.dtype} cannot hold, and that is the type of the "
                "whole list; send a numpy array of one dtype"
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
