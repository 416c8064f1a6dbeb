"""Operators of PyTorch that give the same elements another shape, or repeat them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cluster_serving.job.models.graph.given import refuse_sizes
from cluster_serving.job.models.graph.network import Node, Operator, Rule, Values, from_first, stops
from cluster_serving.job.models.graph.rules import layout
from cluster_serving.job.models.graph.rules.along import axes_of, axis_of, resized
from cluster_serving.job.models.graph.size import ONE, Size, product, unknown_size
from cluster_serving.job.models.graph.torch.arguments import Taken, integers, size, sizes, tensor
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, constant, places, rows
from cluster_serving.job.models.graph.value import numbers as of_numbers


def _self(node: Node, values: Values) -> Value:
    """Return the first tensor, which is no number of records."""
    x = tensor(node, values, "self")
    refuse_sizes(x)
    return x


def _reshaped(node: Node, values: Values) -> Value:
    name = "shape" if node.kind == "aten.reshape.default" else "size"
    return layout.reshaped(_self(node, values), sizes(node, values, name), copies_zero=False)


def _shaped_as(node: Node, values: Values) -> Value:
    return layout.reshaped(_self(node, values), tensor(node, values, "other").sizes, copies_zero=False)


def _flattened(node: Node, values: Values) -> Value:
    x = _self(node, values)
    first, last = axis_of(node.integer("start_dim"), x.rank), axis_of(node.integer("end_dim"), x.rank)
    target = (*x.sizes[:first], product(x.sizes[first : last + 1]), *x.sizes[last + 1 :])
    return layout.reshaped(x, target, copies_zero=False)


def _unflattened(node: Node, values: Values) -> Value:
    x = _self(node, values)
    axis = axis_of(node.integer("dim"), x.rank)
    parts = sizes(node, values, "sizes")
    left = Size(-1)
    if left in parts:
        rest = x.sizes[axis].over(product(part for part in parts if part is not None and part != left))
        parts = tuple(rest if part == left else part for part in parts)
    if None in parts or x.sizes[axis].has_batch:
        raise Unknown
    return layout.reshaped(x, (*x.sizes[:axis], *parts, *x.sizes[axis + 1 :]), copies_zero=False)


def _transposed(node: Node, values: Values) -> Value:
    x = _self(node, values)
    return layout.transposed(x, axes_in_order(integers(node, "dims"), x.rank))


def axes_in_order(numbers: list[int], rank: int) -> list[int]:
    """Return the places of axes, which may be counted from the last one."""
    return [axis_of(number, rank) for number in numbers]


def _swapped(node: Node, values: Values) -> Value:
    x = _self(node, values)
    names = ("axis0", "axis1") if "swapaxes" in node.kind else ("dim0", "dim1")
    one, other = (axis_of(node.integer(name), x.rank) for name in names)
    order = [*range(x.rank)]
    order[one], order[other] = other, one
    return layout.transposed(x, order)


def _turned(node: Node, values: Values) -> Value:
    x = _self(node, values)
    if x.rank != 2 and node.kind != "aten.mT.default":
        raise Unknown
    order = [*range(x.rank)]
    order[-2:] = order[-2:][::-1]
    return layout.transposed(x, order)


def _moved(node: Node, values: Values) -> Value:
    x = _self(node, values)
    sources = axes_in_order(integers(node, "source"), x.rank)
    targets = axes_in_order(integers(node, "destination"), x.rank)
    pairs = dict(zip(targets, sources, strict=True))
    rest = (axis for axis in range(x.rank) if axis not in sources)
    return layout.transposed(x, [pairs[at] if at in pairs else next(rest) for at in range(x.rank)])


def _unsqueezed(node: Node, values: Values) -> Value:
    return layout.unsqueezed(_self(node, values), [node.integer("dim")])


def _squeezed(node: Node, values: Values) -> Value:
    """Return a tensor without some axes: only those of size 1 go."""
    x = _self(node, values)
    axes = axes_of(integers(node, "dim"), x.rank)
    if any(not x.sizes[axis].is_number for axis in axes):
        raise Unknown
    return layout.squeezed(x, [axis for axis in axes if x.sizes[axis] == ONE])


def _expanded(node: Node, values: Values) -> Value:
    x, target = _self(node, values), sizes(node, values, "size")
    own = (ONE,) * (len(target) - x.rank) + x.sizes
    left = Size(-1)
    return layout.expanded(x, tuple(own[at] if one == left else one for at, one in enumerate(target)))


def _expanded_as(node: Node, values: Values) -> Value:
    return layout.expanded(_self(node, values), tensor(node, values, "other").sizes)


def _tiled(node: Node, values: Values) -> Value:
    x = _self(node, values)
    times = sizes(node, values, "repeats" if node.kind == "aten.repeat.default" else "dims")
    times = (ONE,) * (x.rank - len(times)) + times
    return layout.tiled(layout.unsqueezed(x, [*range(len(times) - x.rank)]), times)


def _repeated(node: Node, values: Values) -> Value:
    """Return a tensor with each element repeated on an axis."""
    x, times = _self(node, values), size(node, values, "repeats")
    axis = axis_of(node.integer("dim"), x.rank)
    if times is None or times.has_batch or times.number < 1:
        raise Unknown
    longer = x.sizes[axis].times(times)
    if x.kind is not Kind.ROWS or x.axis != axis:
        return resized(x, axis, longer)
    shape = (*x.sizes[:axis], longer, *x.sizes[axis + 1 :])
    return rows(shape, axis, x.outer, x.inner.times(times), is_uniform=x.is_uniform)


def _filled(node: Node, values: Values) -> Value:
    if isinstance(node.get("fill_value"), Taken):
        raise Unknown
    return layout.filled(sizes(node, values, "size"))


def _filled_as(node: Node, values: Values) -> Value:
    (x,) = values
    if x is None:
        raise Unknown
    return layout.filled(x.sizes)


def _ranged(node: Node, values: Values) -> Value:
    """Return numbers in order, up to a number that does not depend on the records."""
    if not values and any(isinstance(node.get(name), float) for name in ("start", "end", "step")):
        return constant([unknown_size()])
    bounds: list[Size | None] = [
        size(node, values, name) for name in ("start", "end", "step") if name in node.attributes
    ]
    if any(bound is not None and bound.has_batch for bound in bounds):
        return places()
    end = bounds[0] if len(bounds) == 1 else bounds[1]
    begins_at_zero = len(bounds) == 1 or bounds[0] == Size(0)
    if begins_at_zero and len(bounds) < 3 and end is not None:
        return constant([end])
    return constant([unknown_size()])


def _measured(node: Node, values: Values) -> Value:
    x = tensor(node, values, "self")
    if x.kind is Kind.PIECE:
        raise Unknown
    return of_numbers([x.sizes[axis_of(node.integer("dim"), x.rank)]], is_scalar=True)


def _counted(node: Node, values: Values) -> Value:
    x = tensor(node, values, "self")
    if x.kind is Kind.PIECE:
        raise Unknown
    return of_numbers([product(x.sizes)], is_scalar=True)


def _scalar(node: Node, values: Values) -> Value:
    """Return a number as a tensor, which is the same for all calls."""
    if values:
        raise Unknown
    return constant([])


def _same(node: Node, values: Values) -> Value:
    """Return the only tensor."""
    (x,) = values
    if x is None:
        raise Unknown
    return x


def _with_array(rule: Callable[[Node, Values], Value]) -> Rule:
    """Return a rule for the same elements in another shape: a constant keeps its array, to be looked at for zeros."""

    def found(node: Node, values: Values) -> Value:
        x, other = values[0], rule(node, values)
        if x is None or x.kind is not Kind.CONSTANT or other.kind is not Kind.CONSTANT:
            return other
        return replace(other, load=x.load)

    return found


def _operators(names: str, rule: Callable[[Node, Values], Value], *, is_shaped: bool = True) -> dict[str, Operator]:
    operator = Operator(_with_array(rule) if is_shaped else rule, from_first if is_shaped else stops, takes_sizes=True)
    return {name if "." in name else f"{name}.default": operator for name in names.split()}


OPERATORS = {
    **_operators("view reshape _unsafe_view", _reshaped),
    **_operators("view_as reshape_as", _shaped_as),
    **_operators("flatten.using_ints", _flattened),
    **_operators("unflatten.int", _unflattened),
    **_operators("permute", _transposed),
    **_operators("transpose.int swapaxes swapdims", _swapped),
    **_operators("t mT numpy_T", _turned),
    **_operators("movedim.int movedim.intlist", _moved),
    **_operators("unsqueeze", _unsqueezed),
    **_operators("squeeze.dim squeeze.dims", _squeezed),
    **_operators("expand", _expanded),
    **_operators("expand_as", _expanded_as),
    **_operators("repeat tile", _tiled),
    **_operators("repeat_interleave.self_int", _repeated),
    **_operators("zeros ones full new_zeros new_ones new_full", _filled, is_shaped=False),
    **_operators("zeros_like ones_like full_like", _filled_as, is_shaped=False),
    **_operators("arange arange.start arange.start_step", _ranged, is_shaped=False),
    **_operators("scalar_tensor", _scalar, is_shaped=False),
    **{
        f"{name}.default": Operator(_same, from_first)
        for name in ("contiguous", "clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "positive")
    },
    **{name: Operator(_measured, takes_all=True) for name in ("sym_size.int", "size.int")},
    **{name: Operator(_counted, takes_all=True) for name in ("sym_numel.default", "numel.default")},
}
