"""What is known about a tensor in the graph of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from cluster_serving.job.models.graph.size import BATCH, ONE, Size
from cluster_serving.protocol.inputs import Array

MOST_ELEMENTS = 64
"""Largest number of elements of a constant that are looked at one by one."""

Shape = tuple[Size, ...]
Elements = tuple[Size | None, ...]


class Unknown(Exception):
    """Nothing is known about what an operator computes."""


class Kind(Enum):
    """What the elements of a tensor depend on."""

    CONSTANT = "neither on the records nor on their number"
    ROWS = "on one record each, by their place on the axis of the batch"
    SIZES = "on the number of records, and on nothing else of them"
    MIXED = "on several records"
    PIECE = "on one record each, but some records have none"
    PERHAPS = "on what an operator has mixed, if that has any effect"
    UNKNOWN = "perhaps on all"


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor.

    Attributes:
        kind: See `Kind`.
        shape: Its sizes. None if these are not known, which is so of no constant and of no rows.
        axis: Of rows, the axis of the batch, which has `outer` times the number of records times `inner` elements: in
            the order of memory, `inner` elements of one record come before those of the next.
        outer: See `axis`.
        inner: See `axis`.
        is_uniform: Rows that are the same for all records, whatever these are.
        elements: Numbers of a constant or of sizes, of at most one dimension; None for one that is not known, and is
            the same whatever the number of records.
        load: Returns the whole constant, or None if it is not at hand.
        start: Of a piece, the place of its first record.
        node: The operator that has mixed records.
        is_whole: Each element is mixed.
        is_placed: Of sizes, they have the places of the records, or are made of these. Of what may be mixed, these
            places or the number of records have changed it: it may be the place of a record in a longer axis.
        is_order: Of what may be mixed, it is made of the places that records have once they are sorted.
    """

    kind: Kind
    shape: Shape | None = None
    axis: int = 0
    outer: Size = ONE
    inner: Size = ONE
    is_uniform: bool = False
    elements: Elements | None = None
    load: Callable[[], Array | None] = lambda: None
    start: int = 0
    node: str = ""
    is_whole: bool = False
    is_placed: bool = False
    is_order: bool = False

    @property
    def sizes(self) -> Shape:
        """Return the shape; raise `Unknown` if it is not known."""
        if self.shape is None:
            raise Unknown
        return self.shape

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def from_right(self) -> int:
        """Axis of the batch, counted from the last axis."""
        return self.rank - self.axis

    @property
    def counts(self) -> bool:
        """True for sizes that are others for other numbers of records, or at other places."""
        known = [one for one in self.elements or () if one is not None]
        return self.kind is Kind.SIZES and (self.is_placed or any(one.has_batch for one in known))

    def numbers(self) -> list[int]:
        """Return the elements as numbers; raise `Unknown` if one is not known, or is no number."""
        if self.elements is None or any(one is None or not one.is_number for one in self.elements):
            raise Unknown
        return [one.number for one in self.elements if one is not None]

    def number(self) -> int:
        """Return the only element as a number; raise `Unknown` if it is not known."""
        numbers = self.numbers()
        if len(numbers) != 1:
            raise Unknown
        return numbers[0]

    def has_few(self) -> bool:
        """Return True for a constant of so few elements that they are looked at one by one."""
        return self.shape is not None and math.prod(size.number for size in self.shape) <= MOST_ELEMENTS

    def has_zero(self) -> bool:
        """Return True if an element of a constant is zero, or may be."""
        array = self.load()
        return array is None or not bool(np.all(array))

    def is_zero(self) -> bool:
        """Return True if all elements of a constant are zero, or may be."""
        array = self.load()
        return array is None or not bool(np.any(array))


UNKNOWN = Value(Kind.UNKNOWN)


def constant(
    shape: Sequence[Size], elements: Elements | None = None, load: Callable[[], Array | None] = lambda: None
) -> Value:
    """Return a tensor that depends neither on the records nor on their number."""
    if any(size.has_batch for size in shape):
        raise Unknown
    return Value(Kind.CONSTANT, tuple(shape), elements=elements, load=load)


def rows(shape: Sequence[Size], axis: int, outer: Size = ONE, inner: Size = ONE, *, is_uniform: bool = False) -> Value:
    """Return a tensor whose elements depend on one record each; raise `Unknown` if the sizes contradict that."""
    if not 0 <= axis < len(shape) or shape[axis] != outer.times(BATCH).times(inner):
        raise Unknown
    if any(size.has_batch for at, size in enumerate(shape) if at != axis):
        raise Unknown
    return Value(Kind.ROWS, tuple(shape), axis, outer, inner, is_uniform)


def numbers(elements: Sequence[Size | None], *, is_scalar: bool = False) -> Value:
    """Return a vector, or a scalar, of numbers that are sizes."""
    has_batch = any(one is not None and one.has_batch for one in elements)
    kind = Kind.SIZES if has_batch else Kind.CONSTANT
    known = [one.number for one in elements if one is not None and one.is_number]
    array = np.array(known[0] if is_scalar else known) if len(known) == len(elements) and known else None
    return Value(kind, () if is_scalar else (Size(len(elements)),), elements=tuple(elements), load=lambda: array)


def small(array: Array) -> Value:
    """Return a constant with its elements; elements with a fraction count as unknown."""
    elements: Elements | None = None
    if array.ndim < 2 and array.size <= MOST_ELEMENTS and array.dtype.kind in "iufb":
        listed = array.reshape(-1).tolist()
        elements = tuple(Size(int(one)) if np.isfinite(one) and one == int(one) else None for one in listed)
    return constant([Size(size) for size in array.shape], elements, lambda: array)


def mixed(shape: Sequence[Size] | None = None, *, is_whole: bool = False) -> Value:
    """Return a tensor whose elements depend on several records; `is_whole`: each of them does."""
    return Value(Kind.MIXED, None if shape is None else tuple(shape), is_whole=is_whole)


def displaced(*, is_placed: bool = False, is_order: bool = False) -> Value:
    """Return records in the places of others: they may come back, or be lost."""
    return Value(Kind.PERHAPS, is_placed=is_placed, is_order=is_order)


def places() -> Value:
    """Return the places of the records in a call, in order."""
    return Value(Kind.SIZES, is_placed=True)


def same_place(value: Value, shape: Sequence[Size], axis: int | None = None) -> Value:
    """Return a tensor of another shape with rows as those of this one, at this axis or another; or a constant."""
    if value.kind is Kind.CONSTANT:
        return constant(shape)
    at = value.axis if axis is None else axis
    return rows(shape, at, value.outer, value.inner, is_uniform=value.is_uniform)
