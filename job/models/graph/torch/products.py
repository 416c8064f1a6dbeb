"""Products, attention, convolutions, pools and recurrent layers of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.job.models.graph.network import Flow, Node, Operator, Rule, Values, from_first, stops, through
from cluster_serving.job.models.graph.rules import windows
from cluster_serving.job.models.graph.rules.along import along
from cluster_serving.job.models.graph.rules.elementwise import elementwise
from cluster_serving.job.models.graph.rules.layout import turned
from cluster_serving.job.models.graph.rules.products import einsum, matmul
from cluster_serving.job.models.graph.size import BATCH, Size, unknown_size
from cluster_serving.job.models.graph.torch.arguments import (
    constants,
    flag,
    integers,
    optional,
    sizes,
    tensor,
    tensors,
)
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, displaced, mixed, rows, same_place


def _product(node: Node, values: Values) -> Value:
    one, other = values
    if one is None or other is None:
        raise Unknown
    return matmul(one, other)


def _linear(node: Node, values: Values) -> Value:
    x, weight = tensor(node, values, "input"), tensor(node, values, "weight")
    if weight.rank != 2:
        raise Unknown
    return _added(matmul(x, turned(weight)), optional(node, values, "bias"))


def _added(product: Value, bias: Value | None) -> Value:
    if bias is None or product.kind is Kind.MIXED:
        return product
    found = elementwise([product, bias])
    if found.kind is Kind.MIXED or len(found.sizes) != product.rank:
        raise Unknown
    return found


def _flows_into_product(node: Node, values: Values) -> bool:
    """Return True if what is mixed is the first factor, or the sum, and is not multiplied by zero."""
    weight = optional(node, values, "weight")
    return from_first(node, values) and weight is not None and not weight.is_zero()


def _product_and_sum(node: Node, values: Values) -> Value:
    names = ("mat1", "mat2") if node.kind == "aten.addmm.default" else ("batch1", "batch2")
    if any(type(node.get(name)) not in (int, float) or not node.get(name) for name in ("alpha", "beta")):
        raise Unknown
    one, other = (tensor(node, values, name) for name in names)
    return _added(matmul(one, other), tensor(node, values, "self"))


def _flows_from_factor(node: Node, values: Values) -> bool:
    """Return True if what is mixed is the first factor alone, and the other one has something of each."""
    added, one, other = values
    scales = type(node.get("alpha")) in (int, float) and node.get("alpha")
    if added is None or one is None or other is None or not scales or added.kind is Kind.MIXED:
        return False
    return one.kind is Kind.MIXED and other.kind is Kind.CONSTANT and not other.is_zero()


def _summed(node: Node, values: Values) -> Value:
    given = tensors(node, values, "tensors")
    equation = str(node.get("equation")).replace(" ", "")
    if "->" not in equation:
        letters = equation.replace(",", "")
        equation += "->" + "".join(sorted(letter for letter in {*letters} if letters.count(letter) == 1))
    return einsum(equation, [value for value in given if value is not None])


def _attention(node: Node, values: Values) -> list[Value]:
    """Return attention of queries, keys and values, with a mask."""
    query, key, value = (tensor(node, values, name) for name in ("query", "key", "value"))
    mask = optional(node, values, "attn_mask")
    if node.get("dropout_p") != 0 or node.get("enable_gqa", False) is not False or query.rank < 2:
        raise Unknown
    scores = matmul(query, turned(key))
    if scores.kind is Kind.MIXED:
        # A mask may leave each record itself alone.
        if mask is not None or value.kind is not Kind.ROWS or value.is_uniform:
            raise Unknown
        return [mixed()]
    if mask is not None:
        count = scores.rank
        scores = elementwise([scores, mask])
        if scores.kind is not Kind.ROWS or scores.rank != count:
            raise Unknown
    weights = along(scores, [-1])
    if weights.kind is Kind.MIXED:
        raise Unknown
    found = matmul(weights, value)
    if found.kind is not Kind.ROWS:
        raise Unknown
    return [found]


def _encoded(node: Node, values: Values) -> Value:
    """Return what a layer of a transformer makes of records in front, without a mask."""
    x = tensor(node, values, "src")
    if len(values) != 13 or x.kind is not Kind.ROWS or x.rank != 3 or x.axis != 0 or x.sizes[0] != BATCH:
        raise Unknown
    if any(value is None or value.kind is not Kind.CONSTANT for value in values[1:]):
        raise Unknown
    return same_place(x, x.sizes)


def _attended(node: Node, values: Values) -> list[Value]:
    """Return attention of records in front, without a mask; what each has looked at stays unknown."""
    x, others = tensor(node, values, "query"), [tensor(node, values, name) for name in ("key", "value")]
    if x.rank != 3 or node.get("mask") is not None:
        raise Unknown
    for value in (x, *others):
        if value.kind is not Kind.ROWS or value.rank != 3 or value.axis != 0 or value.sizes[0] != BATCH:
            raise Unknown
    constants(node, values, "qkv_weight", "qkv_bias", "proj_weight", "proj_bias")
    return [same_place(x, x.sizes)]


def _distances(node: Node, values: Values) -> Value:
    one, other = (tensor(node, values, name) for name in ("x1", "x2"))
    found = matmul(one, turned(other))
    return displaced() if found.kind is Kind.MIXED else found


def _dimensions(node: Node) -> int:
    """Return the number of axes of a window, which the name of the operator has."""
    return int(next(letter for letter in node.kind if letter.isdigit()))


def _convolved(node: Node, values: Values) -> Value:
    constants(node, values, "weight", "bias")
    x, weight = tensor(node, values, "input"), tensor(node, values, "weight")
    count = weight.rank - 2
    if x.rank != weight.rank:
        raise Unknown
    groups = Size(node.integer("groups"))
    if "transpose" in node.kind or node.get("transposed", False) is not False:
        return windows.windowed(x, weight.sizes[1].times(groups), [unknown_size() for _ in range(count)])
    padding = node.get("padding")
    window = windows.Window(
        [one.number if one.is_number else None for one in weight.sizes[2:]],
        integers(node, "stride", count),
        integers(node, "dilation", count),
        [0] * 2 * count if isinstance(padding, str) else integers(node, "padding", count) * 2,
        {"same": "SAME_UPPER", "valid": "VALID"}[padding] if isinstance(padding, str) else "NOTSET",
    )
    return windows.convolved(x, weight, optional(node, values, "bias"), window)


def _pooled(node: Node, values: Values) -> list[Value]:
    (x,) = values
    count = _dimensions(node)
    if x is None or x.rank != count + 2:
        # Without the batch, the first axis has channels.
        raise Unknown
    kernel = integers(node, "kernel_size", count)
    window = windows.Window(
        [*kernel],
        integers(node, "stride", count) or kernel,
        integers(node, "dilation", count) if "dilation" in node.attributes else [1] * count,
        integers(node, "padding", count) * 2,
        is_ceil=flag(node, "ceil_mode"),
    )
    return [windows.pooled(x, window)]


def _pooled_to(node: Node, values: Values) -> list[Value]:
    """Return windows that are as many as wanted, or images of another size."""
    x = values[0]
    count = _dimensions(node)
    if x is None or x.rank != count + 2:
        raise Unknown
    factors = node.get("scale_factors")
    if isinstance(factors, list) and windows.scales(x, dict(enumerate(factors, start=2))):
        return [displaced()]
    found: Sequence[Size | None] = [None] * count
    if node.get("output_size") is not None:
        found = sizes(node, values, "output_size")
        found = found * count if len(found) == 1 else found
    if any(one is not None and one.has_batch for one in found):
        raise Unknown
    return [windows.windowed(x, x.sizes[1], [one or unknown_size() for one in found])]


def _sampled(node: Node, values: Values) -> Value:
    """Return images at places that each record has its own of."""
    return windows.sampled(tensor(node, values, "input"), tensor(node, values, "grid"))


def _recurrent(node: Node, values: Values) -> list[Value]:
    """Return all states, and the last ones, of layers that may have the batch in front."""
    x = tensor(node, values, "input")
    states = tensors(node, values, "hx") if isinstance(node.get("hx"), list) else [tensor(node, values, "hx")]
    weights = tensors(node, values, "params")
    if flag(node, "train") or x.rank != 3 or x.kind is not Kind.ROWS or len(weights) < 2:
        raise Unknown
    if any(weight is None or weight.kind is not Kind.CONSTANT for weight in weights):
        raise Unknown
    in_front = flag(node, "batch_first")
    if x.axis == 2:
        raise Unknown
    if x.axis != (0 if in_front else 1):
        return _over_steps(x, weights)
    for state in states:
        if state is None or state.kind is not Kind.ROWS or (state.axis, state.outer, state.inner) != _second(x):
            raise Unknown
    directions = Size(2 if flag(node, "bidirectional") else 1)
    hidden = states[0].sizes[-1].times(directions) if states[0] is not None else unknown_size()
    last = [rows(state.sizes, 1, x.outer, x.inner) for state in states if state is not None]
    return [rows((*x.sizes[:2], hidden), x.axis, x.outer, x.inner), *last]


def _second(x: Value) -> tuple[int, Size, Size]:
    return 1, x.outer, x.inner


def _over_steps(x: Value, weights: Sequence[Value | None]) -> list[Value]:
    """Return the result for records that are the steps of one sequence."""
    if x.is_uniform or any(weight is None or weight.is_zero() for weight in weights[:2]):
        raise Unknown
    return [mixed()]


def _operators(names: str, rule: Rule, flows: Flow = stops, *, scales: bool = False) -> dict[str, Operator]:
    return {name: Operator(rule, flows, scales=scales, takes_sizes=False) for name in names.split()}


OPERATORS = {
    **{
        f"{name}.default": Operator(_product, through, scales=True, takes_sizes=True)
        for name in ("matmul", "mm", "bmm", "mv")
    },
    **_operators("linear.default", _linear, _flows_into_product),
    **_operators("addmm.default baddbmm.default", _product_and_sum, _flows_from_factor),
    **_operators("einsum.default", _summed, through, scales=True),
    **_operators(
        "scaled_dot_product_attention.default _scaled_dot_product_flash_attention_for_cpu.default", _attention
    ),
    **_operators("_transformer_encoder_layer_fwd.default", _encoded),
    **_operators("_native_multi_head_attention.default", _attended),
    **_operators("cdist.default _cdist_forward.default", _distances),
    **_operators(
        "conv1d.default conv2d.default conv3d.default conv1d.padding conv2d.padding conv3d.padding "
        "convolution.default _convolution.default _convolution.deprecated "
        "conv_transpose1d.default conv_transpose2d.input conv_transpose3d.input",
        _convolved,
        _flows_into_product,
    ),
    **_operators("avg_pool1d.default avg_pool2d.default avg_pool3d.default", _pooled, from_first),
    **_operators("max_pool1d.default max_pool2d.default max_pool3d.default max_pool2d_with_indices.default", _pooled),
    **{
        name: Operator(_pooled_to, from_first, takes_sizes=True)
        for name in (
            *(f"{start}adaptive_avg_pool{count}d.default" for start in ("", "_") for count in (1, 2, 3)),
            *(f"adaptive_max_pool{count}d.default" for count in (1, 2, 3)),
            *(
                f"{kind}.{overload}"
                for kind in (
                    "upsample_nearest1d",
                    "upsample_nearest2d",
                    "upsample_nearest3d",
                    "_upsample_nearest_exact2d",
                    "upsample_linear1d",
                    "upsample_bilinear2d",
                    "_upsample_bilinear2d_aa",
                    "upsample_bicubic2d",
                    "upsample_trilinear3d",
                )
                for overload in ("default", "vec")
            ),
        )
    },
    **_operators("grid_sampler.default grid_sampler_2d.default grid_sampler_3d.default", _sampled),
    **_operators("lstm.input gru.input rnn_tanh.input rnn_relu.input", _recurrent),
}
