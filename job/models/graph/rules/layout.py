"""Operators that give the same elements another shape, or repeat them."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.job.models.graph.rules.along import axes_of, axis_of
from cluster_serving.job.models.graph.rules.elementwise import broadcast
from cluster_serving.job.models.graph.size import BATCH, ONE, Size, product, unknown_size
from cluster_serving.job.models.graph.value import Elements, Kind, Unknown, Value, constant, displaced, rows, same_place


def transposed(x: Value, order: Sequence[int]) -> Value:
    """Return a tensor with its axes in another order."""
    if sorted(order) != list(range(x.rank)):
        raise Unknown
    shape = [x.sizes[at] for at in order]
    return constant(shape) if x.kind is Kind.CONSTANT else same_place(x, shape, [*order].index(x.axis))


def turned(x: Value) -> Value:
    """Return matrices with rows as columns; a constant keeps its values, as they are only searched for zeros."""
    order = [*range(x.rank)]
    order[-2:] = order[-2:][::-1]
    found = transposed(x, order)
    return Value(Kind.CONSTANT, found.shape, load=x.load) if x.kind is Kind.CONSTANT else found


def squeezed(x: Value, axes: Sequence[int]) -> Value:
    """Return a tensor without axes of size 1."""
    gone = axes_of(axes, x.rank)
    if x.kind is Kind.ROWS and x.axis in gone:
        raise Unknown
    shape = [size for at, size in enumerate(x.sizes) if at not in gone]
    return same_place(x, shape, x.axis - sum(at < x.axis for at in gone))


def unsqueezed(x: Value, axes: Sequence[int]) -> Value:
    """Return a tensor with axes of size 1 at these places of the result."""
    added = axes_of(axes, x.rank + len(axes))
    rest = [at for at in range(x.rank + len(axes)) if at not in added]
    shape = [ONE] * (x.rank + len(axes))
    for at, size in zip(rest, x.sizes, strict=True):
        shape[at] = size
    return same_place(x, shape, rest[x.axis] if x.kind is Kind.ROWS else None)


def reshaped(x: Value, target: Elements, *, copies_zero: bool = True) -> Value:
    """Return a tensor of another shape with the same elements in memory.

    Args:
        x: The tensor.
        target: Sizes; one may be -1, for all that is left.
        copies_zero: 0 is the size of the input at that place.
    """
    zero = Size(0)
    if copies_zero:
        if any(size == zero for size in target[x.rank :]):
            raise Unknown
        target = tuple(x.sizes[at] if size == zero else size for at, size in enumerate(target))
    total = product(x.sizes)
    shape = _solved(target, total)
    if x.kind is Kind.CONSTANT:
        return constant([unknown_size() if size is None else size for size in shape])
    return _rows_in(x, shape)


def _solved(target: Elements, total: Size) -> list[Size | None]:
    """Return the sizes of a target with -1 as what is left; None for a size that is not known."""
    left = Size(-1)
    shape = [None if size == left else size for size in target]
    if any(size is not None and size.number < 1 for size in shape):
        raise Unknown
    if left in target and shape.count(None) == 1:
        shape[shape.index(None)] = total.over(product(size for size in shape if size is not None))
    return shape


def _rows_in(x: Value, shape: Sequence[Size | None]) -> Value:
    """Return rows in another shape, where the batch has to be on one axis again."""
    axis = next((at for at, size in enumerate(shape) if size is not None and size.has_batch), None)
    if axis is None:
        raise Unknown
    # In memory, so many times the records stand in blocks of so many elements.
    before = product(x.sizes[: x.axis]).times(x.outer)
    behind = x.inner.times(product(x.sizes[x.axis + 1 :]))
    if _splits_records(x, shape, axis, before, behind):
        return displaced()
    outer, inner = _split(shape[axis] or ONE, before, behind, shape[:axis], shape[axis + 1 :])
    # The axes around it have as many elements as are left, or the tensor does not fit the shape.
    if before.over(outer) is None or behind.over(inner) is None:
        raise Unknown
    known = [unknown_size() if size is None else size for size in shape]
    return rows(known, axis, outer, inner, is_uniform=x.is_uniform)


def _splits_records(x: Value, shape: Sequence[Size | None], axis: int, before: Size, behind: Size) -> bool:
    """Return True if no axis of the shape has the elements of a record at places that are the same for all records."""
    known = [size for size in shape if size is not None]
    if x.is_uniform or len(known) < len(shape) or product(known) != product(x.sizes):
        return False
    front, rest = known[:axis], known[axis + 1 :]
    if not all(size.is_number for size in (before, behind, *front, *rest)):
        return False
    return before.over(product(front)) is None or behind.over(product(rest)) is None


def _split(
    size: Size, before: Size, behind: Size, front: Sequence[Size | None], rest: Sequence[Size | None]
) -> tuple[Size, Size]:
    """Return how many elements of an axis are around the batch, and how many are inside of it; see `Value.axis`."""
    outer, inner = _left(before, front), _left(behind, rest)
    # The axes on one side are enough.
    if outer is not None:
        inner = size.over(outer.times(BATCH))
    elif inner is not None:
        outer = size.over(inner.times(BATCH))
    if outer is None or inner is None:
        raise Unknown
    return outer, inner


def _left(total: Size, sizes: Sequence[Size | None]) -> Size | None:
    """Return a number of elements divided by these sizes; None if it is not known."""
    known = [size for size in sizes if size is not None]
    return total.over(product(known)) if len(known) == len(sizes) else None


def flattened(x: Value, axis: int) -> Value:
    """Return a table with the axes before one as rows, and the others as columns."""
    at = axis if axis == x.rank else axis_of(axis, x.rank)
    return reshaped(x, (product(x.sizes[:at]), product(x.sizes[at:])), copies_zero=False)


def expanded(x: Value, target: Elements) -> Value:
    """Return a tensor that is repeated on axes of size 1, to the sizes that it has in common with the target."""
    sizes = tuple(unknown_size() if size is None else size for size in target)
    if any(size.number < 0 for size in sizes):
        raise Unknown
    shape = broadcast([x.sizes, sizes])
    at = next((axis for axis, size in enumerate(shape) if size.has_batch), None)
    if at is None:
        return constant(shape)
    if x.kind is Kind.ROWS:
        if sum(size.has_batch for size in shape) > 1 and not x.is_uniform:
            # Each record stands at the places of all others, too.
            return displaced()
        if at != len(shape) - x.from_right:
            raise Unknown
        return same_place(x, shape, at)
    inner = shape[at].over(BATCH)
    if inner is None:
        raise Unknown
    # The same for all places.
    return rows(shape, at, ONE, inner, is_uniform=True)


def tiled(x: Value, repeats: Elements) -> Value:
    """Return a tensor that is repeated as a whole on each axis."""
    if len(repeats) != x.rank:
        raise Unknown
    pairs = zip(x.sizes, repeats, strict=True)
    shape = [unknown_size() if times is None else size.times(times) for size, times in pairs]
    if any(times is not None and times.number < 1 for times in repeats):
        raise Unknown
    at = next((axis for axis, size in enumerate(shape) if size.has_batch), None)
    if x.kind is Kind.ROWS:
        times = repeats[x.axis]
        if times is None or times.has_batch:
            raise Unknown
        return rows(shape, x.axis, x.outer.times(times), x.inner, is_uniform=x.is_uniform)
    if at is None:
        return constant(shape)
    inner = shape[at].over(BATCH)
    if inner is None or repeats[at] != BATCH:
        raise Unknown
    return rows(shape, at, ONE, inner, is_uniform=True)


def filled(shape: Elements) -> Value:
    """Return a tensor of this shape that has the same number everywhere."""
    return expanded(constant([]), shape)
