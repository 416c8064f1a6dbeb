"""Operators of OpenVINO that compute each element from those at the same place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from cluster_serving.job.models.graph.given import given, only_constants
from cluster_serving.job.models.graph.network import Flow, Node, Operator, Rule, Values, from_first, stops, through
from cluster_serving.job.models.graph.rules import arithmetic
from cluster_serving.job.models.graph.rules.elementwise import elementwise, wrapped
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, same_place
from cluster_serving.protocol.inputs import Array

_FLOATS = ("f16", "bf16", "f32", "f64")
_WIDE = ("f32", "f64", "i32", "i64")
"""Types of a tensor that keep the sizes of others."""


def _is_aligned(node: Node) -> bool:
    """Return True if the shapes of the inputs are aligned at their last axes."""
    return node.get("auto_broadcast", "numpy") in ("numpy", "none")


def _changed(node: Node, values: Values) -> Value:
    (x,) = values
    return same_place(given([x]), given([x]).sizes)


def _first(node: Node, values: Values) -> Value:
    """Return what an operator with parameters makes of its first input."""
    only_constants(values)
    return same_place(given(values), given(values).sizes)


def _same(node: Node, values: Values) -> Value:
    """Return the same tensor, as an operator does that keeps whole numbers."""
    (x,) = values
    if x is not None and x.elements is not None:
        return arithmetic.computed([x], arithmetic.same)
    return _changed(node, values)


def _all(node: Node, values: Values) -> Value:
    if not _is_aligned(node):
        raise Unknown
    return elementwise([given(values, position) for position in range(len(values))])


def _sized(compute: arithmetic.Compute | None) -> Rule:
    """Return a rule for an operator that shapes are made with."""

    def rule(node: Node, values: Values) -> Value:
        inputs = [given(values, position) for position in range(len(values))]
        if _is_aligned(node) and all(value.elements is not None for value in inputs):
            return arithmetic.computed(inputs, compute)
        if not _is_aligned(node):
            raise Unknown
        return wrapped(inputs) if compute is arithmetic.remainder else elementwise(inputs)

    return rule


def _converted(node: Node, values: Values) -> Value:
    x, to = given(values), node.get("destination_type")
    found = _same(node, values) if to in _WIDE else _changed(node, values)
    # Weights are stored as float16, and computed as float32.
    return replace(found, load=partial(_as_float, x)) if to == "f32" and x.kind is Kind.CONSTANT else found


def _as_float(x: Value) -> Array | None:
    array = x.load()
    return None if array is None else array.astype(np.float32)


def _to_float(node: Node, values: Values) -> bool:
    return node.get("destination_type") in _FLOATS


def _aligned(node: Node, values: Values) -> bool:
    return _is_aligned(node)


def _by_choice(node: Node, values: Values) -> bool:
    return _is_aligned(node) and given(values).kind is not Kind.CONSTANT


def _operator(rule: Rule, flows: Flow, *, scales: bool = False) -> Operator:
    return Operator(rule, flows, is_elementwise=True, scales=scales, takes_sizes=True)


_SMOOTH = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu", "HSwish", "Log",
    "Mish", "Relu", "Sigmoid", "Sin", "Sinh", "SoftPlus", "SoftSign", "Sqrt", "Tan", "Tanh",
)  # fmt: skip
_BLUNT = ("Abs", "BitwiseNot", "Clamp", "HSigmoid", "IsFinite", "IsInf", "IsNaN", "LogicalNot", "Sign")
_PAIRS = (
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "FakeQuantize", "LogicalAnd", "LogicalOr", "LogicalXor", "Maximum",
    "Minimum",
)  # fmt: skip
_COMPARISONS = ("Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual")
_WITH_PARAMETERS = ("PRelu", "Swish")


OPERATORS = {
    **{name: Operator(_changed, through, True) for name in _SMOOTH},
    # Of these, what is mixed may be lost.
    **{name: Operator(_changed) for name in _BLUNT},
    **{name: Operator(_all) for name in _PAIRS},
    **{name: Operator(_first, from_first) for name in _WITH_PARAMETERS},
    "HardSigmoid": Operator(_first),
    "Selu": Operator(_first, from_first, scales=True),
    **{name: _operator(_same, stops) for name in ("Ceiling", "Floor", "Round")},
    **{name: _operator(_sized(None), stops) for name in _COMPARISONS},
    "SquaredDifference": Operator(_all, _aligned, True),
    "Power": Operator(_all, _aligned, True, True),
    "Negative": _operator(_sized(None), through),
    "Add": _operator(_sized(arithmetic.added), _aligned),
    "Subtract": _operator(_sized(arithmetic.subtracted), _aligned),
    "Multiply": _operator(_sized(arithmetic.multiplied), _aligned, scales=True),
    "Divide": _operator(_sized(arithmetic.divided), _aligned, scales=True),
    **{name: _operator(_sized(arithmetic.remainder), stops) for name in ("FloorMod", "Mod")},
    "Equal": _operator(_sized(arithmetic.equal), stops),
    "Select": _operator(_sized(arithmetic.chosen), _by_choice),
    "Convert": _operator(_converted, _to_float),
}
