"""Operators that compute each element from those at the same place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from cluster_serving.job.models.graph.size import ONE, Size, unknown_size
from cluster_serving.job.models.graph.value import Kind, Shape, Unknown, Value, constant, displaced, mixed, rows


def elementwise(values: Sequence[Value]) -> Value:
    """Return the result of tensors whose shapes are aligned at their last axes."""
    batched = [value for value in values if value.kind is Kind.ROWS]
    others = [value for value in values if value.kind not in (Kind.ROWS, Kind.CONSTANT)]
    if others:
        return _counted(batched, others)
    shape = broadcast([value.sizes for value in values])
    if not batched:
        return constant(shape)
    first = batched[0]
    for value in batched[1:]:
        if value.from_right != first.from_right:
            return _pairs(batched)
        if (value.outer, value.inner) != (first.outer, first.inner):
            raise Unknown
    uniform = all(value.is_uniform for value in batched)
    return rows(shape, len(shape) - first.from_right, first.outer, first.inner, is_uniform=uniform)


def _counted(batched: Sequence[Value], others: Sequence[Value]) -> Value:
    """Return rows that the number of records, or their places, have changed."""
    is_sizes = all(value.kind is Kind.SIZES for value in others) and any(value.counts for value in others)
    if not is_sizes or all(value.is_uniform for value in batched):
        raise Unknown
    return displaced(is_placed=True)


def wrapped(values: Sequence[Value]) -> Value:
    """Return what is left by a division: records that are counted modulo their number are not in their own places."""
    found = elementwise(values)
    return displaced() if found.is_placed else found


def _pairs(batched: Sequence[Value]) -> Value:
    """Return the result for rows that are aligned with other axes than their own: each row meets each other row."""
    places = {value.from_right for value in batched}
    for value in batched:
        sizes = value.sizes[::-1]
        others = [sizes[place - 1] for place in places - {value.from_right} if place <= len(sizes)]
        if value.is_uniform or any(size != ONE for size in others):
            raise Unknown
    return mixed()


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape of the result of tensors that are aligned at their last axes."""
    aligned = zip_longest(*(shape[::-1] for shape in shapes), fillvalue=ONE)
    return tuple([*map(_common, aligned)][::-1])


def _common(sizes: Sequence[Size]) -> Size:
    found = {size for size in sizes if size != ONE}
    if not found:
        return ONE
    if len(found) == 1:
        return found.pop()
    # One that is not known may be 1. As a number of records it would fit by chance.
    numbers = [size for size in found if size.is_number]
    if len(numbers) > 1 or any(size.has_batch for size in found):
        raise Unknown
    return numbers[0] if numbers and numbers[0].number > 1 else unknown_size()
