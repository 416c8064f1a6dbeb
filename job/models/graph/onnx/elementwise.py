"""Operators of ONNX that compute each element from those at the same place."""

from __future__ import annotations

from cluster_serving.job.models.graph.given import given
from cluster_serving.job.models.graph.network import Flow, Node, Operator, Rule, Values, stops, through
from cluster_serving.job.models.graph.rules import arithmetic
from cluster_serving.job.models.graph.rules.elementwise import elementwise, wrapped
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, same_place

_FLOATS = (1, 10, 11, 16)
_WIDE = (1, 6, 7, 11)
"""Types of a tensor that keep the sizes of others."""


def _unary(node: Node, values: Values) -> Value:
    (x,) = values
    return given([x])


def _changed(node: Node, values: Values) -> Value:
    x = _unary(node, values)
    return same_place(x, x.sizes)


def _same(node: Node, values: Values) -> Value:
    """Return the same tensor, as an operator does that keeps whole numbers."""
    x = _unary(node, values)
    if x.elements is not None:
        return arithmetic.computed([x], arithmetic.same)
    return same_place(x, x.sizes)


def _all(node: Node, values: Values) -> Value:
    return elementwise([given(values, position) for position in range(len(values))])


def _sized(compute: arithmetic.Compute | None) -> Rule:
    """Return a rule for an operator that shapes are made with."""

    def rule(node: Node, values: Values) -> Value:
        inputs = [given(values, position) for position in range(len(values))]
        if all(value.elements is not None for value in inputs):
            return arithmetic.computed(inputs, compute)
        return wrapped(inputs) if compute is arithmetic.remainder else elementwise(inputs)

    return rule


def _limited(node: Node, values: Values) -> Value:
    return elementwise([value for value in values if value is not None])


def _first(node: Node, values: Values) -> Value:
    return same_place(given(values), given(values).sizes)


def _cast(node: Node, values: Values) -> Value:
    x = _unary(node, values)
    return _same(node, values) if node.integer("to") in _WIDE else same_place(x, x.sizes)


def _to_float(node: Node, values: Values) -> bool:
    return node.get("to") in _FLOATS


def _dropped(node: Node, values: Values) -> list[Value]:
    """Return what drops out when a model is served: nothing."""
    training = values[2] if len(values) > 2 else None
    if training is not None and training.number():
        raise Unknown
    return [_first(node, values)]


def _by_choice(node: Node, values: Values) -> bool:
    return given(values).kind is not Kind.CONSTANT


def _operator(rule: Rule, flows: Flow = stops, *, scales: bool = False) -> Operator:
    return Operator(rule, flows, is_elementwise=True, scales=scales, takes_sizes=True)


_SMOOTH = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu", "HardSwish",
    "LeakyRelu", "Log", "Mish", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Swish", "Tan", "Tanh",
)  # fmt: skip
_BLUNT = ("Abs", "BitwiseNot", "HardSigmoid", "IsInf", "IsNaN", "Not", "Shrink", "Sign", "ThresholdedRelu")
_PAIRS = ("And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Max", "Min", "Or", "PRelu", "Xor")

OPERATORS = {
    **{name: Operator(_changed, through, True) for name in _SMOOTH},
    # Of these, what is mixed may be lost.
    **{name: Operator(_changed) for name in _BLUNT},
    **{name: Operator(_all) for name in _PAIRS},
    **{name: _operator(_same) for name in ("Ceil", "Floor", "Round")},
    **{name: _operator(_sized(None)) for name in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")},
    **{name: Operator(_all, through, True) for name in ("Mean", "Sum")},
    "Pow": Operator(_all, through, True, True),
    "Neg": _operator(_sized(None), through),
    "Add": _operator(_sized(arithmetic.added), through),
    "Sub": _operator(_sized(arithmetic.subtracted), through),
    "Mul": _operator(_sized(arithmetic.multiplied), through, scales=True),
    "Div": _operator(_sized(arithmetic.divided), through, scales=True),
    "Mod": _operator(_sized(arithmetic.remainder)),
    "Equal": _operator(_sized(arithmetic.equal)),
    "Where": _operator(_sized(arithmetic.chosen), _by_choice),
    "Identity": _operator(_same, through),
    "Cast": _operator(_cast, _to_float),
    "CastLike": Operator(_first),
    "Clip": Operator(_limited, stops),
    "Dropout": Operator(_dropped, through),
}
