"""Operators that take parts of tensors, or put tensors together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cluster_serving.job.models.graph.rules.along import axis_of, resized
from cluster_serving.job.models.graph.size import ONE, Size, product, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, constant, displaced, mixed, rows, same_place

_FAR = 10**9
"""Ends from this one on are beyond every tensor; exporters write it, or the largest number of 32 or 64 bits."""


def concatenated(values: Sequence[Value], axis: int) -> Value:
    """Return tensors put together on an axis."""
    if any(value.kind is Kind.PIECE for value in values):
        return _shifted(values, axis)
    some = [value for value in values if value.kind is Kind.MIXED]
    if some:
        return _with_mixed(values, axis)
    at = axis_of(axis, values[0].rank)
    if any(value.rank != values[0].rank for value in values):
        raise Unknown
    shape = [*values[0].sizes]
    # All others have to be the same.
    for value in values[1:]:
        for place, size in enumerate(value.sizes):
            if place != at and size != shape[place]:
                shape[place] = _either(size, shape[place])
    shape[at] = _sum([value.sizes[at] for value in values])
    batched = [value for value in values if value.kind is Kind.ROWS]
    if not batched:
        return constant(shape)
    first = batched[0]
    places = {(value.axis, value.outer, value.inner) for value in batched}
    if len(batched) < len(values) or len(places) > 1 or first.axis == at:
        raise Unknown
    return rows(shape, first.axis, first.outer, first.inner, is_uniform=all(value.is_uniform for value in batched))


def _either(one: Size, other: Size) -> Size:
    """Return a size that two tensors have to have in common."""
    if one.has_batch or other.has_batch:
        raise Unknown
    return other if other.is_number else one


def _sum(sizes: Sequence[Size]) -> Size:
    if any(size.has_batch for size in sizes):
        raise Unknown
    return Size(sum(size.number for size in sizes)) if all(size.is_number for size in sizes) else unknown_size()


def _with_mixed(values: Sequence[Value], axis: int) -> Value:
    """Return tensors behind one another, some of them mixed: a part of the result is mixed."""
    if any(value.kind not in (Kind.MIXED, Kind.ROWS, Kind.CONSTANT) for value in values):
        raise Unknown
    for value in values:
        # Single records, one behind the other, may be the batch again.
        if value.kind is Kind.ROWS and value.axis == axis_of(axis, value.rank):
            raise Unknown
    if not any(value.kind is Kind.ROWS for value in values):
        raise Unknown
    return replace(mixed(), node=next(value.node for value in values if value.kind is Kind.MIXED))


def _shifted(values: Sequence[Value], axis: int) -> Value:
    """Return records that are put behind something else: they are not in the places that they had."""
    before = values[0]
    piece = next(value for value in values if value.kind is Kind.PIECE)
    if piece is not values[1] or before.kind is Kind.ROWS or axis_of(axis, piece.rank) != piece.axis:
        raise Unknown
    size = before.sizes[piece.axis]
    if before.rank != piece.rank or not size.is_number or size.number == piece.start:
        raise Unknown
    return mixed()


def sliced(x: Value, axis: int, start: int | None, end: Size | None, step: int | None) -> Value:
    """Return a slice of one axis; None for a number that is not known, but the same for calls of any size."""
    if x.kind is Kind.PERHAPS:
        return x
    at = axis_of(axis, x.rank)
    size = x.sizes[at]
    if x.kind is not Kind.ROWS or at != x.axis:
        return resized(x, at, _length(size, start, end, step))
    if start == 0 and step == 1 and end is not None and (end == size or (end.is_number and end.number >= _FAR)):
        return x
    if step is not None and step < 0 and not x.is_uniform:
        return displaced()
    if start is None or end is None or step != 1 or x.is_uniform or (x.outer, x.inner) != (ONE, ONE):
        raise Unknown
    if (end == Size(start + 1) and start >= 0) or (start == -1 and end.is_number and end.number >= _FAR):
        return picked(x, at, (ONE,))
    if start >= 0:
        shape = (*x.sizes[:at], unknown_size(), *x.sizes[at + 1 :])
        return Value(Kind.PIECE, shape, at, start=start)
    raise Unknown


def parted(x: Value, axis: int, sizes: Sequence[Size]) -> list[Value]:
    """Return the parts of an axis that have these sizes."""
    at = axis_of(axis, x.rank)
    if x.kind is not Kind.ROWS or x.axis != at:
        return [resized(x, at, size) for size in sizes]
    if x.is_uniform:
        raise Unknown
    return [displaced() for _ in sizes]


def picked(x: Value, axis: int, sizes: Sequence[Size]) -> Value:
    """Return one record of all, in the place of the batch."""
    return mixed((*x.sizes[:axis], *sizes, *x.sizes[axis + 1 :]), is_whole=True)


def _length(size: Size, start: int | None, end: Size | None, step: int | None) -> Size:
    """Return the size of a slice."""
    if end is not None and end.has_batch:
        raise Unknown
    if start == 0 and step == 1 and end is not None and (end == size or (end.is_number and end.number >= _FAR)):
        return size
    if start is None or step is None or end is None or not (size.is_number and end.is_number):
        return unknown_size()
    return Size(len(range(size.number)[start : end.number : step]))


def gathered(x: Value, places: Value, axis: int) -> Value:
    """Return the elements of a tensor at some places of an axis, which stand where the axis was."""
    at = axis_of(axis, x.rank)
    shape = (*x.sizes[:at], *places.sizes, *x.sizes[at + 1 :])
    if places.kind is Kind.CONSTANT:
        if x.kind is Kind.CONSTANT:
            return constant(shape)
        if x.axis != at:
            return same_place(x, shape, x.axis + (places.rank - 1 if x.axis > at else 0))
        if product(places.sizes) != ONE or x.is_uniform or x.outer != ONE or x.inner != ONE:
            raise Unknown
        return picked(x, at, places.sizes)
    if x.kind is Kind.ROWS and x.axis == at and not (x.is_uniform or places.is_uniform):
        return displaced()
    if x.kind is not Kind.CONSTANT:
        raise Unknown
    return same_place(places, shape, at + places.axis)


def gathered_elements(x: Value, places: Value, axis: int) -> Value:
    """Return for each place of one tensor the element of another that it has the place of, on an axis."""
    at = axis_of(axis, x.rank)
    if x.rank != places.rank:
        raise Unknown
    if x.kind is Kind.CONSTANT and places.kind is Kind.CONSTANT:
        return constant(places.sizes)
    if x.kind is not Kind.ROWS or places.kind is not Kind.ROWS:
        raise Unknown
    if x.axis == at and not (x.is_uniform or places.is_uniform):
        return displaced()
    if x.axis == at or (x.axis, x.outer, x.inner) != (places.axis, places.outer, places.inner):
        raise Unknown
    return rows(places.sizes, x.axis, x.outer, x.inner)


def scattered(x: Value, places: Value, updates: Value, axis: int) -> Value:
    """Return a tensor with other elements at some places of an axis; places of one dimension are those of slices."""
    at = axis_of(axis, x.rank)
    if places.kind is Kind.ROWS and not places.is_uniform and (places.rank == 1 or places.axis == at):
        # Several records may be at one place, or at that of another one.
        return displaced()
    if any(value.kind is not Kind.ROWS for value in (x, places, updates)):
        raise Unknown
    if len({(value.rank, value.axis, value.outer, value.inner) for value in (x, places, updates)}) > 1 or at == x.axis:
        raise Unknown
    return same_place(replace(x, is_uniform=False), x.sizes)


def scattered_points(x: Value, places: Value) -> Value:
    """Return a tensor with other elements at places that are numbered on its first axes."""
    depth = places.sizes[-1]
    if places.kind is not Kind.ROWS or places.is_uniform or not depth.is_number or places.axis == places.rank - 1:
        raise Unknown
    if x.kind is Kind.ROWS and x.axis >= depth.number:
        raise Unknown
    return displaced()


def unique(x: Value, axis: int | None) -> Value:
    """Return each element once, or each slice of an axis."""
    if x.kind is not Kind.ROWS or x.is_uniform or (axis is not None and axis_of(axis, x.rank) != x.axis):
        raise Unknown
    return displaced()


def padded(x: Value, before: Sequence[int | None], behind: Sequence[int | None]) -> Value:
    """Return a tensor with more elements around it; None for a number that is not known."""
    if not len(before) == len(behind) == x.rank:
        raise Unknown
    shape = []
    for at, size in enumerate(x.sizes):
        one, other = before[at], behind[at]
        if one == other == 0:
            shape.append(size)
        elif x.kind is Kind.ROWS and at == x.axis:
            if not one or x.is_uniform:
                raise Unknown
            return displaced()
        elif one is None or other is None or not size.is_number:
            shape.append(unknown_size())
        else:
            shape.append(Size(size.number + one + other))
    return same_place(x, shape)
