"""Products, attention, convolutions, pools and recurrent layers of OpenVINO."""

from __future__ import annotations

from cluster_serving.job.models.graph.given import constant_or_none, given, integers, only_constants
from cluster_serving.job.models.graph.network import Node, Operator, Values, from_first, through
from cluster_serving.job.models.graph.rules import windows
from cluster_serving.job.models.graph.rules.along import along
from cluster_serving.job.models.graph.rules.elementwise import elementwise
from cluster_serving.job.models.graph.rules.layout import turned
from cluster_serving.job.models.graph.rules.products import einsum, matmul
from cluster_serving.job.models.graph.size import Size, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, displaced, mixed, rows

_PADDING = {"explicit": "NOTSET", "valid": "VALID", "same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER"}
_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def _product(node: Node, values: Values) -> Value:
    one, other = given(values), given(values, 1)
    turns = node.get("transpose_a"), node.get("transpose_b")
    if any(turns) and any(x.kind is not Kind.SIZES and x.rank < 2 for x in (one, other)):
        raise Unknown
    # What depends on the number of records is turned alike.
    pairs = zip((one, other), turns, strict=True)
    return matmul(*(turned(x) if turn and x.kind is not Kind.SIZES else x for x, turn in pairs))


def _summed(node: Node, values: Values) -> Value:
    return einsum(str(node.get("equation")), [given(values, position) for position in range(len(values))])


def _attention(node: Node, values: Values) -> Value:
    """Return attention of queries, keys and values, with a mask and a scale."""
    query, key, value = (given(values, position) for position in range(3))
    if len(values) > 5 or any(x.rank < 3 or x.kind is not Kind.ROWS for x in (query, key, value)):
        raise Unknown
    constant_or_none(values, 4)
    scores = matmul(query, turned(key))
    if scores.kind is Kind.MIXED and not value.is_uniform:
        # A mask may leave each record itself alone.
        return displaced()
    if scores.kind is not Kind.ROWS:
        raise Unknown
    if len(values) > 3:
        sizes = scores.sizes
        scores = elementwise([scores, given(values, 3)])
        if scores.kind is not Kind.ROWS or len(scores.sizes) != len(sizes):
            raise Unknown
    found = matmul(along(scores, [-1]), value)
    if found.kind is not Kind.ROWS:
        raise Unknown
    return found


def _window(node: Node, kernel: list[int | None]) -> windows.Window:
    return windows.Window(
        kernel,
        integers(node, "strides"),
        integers(node, "dilations", [1] * len(kernel)),
        integers(node, "pads_begin") + integers(node, "pads_end"),
        _PADDING[node.get("auto_pad")],
        node.get("rounding_type", "floor") != "floor",
    )


def _convolved(node: Node, values: Values) -> Value:
    """Return a convolution with weights `[channels, …]`, or `[groups, channels, …]`."""
    only_constants(values)
    x, weights = given(values), given(values, 1)
    count = 2 if node.kind == "GroupConvolution" else 1
    if weights.rank != x.rank + count - 1:
        raise Unknown
    channels = weights.sizes[0] if count == 1 else weights.sizes[0].times(weights.sizes[1])
    window = _window(node, [size.number if size.is_number else None for size in weights.sizes[count + 1 :]])
    if windows.moves(x, window):
        return displaced()
    return windows.windowed(x, channels, [window.moved(at, size) for at, size in enumerate(x.sizes[2:])])


def _spread(node: Node, values: Values) -> Value:
    """Return a transposed convolution with weights `[…, channels, …]`, or `[groups, …, channels, …]`."""
    only_constants(values)
    x, weights = given(values), given(values, 1)
    is_grouped = node.kind == "GroupConvolutionBackpropData"
    if weights.rank != x.rank + is_grouped:
        raise Unknown
    channels = weights.sizes[0].times(weights.sizes[2]) if is_grouped else weights.sizes[1]
    return windows.windowed(x, channels, [unknown_size() for _ in x.sizes[2:]])


def _pooled(node: Node, values: Values) -> list[Value]:
    # The places of the largest elements may be counted from the first record of the call.
    (x,) = values
    return [windows.pooled(given([x]), _window(node, [*integers(node, "kernel")]))]


def _recurrent(node: Node, values: Values) -> list[Value]:
    """Return all states, and the last ones, of a layer with the batch in front."""
    states = 2 if node.kind == "LSTMSequence" else 1
    x = given(values)
    if node.version < 5 or len(values) != states + 5 or x.kind is not Kind.ROWS or x.rank != 3 or x.axis == 2:
        raise Unknown
    only_constants(values, states + 2)
    if x.axis == 1:
        if x.is_uniform or given(values, states + 3).is_zero():
            raise Unknown
        return [mixed() for _ in node.outputs]
    # The first states, and the lengths.
    for position in range(1, states + 2):
        value = given(values, position)
        if value.kind is not Kind.ROWS or (value.axis, value.outer, value.inner) != (0, x.outer, x.inner):
            raise Unknown
    directions, hidden = Size(_DIRECTIONS[node.get("direction")]), Size(node.integer("hidden_size"))
    batch, steps = x.sizes[:2]
    last = rows((batch, directions, hidden), 0, x.outer, x.inner)
    return [rows((batch, directions, steps, hidden), 0, x.outer, x.inner), *[last] * states]


OPERATORS = {
    "MatMul": Operator(_product, through, scales=True, takes_sizes=True),
    "Einsum": Operator(_summed, through, scales=True),
    "ScaledDotProductAttention": Operator(_attention),
    **{name: Operator(_convolved, from_first, scales=True) for name in ("Convolution", "GroupConvolution")},
    **{f"{name}BackpropData": Operator(_spread) for name in ("Convolution", "GroupConvolution")},
    "AvgPool": Operator(_pooled, from_first),
    "MaxPool": Operator(_pooled),
    **{f"{name}Sequence": Operator(_recurrent, takes_sizes=True) for name in ("LSTM", "GRU", "RNN")},
}
