"""Operators of PyTorch that compute each element from those at the same place, and numbers of elements."""

from __future__ import annotations

from cluster_serving.job.models.graph.network import Flow, Node, Operator, Rule, Values, from_first, stops, through
from cluster_serving.job.models.graph.rules import arithmetic
from cluster_serving.job.models.graph.rules.along import axis_of, resized
from cluster_serving.job.models.graph.rules.elementwise import elementwise, wrapped
from cluster_serving.job.models.graph.size import ONE, Size, product, unknown_size
from cluster_serving.job.models.graph.torch.arguments import constants, flag, tensor
from cluster_serving.job.models.graph.value import UNKNOWN, Kind, Unknown, Value, same_place


def changed(node: Node, values: Values) -> Value:
    """Return the result for the only tensor."""
    (x,) = values
    if x is None:
        raise Unknown
    return same_place(x, x.sizes)


def _all(node: Node, values: Values) -> Value:
    return elementwise([value for value in values if value is not None])


def _wrapped(node: Node, values: Values) -> Value:
    return wrapped([value for value in values if value is not None])


def _scaled(node: Node, values: Values) -> Value:
    """Return a sum, or a difference, with one part multiplied by a number."""
    _check_scale(node)
    return _all(node, values)


def _check_scale(node: Node) -> None:
    if type(node.get("alpha", 1)) not in (int, float):
        raise Unknown


def _flows_scaled(node: Node, values: Values) -> bool:
    _check_scale(node)
    return bool(node.get("alpha", 1))


def _is_exact(node: Node, values: Values) -> bool:
    return node.get("rounding_mode") is None


def _first(node: Node, values: Values) -> Value:
    """Return the first tensor with another type, which may be that of the second one."""
    x = values[0]
    if x is None:
        raise Unknown
    return same_place(x, x.sizes)


def _stays_float(node: Node, values: Values) -> bool:
    dtype = node.get("dtype")
    return dtype is None or bool(getattr(dtype, "is_floating_point", False))


def _by_choice(node: Node, values: Values) -> bool:
    return tensor(node, values, "condition").kind is not Kind.CONSTANT


def _kept(node: Node, values: Values) -> list[Value]:
    """Return what drops out when a model is served: nothing."""
    return [changed(node, values), UNKNOWN][: len(node.outputs)]


def _drops_nothing(node: Node, values: Values) -> bool:
    return not flag(node, "train")


def _dropped(node: Node, values: Values) -> list[Value]:
    if not _drops_nothing(node, values):
        raise Unknown
    return _kept(node, values)


def _by_channel(node: Node, values: Values) -> Value:
    """Return numbers that are multiplied by one weight for each channel, which is the second axis, if negative."""
    constants(node, values, "weight")
    x, weight = tensor(node, values, "self"), tensor(node, values, "weight")
    if x.kind is Kind.ROWS and x.axis == 1 and product(weight.sizes) != ONE:
        raise Unknown
    return same_place(x, x.sizes)


def _gated(node: Node, values: Values) -> Value:
    """Return one half of an axis, times the other."""
    x = tensor(node, values, "self")
    axis = axis_of(node.integer("dim"), x.rank)
    if x.kind is Kind.ROWS and x.axis == axis:
        raise Unknown
    return resized(x, axis, x.sizes[axis].over(Size(2)) or unknown_size())


def _number(compute: arithmetic.Compute | None) -> Rule:
    """Return a rule for an operator on numbers of elements."""

    def rule(node: Node, values: Values) -> Value:
        return arithmetic.computed([value for value in values if value is not None], compute)

    return rule


def _size(compute: arithmetic.Compute) -> arithmetic.Compute:
    """Return a function that gives a result of sizes a symbol if it has no symbol, and is the same for all calls."""

    def computed(one: Size, other: Size) -> Size | None:
        found = compute(one, other)
        is_same = not (one.has_batch or other.has_batch) and one.number >= 0 <= other.number
        return unknown_size() if found is None and is_same else found

    return computed


def _not(compute: arithmetic.Compute) -> arithmetic.Compute:
    """Return a function that says the opposite of a comparison."""

    def computed(one: Size, other: Size) -> Size | None:
        found = compute(one, other)
        return None if found is None else Size(1 - found.number)

    return computed


