"""Operators that compute along some axes, and reductions of these."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cluster_serving.job.models.graph.size import ONE, Size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, constant, displaced, mixed, same_place


def axis_of(number: int, rank: int) -> int:
    """Return an axis, which may be counted from the last one, as its place."""
    if not -rank <= number < rank:
        raise Unknown
    return number % rank


def axes_of(numbers: Collection[int], rank: int) -> list[int]:
    """Return axes in order; raise `Unknown` if one is there twice, or does not exist."""
    axes = sorted({axis_of(number, rank) for number in numbers})
    if len(axes) != len(numbers):
        raise Unknown
    return axes


def along(x: Value, axes: Collection[int]) -> Value:
    """Return the result of an operator, of the shape of its input, whose elements depend on others on these axes."""
    if x.kind is Kind.ROWS and x.axis in axes_of(axes, x.rank):
        return _over(x, x.sizes)
    return same_place(x, x.sizes)


def resized(x: Value, axis: int, size: Size) -> Value:
    """Return the result of an operator that takes an axis for one of another size."""
    at = axis_of(axis, x.rank)
    shape = [*x.sizes[:at], size, *x.sizes[at + 1 :]]
    if x.kind is Kind.ROWS and x.axis == at:
        return _over(x, shape)
    return same_place(x, shape)


def largest(x: Value, axis: int, size: Size) -> list[Value]:
    """Return the results of an operator that takes the largest elements on an axis: these, and their places."""
    found = resized(x, axis, size)
    if found.kind is Kind.MIXED:
        # Records in the order of their lengths come back to their places.
        return [displaced(is_order=x.rank == 1)] * 2
    return [found] * 2


def reduced(x: Value, axes: Collection[int], keeps: bool) -> Value:
    """Return the result of an operator that makes one element of all on these axes."""
    gone = axes_of(axes, x.rank)
    if keeps:
        shape: Sequence[Size] = [ONE if at in gone else size for at, size in enumerate(x.sizes)]
    else:
        shape = [size for at, size in enumerate(x.sizes) if at not in gone]
    if x.kind is Kind.CONSTANT:
        return constant(shape)
    if x.axis in gone:
        return _over(x, shape)
    return same_place(x, shape, x.axis if keeps else x.axis - sum(at < x.axis for at in gone))


def _over(x: Value, shape: Sequence[Size]) -> Value:
    """Return the result of an operator over the axis of the batch."""
    if x.is_uniform:
        # It depends on the number of records alone.
        raise Unknown
    return mixed(shape, is_whole=True)
