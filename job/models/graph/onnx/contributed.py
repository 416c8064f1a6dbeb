"""Operators of ONNX Runtime (`com.microsoft`), which its optimizers and converters write."""

from __future__ import annotations

from cluster_serving.job.models.graph.given import constant_or_none, given, only_constants, optional
from cluster_serving.job.models.graph.network import Node, Operator, Values, through
from cluster_serving.job.models.graph.rules.along import along
from cluster_serving.job.models.graph.rules.elementwise import elementwise
from cluster_serving.job.models.graph.rules.products import matmul
from cluster_serving.job.models.graph.size import BATCH, Size
from cluster_serving.job.models.graph.value import UNKNOWN, Kind, Unknown, Value, same_place

_DOMAIN = "com.microsoft."


def _all(node: Node, values: Values) -> Value:
    return elementwise([value for value in values if value is not None])


def _normalized_sum(node: Node, values: Values) -> list[Value]:
    """Return the normalized sum of two tensors and a bias, and the sum."""
    only_constants(values, 2)
    bias = (
        values[4:5] if node.kind.endswith("SkipLayerNormalization") and "Simplified" not in node.kind else values[3:4]
    )
    total = elementwise([value for value in (*values[:2], *bias) if value is not None])
    return [along(total, [-1]), UNKNOWN, UNKNOWN, total]


def _product(node: Node, values: Values) -> Value:
    if any(node.integer(name, 0) for name in ("transA", "transB", "transBatchA", "transBatchB")):
        raise Unknown
    one, other = values
    return matmul(given([one]), given([other]))


def _attention(node: Node, values: Values) -> list[Value]:
    x, weights = given(values), given(values, 1)
    constant_or_none(values, 1)
    constant_or_none(values, 2)
    if any(value is not None for value in values[4:]) or "qkv_hidden_sizes" in node.attributes:
        raise Unknown
    if x.rank != 3 or x.kind is not Kind.ROWS or x.axis != 0 or x.sizes[0] != BATCH:
        raise Unknown
    mask = optional(values, 3)
    if mask is not None and (mask.kind is not Kind.ROWS or mask.axis != 0 or mask.sizes[0] != BATCH):
        raise Unknown
    hidden = weights.sizes[1].over(Size(3))
    if hidden is None:
        raise Unknown
    return [same_place(x, (*x.sizes[:2], hidden))]


OPERATORS = {
    **{f"{_DOMAIN}{name}": Operator(_all, through, True) for name in ("BiasGelu", "FastGelu", "Gelu", "QuickGelu")},
    **{
        f"{_DOMAIN}{name}": Operator(_normalized_sum)
        for name in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    },
    f"{_DOMAIN}FusedMatMul": Operator(_product, through, scales=True),
    f"{_DOMAIN}Attention": Operator(_attention),
}