def _operators(names: str, rule: Rule, flows: Flow = stops, *, scales: bool = False) -> dict[str, Operator]:
    takes_sizes = rule in (_all, _scaled, _wrapped)
    operator = Operator(rule, flows, is_elementwise=True, scales=scales, takes_sizes=takes_sizes)
    return dict.fromkeys(names.split(), operator)


def _overloads(names: str, *overloads: str) -> str:
    return " ".join(f"{name}.{overload}" for name in names.split() for overload in overloads)


_SMOOTH = (
    "acos acosh asin asinh atan atanh celu cos cosh elu erf erfc erfinv exp exp2 expm1 gelu hardswish leaky_relu "
    "log log10 log1p log2 log_sigmoid logit mish neg reciprocal relu rsqrt selu sigmoid silu sin sinc sinh softplus "
    "sqrt square tan tanh"
)
_BLUNT = "abs ceil clamp clamp_max clamp_min floor hardsigmoid hardtanh relu6 round trunc"
_COMPARISONS = "eq ge gt le lt ne bitwise_and bitwise_or bitwise_xor"
_PAIRS = "copysign floor_divide maximum minimum"
_SIGNS = "__and__ __or__ __xor__ __lshift__ __rshift__"

UNEXPLAINED = ("truediv", "neg", "mod", "pow", "any")
"""Operators on numbers whose results are not known, but for what they depend on; `any` is any other operator."""

POINTWISE = Operator(_all, takes_sizes=True)
"""An operator of which PyTorch says that it is pointwise."""

OPERATORS = {
    **_operators(_overloads(_SMOOTH, "default"), changed, through),
    # Of these, what is mixed may be lost.
    **_operators(_overloads(_BLUNT, "default"), changed),
    **_operators(_overloads(_COMPARISONS, "Tensor", "Scalar"), _all),
    **_operators(_overloads("fmod remainder", "Tensor", "Scalar"), _wrapped),
    **_operators(_overloads(_PAIRS, "default"), _all),
    **_operators(_overloads(_SIGNS, "Tensor", "Scalar"), _all),
    **_operators("clamp.Tensor masked_fill.Scalar masked_fill.Tensor lerp.Scalar lerp.Tensor", _all),
    **_operators("addcmul.default addcdiv.default", _all),
    **_operators(_overloads("add sub rsub", "Tensor", "Scalar"), _scaled, _flows_scaled),
    **_operators("mul.Tensor mul.Scalar", _all, through, scales=True),
    **_operators("div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode", _all, _is_exact, scales=True),
    **_operators("pow.Tensor_Scalar pow.Tensor_Tensor", _all, from_first, scales=True),
    **_operators("pow.Scalar", _all),
    **_operators("where.self where.ScalarOther where.ScalarSelf where.Scalar", _all, _by_choice),
    **_operators(
        "to.dtype to.device to.dtype_layout _to_copy.default to.prim_dtype to.prim_Device",
        changed,
        _stays_float,
    ),
    **_operators("to.other type_as.default", _first),
    **_operators(_overloads("dropout alpha_dropout feature_dropout native_dropout", "default"), _dropped),
    **_operators("prelu.default _prelu_kernel.default", _by_channel),
    **_operators("glu.default", _gated),
    "operator.add": Operator(_number(_size(arithmetic.added)), through, takes_sizes=True),
    "operator.sub": Operator(_number(arithmetic.subtracted), through, takes_sizes=True),
    "operator.mul": Operator(_number(arithmetic.multiplied), through, takes_sizes=True),
    "operator.floordiv": Operator(_number(_size(arithmetic.divided)), through, takes_sizes=True),
    "operator.sym_float": Operator(_number(arithmetic.same), through, takes_sizes=True),
    "operator.eq": Operator(_number(arithmetic.equal), takes_sizes=True),
    "operator.ne": Operator(_number(_not(arithmetic.equal)), takes_sizes=True),
    "operator.lt": Operator(_number(arithmetic.less), takes_sizes=True),
    "operator.gt": Operator(_number(lambda one, other: arithmetic.less(other, one)), takes_sizes=True),
    "operator.ge": Operator(_number(_not(arithmetic.less)), takes_sizes=True),
    "operator.le": Operator(_number(_not(lambda one, other: arithmetic.less(other, one))), takes_sizes=True),
    "operator.not": Operator(_number(lambda one: arithmetic.equal(one, Size(0))), takes_sizes=True),
    **{f"operator.{name}": Operator(_number(None), through, takes_sizes=True) for name in UNEXPLAINED},
}
