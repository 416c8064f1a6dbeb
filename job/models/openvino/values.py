"""Networks of OpenVINO whose kernels take any values: none of them is a place in a tensor, a size, or a condition."""

from __future__ import annotations

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
"""Operators of which all inputs may have any values."""

_FIRST = named(
    "AdaptiveAvgPool AdaptiveMaxPool Broadcast CumSum DepthToSpace Gather Interpolate MVN NormalizeL2 Pad ReduceL1 "
    "ReduceL2 ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Roll Slice "
    "SpaceToDepth Split Squeeze StridedSlice Tile TopK Transpose Unsqueeze VariadicSplit"
)
"""Operators of which the first input may; the others are places or sizes."""

_DIVISIONS = named("Divide FloorMod Mod")
"""Operators that end the process where a whole number is divided by 0."""


def takes_any(network: Any, checked: frozenset[str] = frozenset()) -> bool:
    """Return True if no operator takes a value of a record for a place, a size or a condition.

    A kernel may end the process on one that is none, such as an index that was made of NaN.

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
        # The shape of a tensor is none of its values.
        given = [] if kind == "ShapeOf" else [port.get_source_output().get_node().get_name() for port in node.inputs()]
        positions = [index for index, source in enumerate(given) if source in fed]
        if not positions:
            continue
        if kind not in _ANY and not (kind in _FIRST and positions == [0]) and name not in checked:
            return False
        if kind in _DIVISIONS and not node.get_element_type().is_real():
            return False
        fed.add(name)
    return True
