"""Operators of OpenVINO that compute along axes: reductions, normalizations, sorting."""

from __future__ import annotations

from cluster_serving.job.models.graph.given import constant_or_none, given, only_constants
from cluster_serving.job.models.graph.network import Node, Operator, Values, from_first, through
from cluster_serving.job.models.graph.rules.along import along, axis_of, largest, reduced
from cluster_serving.job.models.graph.size import Size, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, same_place


def axes(values: Values, position: int = 1) -> list[int]:
    """Return axes that are an input; raise `Unknown` if they are not known."""
    value = constant_or_none(values, position)
    if value is None:
        raise Unknown
    return value.numbers()


def _reduced(node: Node, values: Values) -> Value:
    # No axes are no reduction.
    return reduced(given(values), axes(values), bool(node.get("keep_dims")))


def _on_axis(node: Node, values: Values) -> Value:
    return along(given(values), [node.integer("axis")])


def _on_axes(node: Node, values: Values) -> Value:
    return along(given(values), axes(values))


def _normalized_variance(node: Node, values: Values) -> Value:
    if node.version < 6:
        # By an attribute, it is over the channels or not.
        raise Unknown
    return _on_axes(node, values)


def _normalized_batch(node: Node, values: Values) -> Value:
    only_constants(values)
    x = given(values)
    # Earlier, the data are another input.
    if node.version < 5 or x.rank < 2 or (x.kind is Kind.ROWS and x.axis == 1):
        raise Unknown
    return same_place(x, x.sizes)


def _flows_through_batch(node: Node, values: Values) -> bool:
    return node.version >= 5 and from_first(node, values) and not given(values, 1).is_zero()


def _largest(node: Node, values: Values) -> list[Value]:
    x, count, axis = given(values), given(values, 1), node.integer("axis")
    if x.kind is Kind.ROWS and axis_of(axis, x.rank) == x.axis:
        return largest(x, axis, unknown_size())
    if x.kind is Kind.SIZES or count.kind is Kind.SIZES:
        raise Unknown
    most = count.number()
    _check_most(x.sizes[axis_of(axis, x.rank)], most)
    return largest(x, axis, Size(most))


def _check_most(size: Size, most: int) -> None:
    if not size.is_number or not 0 < most <= size.number:
        # Kernels read other memory beyond the end.
        raise Unknown


def _one_hot(node: Node, values: Values) -> Value:
    x = given(values)
    only_constants(values)
    axis = axis_of(node.integer("axis"), x.rank + 1)
    depth = given(values, 1).elements
    shape = [*x.sizes[:axis], (depth[0] if depth else None) or unknown_size(), *x.sizes[axis:]]
    return same_place(x, shape, x.axis + (axis <= x.axis))


_REDUCTIONS = "L1 L2 Max Mean Min Prod Sum"

OPERATORS = {
    **{f"Reduce{name}": Operator(_reduced, from_first) for name in _REDUCTIONS.split()},
    **{f"ReduceLogical{name}": Operator(_reduced) for name in ("And", "Or")},
    "Softmax": Operator(_on_axis, through),
    "LogSoftmax": Operator(_on_axis, through),
    "MVN": Operator(_normalized_variance, from_first),
    "NormalizeL2": Operator(_on_axes, from_first),
    "LRN": Operator(_on_axes, from_first),
    "CumSum": Operator(_on_axes, from_first),
    "BatchNormInference": Operator(_normalized_batch, _flows_through_batch),
    "TopK": Operator(_largest, takes_sizes=True),
    "OneHot": Operator(_one_hot),
}
