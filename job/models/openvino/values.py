"""Networks of OpenVINO whose kernels take any values: no value is a place in a tensor, a size, or a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def named(names: str) -> frozenset[str]:
    """Return the names of operators in a text."""
    return frozenset(names.split())


_ANY = named(
    "Abs Acos Acosh Add Asin Asinh Atan Atanh AvgPool BatchNormInference Ceiling Clamp Concat Convert ConvertLike "
    "Convolution ConvolutionBackpropData Cos Cosh Divide Elu Equal Erf Exp FakeQuantize Floor FloorMod Gelu Greater "
    "GreaterEqual GroupConvolution GroupConvolutionBackpropData HardSigmoid HSigmoid HSwish IsFinite IsInf IsNaN Less "
    "LessEqual Log LogicalAnd LogicalNot LogicalOr LogicalXor LogSoftmax LRN MatMul Maximum MaxPool Minimum Mish Mod "
    "Multiply Negative NotEqual Power PRelu Relu Result Round ScaledDotProductAttention Select Selu Sigmoid Sign Sin "
    "Sinh SoftMax Softmax SoftPlus SoftSign Sqrt SquaredDifference Subtract Swish Tan Tanh"
)
"""Operators whose inputs may all have any values."""

_FIRST = named(
    "AdaptiveAvgPool AdaptiveMaxPool Broadcast CumSum DepthToSpace Gather Interpolate MVN NormalizeL2 Pad ReduceL1 "
    "ReduceL2 ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Roll Slice "
    "SpaceToDepth Split Squeeze StridedSlice Tile TopK Transpose Unsqueeze VariadicSplit"
)
"""Operators whose first input may have any values; the others are places or sizes."""

_STEPS = {"GRUCell": 2, "GRUSequence": 2, "LSTMCell": 3, "LSTMSequence": 3, "RNNCell": 2, "RNNSequence": 2}
"""Recurrent layers → number of inputs, data and states, that may have any values; those behind them are sizes."""

_PARTS = {"Loop": 2, "TensorIterator": 0}
"""Operators with a network of their own → number of inputs in front that say how often it is computed."""

_DIVISIONS = named("Divide FloorMod Mod")
"""Operators that end the process where a whole number is divided by 0."""


def takes_any(network: Any, checked: frozenset[str] = frozenset()) -> bool:
    """Return True if no operator takes a value of a record for a place, a size or a condition.

    A kernel may end the process on a wrong place, such as an index that was made of NaN.

    Args:
        network: The network.
        checked: Names of nodes whose places are checked before the network computes.
    """
    fed: set[str] = set()
    for node in network.get_ordered_ops():
        kind, name = node.get_type_name(), node.get_name()
        if kind == "Parameter":
            fed.add(name)
            continue
        # The shape of a tensor does not depend on its values.
        given = [] if kind == "ShapeOf" else [port.get_source_output().get_node().get_name() for port in node.inputs()]
        positions = [index for index, source in enumerate(given) if source in fed]
        if not positions:
            continue
        if not _takes_any(kind, node, positions) and name not in checked:
            return False
        if kind in _DIVISIONS and not node.get_element_type().is_real():
            return False
        fed.add(name)
    return True


def _takes_any(kind: str, node: Any, positions: Sequence[int]) -> bool:
    """Return True if a node takes any values at these positions of its inputs."""
    if kind in _ANY or (kind in _FIRST and list(positions) == [0]):
        return True
    if kind in _STEPS:
        return max(positions) < _STEPS[kind]
    if kind == "If":
        # Either network may be computed.
        return all(takes_any(node.get_function(index)) for index in range(2))
    if kind in _PARTS:
        ends = kind != "Loop" or not _is_endless(node.input_value(0).get_node())
        return ends and min(positions) >= _PARTS[kind] and takes_any(node.get_function())
    return False


def _is_endless(count: Any) -> bool:
    """Return True for a number of rounds without a limit: values alone end such a loop."""
    return count.get_type_name() == "Constant" and int(count.get_data().reshape(-1)[0]) < 0
