"""Quantization in ONNX. A scale that is computed from the whole call mixes its records."""

from __future__ import annotations

from cluster_serving.job.models.graph.given import constant_or_none, given, only_constants, optional
from cluster_serving.job.models.graph.network import Node, Operator, Values, through
from cluster_serving.job.models.graph.onnx.products import convolution
from cluster_serving.job.models.graph.rules.along import axis_of
from cluster_serving.job.models.graph.rules.elementwise import elementwise
from cluster_serving.job.models.graph.rules.products import matmul
from cluster_serving.job.models.graph.rules.windows import pooled_globally
from cluster_serving.job.models.graph.size import ONE, product
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, mixed, same_place


def _scaled(node: Node, values: Values) -> Value:
    """Return numbers with another scale; those of an axis may each have their own."""
    x, scale = given(values), given(values, 1)
    only_constants(values)
    if x.kind is Kind.CONSTANT or product(scale.sizes) == ONE:
        return same_place(x, x.sizes)
    if node.integer("block_size", 0) or axis_of(node.integer("axis", 1), x.rank) == x.axis or scale.rank != 1:
        raise Unknown
    return same_place(x, x.sizes)


def _by_the_call(node: Node, values: Values) -> list[Value]:
    x = given(values)
    if x.kind is not Kind.ROWS or x.is_uniform:
        raise Unknown
    return [mixed(x.sizes, is_whole=True), mixed((), is_whole=True), mixed((), is_whole=True)]


def _one_each(values: Values, *positions: int) -> None:
    """Raise `Unknown` if one of these inputs is not one constant number."""
    for position in positions:
        value = constant_or_none(values, position)
        if value is not None and product(value.sizes) != ONE:
            raise Unknown


def _whole_product(node: Node, values: Values) -> Value:
    _one_each(values, 2, 3)
    return matmul(given(values), given(values, 1))


def _scaled_product(node: Node, values: Values) -> Value:
    _one_each(values, 1, 2, 4, 5, 6, 7)
    return matmul(given(values), given(values, 3))


def _dynamic_product(node: Node, values: Values) -> Value:
    only_constants(values)
    if given(values).kind is not Kind.ROWS or given(values).is_uniform or given(values, 1).is_zero():
        raise Unknown
    return mixed()


def _dynamic_layer(node: Node, values: Values) -> list[Value]:
    """Return states of a recurrent layer that rounds all records of a call by one scale."""
    only_constants(values, 8)
    if given(values).kind is not Kind.ROWS or given(values).is_uniform or given(values, 1).is_zero():
        raise Unknown
    return [mixed()] * len(node.outputs)


def _convolved(node: Node, values: Values) -> Value:
    _one_each(values, 1, 2, 6, 7)
    only_constants(values, 3)
    return convolution(node, given(values), given(values, 3), optional(values, 8))


def _both(node: Node, values: Values) -> Value:
    _one_each(values, 1, 2, 4, 5, 6, 7)
    return elementwise([given(values), given(values, 3)])


def _one(node: Node, values: Values) -> Value:
    _one_each(values, 1, 2, 3, 4)
    return same_place(given(values), given(values).sizes)


def _pooled(node: Node, values: Values) -> Value:
    _one_each(values, 1, 2, 3, 4)
    if node.integer("channels_last", 0):
        raise Unknown
    return pooled_globally(given(values))


_OWN = "com.microsoft."

OPERATORS = {
    "QuantizeLinear": Operator(_scaled),
    "DequantizeLinear": Operator(_scaled, through),
    f"{_OWN}QuantizeLinear": Operator(_scaled),
    f"{_OWN}DequantizeLinear": Operator(_scaled, through),
    "DynamicQuantizeLinear": Operator(_by_the_call),
    "MatMulInteger": Operator(_whole_product, through),
    "QLinearMatMul": Operator(_scaled_product),
    "QLinearConv": Operator(_convolved),
    f"{_OWN}DynamicQuantizeMatMul": Operator(_dynamic_product),
    f"{_OWN}DynamicQuantizeLSTM": Operator(_dynamic_layer),
    f"{_OWN}QLinearAdd": Operator(_both),
    f"{_OWN}QLinearMul": Operator(_both),
    f"{_OWN}QLinearSigmoid": Operator(_one),
    f"{_OWN}QLinearLeakyRelu": Operator(_one),
    f"{_OWN}QLinearGlobalAveragePool": Operator(_pooled),
}
