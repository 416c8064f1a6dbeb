"""Products, convolutions, pools and recurrent layers of ONNX."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.job.models.graph.given import constant_or_none, given, integers, optional
from cluster_serving.job.models.graph.network import Node, Operator, Values, from_first, through
from cluster_serving.job.models.graph.rules import windows
from cluster_serving.job.models.graph.rules.products import einsum, gemm, matmul
from cluster_serving.job.models.graph.size import Size, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, mixed, rows, same_place


def _product(node: Node, values: Values) -> Value:
    one, other = values
    return matmul(given([one]), given([other]))


def _general(node: Node, values: Values) -> Value:
    if node.get("alpha", 1.0) == 0:
        raise Unknown
    turns = bool(node.integer("transA", 0)), bool(node.integer("transB", 0))
    return gemm(given(values), given(values, 1), optional(values, 2), turns)


def _summed(node: Node, values: Values) -> Value:
    return einsum(str(node.get("equation")), [given(values, position) for position in range(len(values))])


def _window(node: Node, x: Value, kernel: list[int | None]) -> windows.Window:
    count = x.rank - 2
    return windows.Window(
        kernel,
        integers(node, "strides", [1] * count),
        integers(node, "dilations", [1] * count),
        integers(node, "pads", [0] * 2 * count),
        str(node.get("auto_pad", "NOTSET")),
        bool(node.integer("ceil_mode", 0)),
    )


def convolution(node: Node, x: Value, weights: Value, added: Value | None) -> Value:
    """Return a convolution with the attributes of a node."""
    kernel = [size.number if size.is_number else None for size in weights.sizes[2:]]
    return windows.convolved(x, weights, added, _window(node, x, kernel))


def _convolved(node: Node, values: Values) -> Value:
    return convolution(node, given(values), given(values, 1), optional(values, 2))


def _spread(node: Node, values: Values) -> Value:
    return windows.spread(given(values), given(values, 1), optional(values, 2), node.integer("group", 1))


def _pooled(node: Node, values: Values) -> list[Value]:
    # The places of the largest elements are counted from the first record of the call.
    (x,) = values
    return [windows.pooled(given([x]), _window(node, given([x]), [*integers(node, "kernel_shape")]))]


def _recurrent(node: Node, values: Values) -> list[Value]:
    """Return all states, and the last ones, of a layer with the batch behind the steps."""
    x = given(values)
    if node.integer("layout", 0) or x.rank != 3:
        raise Unknown
    # Weights, and those of connections from the state of a cell.
    for position in (1, 2, 3, 7):
        constant_or_none(values, position)
    directions = Size(2 if node.get("direction", "forward") == "bidirectional" else 1)
    hidden = Size(node.integer("hidden_size"))
    if x.kind is Kind.CONSTANT:
        raise Unknown
    if x.axis == 0:
        if x.is_uniform or given(values, 2).is_zero():
            raise Unknown
        return [mixed(), mixed()]
    if x.axis != 1:
        raise Unknown
    for position, axis in ((4, 0), (5, 1), (6, 1)):
        value = optional(values, position)
        if value is not None and (value.kind is not Kind.ROWS or _place(value) != (axis, x.outer, x.inner)):
            raise Unknown
    steps, batch = x.sizes[0], x.sizes[1]
    last = rows((directions, batch, hidden), 1, x.outer, x.inner)
    return [rows((steps, directions, batch, hidden), 2, x.outer, x.inner), last, last]


def _place(value: Value) -> tuple[int, Size, Size]:
    return value.axis, value.outer, value.inner


def _to_depth(node: Node, values: Values) -> Value:
    x, block = given(values), Size(node.integer("blocksize"))
    area = block.times(block)
    sides = [side.over(block) for side in x.sizes[2:]]
    return _blocked(x, x.sizes[1].times(area), sides, x.outer.times(area))


def _to_space(node: Node, values: Values) -> Value:
    x, block = given(values), Size(node.integer("blocksize"))
    area = block.times(block)
    if x.axis == 1 and node.get("mode", "DCR") != "DCR":
        raise Unknown
    return _blocked(x, x.sizes[1].over(area), [side.times(block) for side in x.sizes[2:]], x.outer.over(area))


def _blocked(x: Value, depth: Size | None, sides: Sequence[Size | None], outer: Size | None) -> Value:
    """Return images whose pixels become channels, or the other way round, in blocks in front of those there are.

    Converters of dilated convolutions do so with records in the place of channels.
    """
    if x.rank != 4:
        raise Unknown
    shape = (x.sizes[0], depth or unknown_size(), *(side or unknown_size() for side in sides))
    if x.kind is Kind.CONSTANT or x.axis == 0:
        return same_place(x, shape)
    if x.axis != 1 or depth is None or outer is None:
        raise Unknown
    return rows(shape, 1, outer, x.inner, is_uniform=x.is_uniform)


OPERATORS = {
    "MatMul": Operator(_product, through, scales=True, takes_sizes=True),
    "Gemm": Operator(_general, from_first, scales=True),
    "Einsum": Operator(_summed, through, scales=True),
    "Conv": Operator(_convolved, from_first, scales=True),
    "ConvTranspose": Operator(_spread, from_first, scales=True),
    "AveragePool": Operator(_pooled, from_first),
    "LpPool": Operator(_pooled, from_first),
    "MaxPool": Operator(_pooled),
    "LSTM": Operator(_recurrent),
    "GRU": Operator(_recurrent),
    "RNN": Operator(_recurrent),
    "SpaceToDepth": Operator(_to_depth, from_first),
    "DepthToSpace": Operator(_to_space, from_first),
}
