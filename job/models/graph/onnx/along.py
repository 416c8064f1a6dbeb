"""Operators of ONNX that compute along axes: reductions, normalizations, sorting."""

from __future__ import annotations

from dataclasses import replace

from cluster_serving.job.models.graph.given import (
    constant_or_none,
    given,
    integers,
    numbers,
    only_constants,
    optional,
)
from cluster_serving.job.models.graph.network import Node, Operator, Values, from_first, through
from cluster_serving.job.models.graph.rules.along import along, axis_of, largest, reduced
from cluster_serving.job.models.graph.rules.elementwise import elementwise
from cluster_serving.job.models.graph.rules.windows import pooled_globally
from cluster_serving.job.models.graph.size import ONE, Size, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, displaced, mixed, same_place

_SUM_SINCE, _AXES_SINCE = 13, 18
"""Versions since which the axes of a sum, and of other reductions, are an input."""


def _reduced(node: Node, values: Values) -> Value:
    x = given(values)
    axes = numbers(node, values, "axes", _SUM_SINCE if node.kind == "ReduceSum" else _AXES_SINCE)
    if not axes:
        if node.integer("noop_with_empty_axes", 0):
            return same_place(x, x.sizes)
        axes = [*range(x.rank)]
    return reduced(x, axes, bool(node.integer("keepdims", 1)))


def _softmax(node: Node, values: Values) -> Value:
    x = given(values)
    if node.version >= 13:
        return along(x, [node.integer("axis", -1)])
    # Earlier, all axes from this one on are one.
    return along(x, range(axis_of(node.integer("axis", 1), x.rank), x.rank))


def _argument(node: Node, values: Values) -> Value:
    x, axis = given(values), node.integer("axis", 0)
    found = reduced(x, [axis], bool(node.integer("keepdims", 1)))
    # Of one element, the place is known.
    return replace(found, is_uniform=True) if x.sizes[axis] == ONE and found.kind is Kind.ROWS else found


def _largest(node: Node, values: Values) -> list[Value]:
    if node.version < 10:
        size: Size | None = Size(node.integer("k"))
    else:
        count = given(values, 1)
        size = count.elements[0] if count.elements else None
    x, axis = given(values), node.integer("axis", -1)
    if x.kind is Kind.SIZES or (len(values) > 1 and given(values, 1).kind is Kind.SIZES and not _is_batch(x, axis)):
        raise Unknown
    return largest(x, axis, size or unknown_size())


def _is_batch(x: Value, axis: int) -> bool:
    return x.kind is Kind.ROWS and axis_of(axis, x.rank) == x.axis


def _transformed(node: Node, values: Values) -> Value:
    """Return the spectra of parts of a signal, which is the second axis."""
    x = given(values)
    only_constants(values)
    if x.rank not in (2, 3) or (x.kind is Kind.ROWS and x.axis != 0):
        raise Unknown
    return same_place(x, (x.sizes[0], unknown_size(), unknown_size(), Size(2)))


def _accumulated(node: Node, values: Values) -> Value:
    axis = constant_or_none(values, 1)
    if axis is None:
        raise Unknown
    return along(given(values), [axis.number()])


def _on_axis(node: Node, values: Values) -> Value:
    return along(given(values), [node.integer("axis", -1)])


def _normalized_layer(node: Node, values: Values) -> Value:
    only_constants(values)
    x = given(values)
    found = along(x, range(axis_of(node.integer("axis", -1), x.rank), x.rank))
    if found.kind is Kind.MIXED:
        return found
    return _scaled(found, values)


def _scaled(x: Value, values: Values) -> Value:
    """Return a tensor that is multiplied by constants, and to which others are added."""
    scales = [value for value in values[1:] if value is not None]
    found = elementwise([x, *scales])
    if found.sizes != x.sizes:
        raise Unknown
    return found


def _normalized_batch(node: Node, values: Values) -> Value:
    only_constants(values)
    x = given(values)
    if not x.rank:
        raise Unknown
    trains = bool(node.integer("training_mode", 0)) or (node.version < 14 and len(node.outputs) > 1)
    if x.kind is not Kind.ROWS:
        return same_place(x, x.sizes)
    if node.integer("spatial", 1) != 1 or x.axis == 1:
        raise Unknown
    if not trains:
        return same_place(x, x.sizes)
    if x.is_uniform or given(values, 1).is_zero():
        raise Unknown
    return mixed(x.sizes)


def _normalized_channels(node: Node, values: Values) -> Value:
    """Return what each channel of each record, or some channels of it, make of themselves."""
    only_constants(values)
    x = given(values)
    if x.kind is Kind.ROWS and x.axis > 1 and not x.is_uniform:
        return displaced()
    if x.rank < 3 or (x.kind is Kind.ROWS and x.axis != 0):
        raise Unknown
    return same_place(x, x.sizes)


def _local(node: Node, values: Values) -> Value:
    return along(given(values), [1])


def _variance(node: Node, values: Values) -> Value:
    return along(given(values), integers(node, "axes", (0, 2, 3)))


def _pooled(node: Node, values: Values) -> Value:
    return pooled_globally(given(values))


def _reversed(node: Node, values: Values) -> Value:
    x, lengths = given(values), given(values, 1)
    if x.kind is not Kind.ROWS or lengths.kind is not Kind.ROWS or x.axis != node.integer("batch_axis", 1):
        raise Unknown
    if node.integer("time_axis", 0) == x.axis or (x.outer, x.inner) != (lengths.outer, lengths.inner):
        raise Unknown
    return same_place(x, x.sizes)


def _triangle(node: Node, values: Values) -> Value:
    x = given(values)
    only_constants(values)
    if x.kind is Kind.ROWS and x.axis >= x.rank - 2:
        raise Unknown
    return same_place(x, x.sizes)


def _one_hot(node: Node, values: Values) -> Value:
    x = given(values)
    only_constants(values)
    axis = axis_of(node.integer("axis", -1), x.rank + 1)
    depth = optional(values, 1)
    elements = depth.elements if depth is not None else None
    size = (elements[0] if elements else None) or unknown_size()
    shape = [*x.sizes[:axis], size, *x.sizes[axis:]]
    return same_place(x, shape, x.axis + (axis <= x.axis))


_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

OPERATORS = {
    **{f"Reduce{name}": Operator(_reduced, from_first) for name in _REDUCTIONS.split()},
    "Softmax": Operator(_softmax, through),
    "LogSoftmax": Operator(_softmax, through),
    "Hardmax": Operator(_softmax),
    "ArgMax": Operator(_argument),
    "ArgMin": Operator(_argument),
    "TopK": Operator(_largest, takes_sizes=True),
    "STFT": Operator(_transformed),
    "CumSum": Operator(_accumulated, from_first),
    "LpNormalization": Operator(_on_axis, through),
    "LayerNormalization": Operator(_normalized_layer, from_first),
    "RMSNormalization": Operator(_normalized_layer, from_first),
    "BatchNormalization": Operator(_normalized_batch, from_first),
    "InstanceNormalization": Operator(_normalized_channels, from_first),
    "GroupNormalization": Operator(_normalized_channels, from_first),
    "LRN": Operator(_local, through),
    "MeanVarianceNormalization": Operator(_variance, through),
    "GlobalAveragePool": Operator(_pooled, from_first),
    "GlobalMaxPool": Operator(_pooled),
    "GlobalLpPool": Operator(_pooled, from_first),
    "ReverseSequence": Operator(_reversed),
    "Trilu": Operator(_triangle),
    "OneHot": Operator(_one_hot),
}
