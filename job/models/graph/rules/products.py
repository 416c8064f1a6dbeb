"""Products of matrices, and sums over indices."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.job.models.graph.rules.elementwise import broadcast, elementwise
from cluster_serving.job.models.graph.rules.layout import transposed, unsqueezed
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, constant, displaced, mixed, rows, same_place


def matmul(one: Value, other: Value) -> Value:
    """Return the product of matrices in the last two axes, as numpy has it."""
    if Kind.SIZES in (one.kind, other.kind):
        return _weighted(one, other)
    if one.rank < 2 or other.rank < 2:
        return _vectors(one, other)
    shape = (*broadcast([one.sizes[:-2], other.sizes[:-2]]), one.sizes[-2], other.sizes[-1])
    left, right = one.kind is Kind.ROWS, other.kind is Kind.ROWS
    if (left and one.from_right == 1) or (right and other.from_right == 2):
        return _summed(one, other, shape)
    if left and right:
        if one.from_right == 2 and other.from_right == 1:
            # Each row meets each other one.
            return _summed(one, other, shape)
        if one.from_right <= 2 or other.from_right <= 2:
            raise Unknown
        # Both have the batch in front of the matrices.
        heads = elementwise([_heads(one), _heads(other)])
        return same_place(heads, shape) if heads.kind is Kind.ROWS else heads
    if not left and not right:
        return constant(shape)
    x = one if left else other
    return same_place(x, shape, len(shape) - x.from_right)


def _weighted(one: Value, other: Value) -> Value:
    """Return the product of rows and of numbers that depend on how many they are, such as those below a diagonal."""
    x, place = (other, min(2, other.rank)) if one.kind is Kind.SIZES else (one, 1)
    if x.kind is not Kind.ROWS or x.is_uniform or x.from_right != place:
        raise Unknown
    return displaced()


def _heads(x: Value) -> Value:
    return same_place(x, x.sizes[:-2])


def _vectors(one: Value, other: Value) -> Value:
    """Return the product of a vector and another tensor."""
    if not (one.rank and other.rank) or one.rank == other.rank:
        raise Unknown
    if other.rank == 1:
        product = matmul(one, unsqueezed(other, [1]))
        gone = product.rank - 1
    else:
        product = matmul(unsqueezed(one, [0]), other)
        gone = product.rank - 2
    shape = [size for at, size in enumerate(product.sizes) if at != gone]
    if product.kind is Kind.MIXED:
        return mixed(shape)
    if product.kind is Kind.ROWS and product.axis == gone:
        raise Unknown
    return same_place(product, shape, product.axis - (product.axis > gone))


def _summed(one: Value, other: Value, shape: Sequence[Size]) -> Value:
    """Return the result of a sum over the axis of the batch."""
    pair = (one, other)
    if any(value.is_uniform or (value.kind is Kind.CONSTANT and value.is_zero()) for value in pair):
        raise Unknown
    return mixed(shape)


def gemm(one: Value, other: Value, added: Value | None, turns: tuple[bool, bool]) -> Value:
    """Return the product of two matrices, each of them transposed before or not, plus a third tensor."""
    if one.rank != 2 or other.rank != 2:
        raise Unknown
    one, other = (transposed(x, [1, 0]) if turn else x for x, turn in zip((one, other), turns, strict=True))
    product = matmul(one, other)
    if added is None or product.kind is Kind.MIXED:
        return product
    found = elementwise([product, added])
    if found.kind is Kind.MIXED or found.sizes != product.sizes:
        raise Unknown
    return found


def einsum(equation: str, values: Sequence[Value]) -> Value:
    """Return a sum over indices; each index has a name, and occurs at most once in a tensor."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in equation or len(terms) != len(values):
        raise Unknown
    sizes: dict[str, Size] = {}
    batches = set()
    first = None
    for term, value in zip(terms, values, strict=True):
        if len(set(term)) != len(term) or len(term) != value.rank:
            raise Unknown
        for letter, size in zip(term, value.sizes, strict=True):
            (sizes[letter],) = broadcast([(size,), (sizes.get(letter, size),)])
        if value.kind is Kind.ROWS:
            first = first or value
            batches.add((term[value.axis], value.outer, value.inner))
    shape = [sizes[letter] for letter in result]
    if first is None:
        return constant(shape)
    if len({letter for letter, *_ in batches}) > 1 and not any(value.is_uniform for value in values):
        # Each row meets each other one.
        return displaced()
    if len(batches) > 1 or len(set(result)) != len(result):
        raise Unknown
    ((letter, _, _),) = batches
    if letter in result:
        uniform = all(value.is_uniform for value in values if value.kind is Kind.ROWS)
        return rows(shape, result.index(letter), first.outer, first.inner, is_uniform=uniform)
    if any(value.is_uniform or (value.kind is Kind.CONSTANT and value.is_zero()) for value in values):
        raise Unknown
    return mixed(shape)
