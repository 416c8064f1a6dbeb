"""Reads the graph of an ONNX model from its file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from cluster_serving.job.models import onnx_shapes_pb2
from cluster_serving.job.models.graph.network import Graph, Node
from cluster_serving.job.models.graph.onnx.table import OPERATORS
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.value import MOST_ELEMENTS, Value, constant, small
from cluster_serving.protocol.inputs import Array

_LEAST_VERSION = 7
"""Operators of earlier versions broadcast by attributes, and some compute as in training."""

_EXTERNAL = 1

_DTYPES: dict[int, Any] = {
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
    10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
}  # fmt: skip
"""Type of a tensor in a file → dtype."""


def read(content: bytes, outputs: Mapping[str, str]) -> Graph | None:
    """Return the graph of a model; None if nothing is known about operators of its version.

    Args:
        content: The file.
        outputs: See `Graph`.
    """
    model = onnx_shapes_pb2.Model.FromString(content)
    versions = {_domain(one.domain): int(one.version) for one in model.opset_import}
    if versions.get("", _LEAST_VERSION) < _LEAST_VERSION:
        return None
    graph = model.graph
    # A function of the file may have the name of an operator.
    own = {_kind(one.domain, one.name) for one in model.functions}
    return Graph(
        {info.name: _shape(info.type.tensor_type) for info in graph.input},
        outputs,
        {one.name: _constant(one) for one in graph.initializer},
        [_node(node, versions) for node in graph.node],
        {kind: operator for kind, operator in OPERATORS.items() if kind not in own},
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _kind(domain: str, name: str) -> str:
    domain = _domain(domain)
    return f"{domain}.{name}" if domain else name


def _shape(tensor: Any) -> list[int | None] | None:
    if not tensor.HasField("shape"):
        return None
    # Some converters write -1 for a free size.
    return [int(one.dim_value) if one.dim_value > 0 else None for one in tensor.shape.dim]


def _node(node: Any, versions: dict[str, int]) -> Node:
    return Node(
        _kind(node.domain, node.op_type),
        node.name,
        [*node.input],
        [*node.output],
        versions.get(_domain(node.domain), 0),
        {one.name: _attribute(one) for one in node.attribute},
    )


def _attribute(attribute: Any) -> Any:
    readers = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints"}
    name = readers.get(attribute.type)
    if name is None:
        # Graphs and lists of texts.
        return ...
    value = getattr(attribute, name)
    if name == "t":
        return _constant(value)
    if name == "s":
        return value.decode("utf8", "replace")
    return [*value] if name in ("floats", "ints") else value


def _constant(values: Any) -> Value:
    shape = [Size(int(size)) for size in values.dims]
    load = partial(_array, values)
    if len(shape) < 2 and math.prod(values.dims) <= MOST_ELEMENTS:
        array = load()
        if array is not None:
            return small(array)
    return constant(shape, load=load)


def _array(values: Any) -> Array | None:
    """Return the array of a constant; None if it is in another file, or of another kind."""
    dtype = _DTYPES.get(values.data_type)
    if dtype is None or values.data_location == _EXTERNAL:
        return None
    shape = [int(size) for size in values.dims]
    if values.HasField("raw_data"):
        array = np.frombuffer(values.raw_data, np.dtype(dtype).newbyteorder("<"))
    elif values.data_type == 10:
        # In the bits of whole numbers.
        array = np.array(values.int32_data, np.uint16).view(np.float16)
    else:
        field = {1: values.float_data, 7: values.int64_data, 11: values.double_data}.get(values.data_type)
        if field is None and values.data_type in (12, 13):
            return None
        array = np.array(values.int32_data if field is None else field, dtype)
    return array.reshape(shape) if array.size == np.prod(shape, dtype=int) else None
