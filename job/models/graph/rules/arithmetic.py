"""Arithmetic with the sizes of tensors: exporters compute the shapes of other tensors by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster_serving.job.models.graph.size import ONE, Size
from cluster_serving.job.models.graph.value import Elements, Kind, Unknown, Value, numbers

Compute = Callable[..., Size | None]
"""Computes an element from those at the same place; returns None if it is not known."""


def computed(values: Sequence[Value], compute: Compute | None) -> Value:
    """Return the result for numbers of at most one dimension.

    Raises:
        Unknown: If there are other tensors, or a result depends on the number of records in a way that is not known.
    """
    if any(value.elements is None or value.kind not in (Kind.CONSTANT, Kind.SIZES) for value in values):
        raise Unknown
    columns = [value.elements or () for value in values]
    length = max(map(len, columns))
    if any(len(column) not in (1, length) for column in columns):
        raise Unknown
    found = []
    for place in range(length):
        row = [column[place if len(column) > 1 else 0] for column in columns]
        result = None if compute is None or None in row else compute(*row)
        if result is None and any(one is not None and one.has_batch for one in row):
            raise Unknown
        found.append(result)
    return numbers(found, is_scalar=all(value.rank == 0 for value in values))


def added(one: Size, other: Size) -> Size | None:
    """Return a sum."""
    return _number(one, other, lambda a, b: a + b) or (one if other.number == 0 else other if one.number == 0 else None)


def subtracted(one: Size, other: Size) -> Size | None:
    """Return a difference."""
    return _number(one, other, lambda a, b: a - b) or (one if other.number == 0 else None)


def multiplied(one: Size, other: Size) -> Size | None:
    """Return a product."""
    return one.times(other) if one.number and other.number else Size(0)


def divided(one: Size, other: Size) -> Size | None:
    """Return a quotient, if it is a whole number: others are rounded in different ways."""
    return one.over(other)


def remainder(one: Size, other: Size) -> Size | None:
    """Return what is left by a division of numbers that are not negative."""
    return _number(one, other, lambda a, b: a % b) if one.number >= 0 < other.number else None


def equal(one: Size, other: Size) -> Size | None:
    """Return 1 if two numbers are the same, and 0 if they differ; a size is at least 0."""
    if one == other:
        return ONE
    if one.is_number and other.is_number:
        return Size(0)
    known, size = (one, other) if one.is_number else (other, one)
    return Size(0) if known.is_number and known.number < 0 < size.number else None


def less(one: Size, other: Size) -> Size | None:
    """Return 1 if a number is less than another one, and else 0."""
    return _number(one, other, lambda a, b: int(a < b))


def chosen(condition: Size, one: Size, other: Size) -> Size | None:
    """Return one number or the other."""
    if not condition.is_number:
        return None
    return one if condition.number else other


def same(one: Size) -> Size | None:
    """Return the number itself."""
    return one


def _number(one: Size, other: Size, compute: Callable[[int, int], int]) -> Size | None:
    return Size(compute(one.number, other.number)) if one.is_number and other.is_number else None


def joined(values: Sequence[Value]) -> Value:
    """Return vectors of numbers, one behind the other."""
    found: list[Size | None] = []
    for value in values:
        found += elements(value)
    return numbers(found)


def elements(value: Value) -> Elements:
    """Return the numbers of a constant, or of sizes; raise `Unknown` for other values."""
    if value.kind not in (Kind.CONSTANT, Kind.SIZES):
        raise Unknown
    if value.elements is None:
        # As many that are not known.
        if value.rank != 1 or not value.sizes[0].is_number or value.sizes[0].number > 64:
            raise Unknown
        return (None,) * value.sizes[0].number
    return value.elements


def measured(sizes: Sequence[Size]) -> Value:
    """Return the sizes of a tensor as a vector."""
    return numbers(tuple(sizes))
