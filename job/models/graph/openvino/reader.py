"""Reads the graph of a network that OpenVINO has loaded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from cluster_serving.job.models.graph.network import Graph, Node
from cluster_serving.job.models.graph.openvino.layout import CHECKED
from cluster_serving.job.models.graph.openvino.table import OPERATORS
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.value import MOST_ELEMENTS, Value, constant, small
from cluster_serving.protocol.inputs import Array

_LAST_VERSION = 16
"""Operators of later sets may compute something else."""

_DTYPES = {"boolean", "f16", "f32", "f64", *(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64))}
"""Types whose values numpy has, one in each element."""


def read(
    network: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any], checked: frozenset[str] = frozenset()
) -> Graph:
    """Return the graph of a network.

    Args:
        network: An `openvino.Model`, which the constants of the graph keep alive.
        inputs: Name of an input → its port.
        outputs: Name of an output → its port.
        checked: Names of nodes that get no place outside of their tables.
    """
    nodes = network.get_ordered_ops()
    # No name in a file has this character.
    names = {node.get_name(): f"\0{at}" for at, node in enumerate(nodes)}
    given = {port.get_node().get_name(): name for name, port in inputs.items()}

    def tensor(port: Any) -> str:
        node = port.get_node().get_name()
        return given.get(node) or f"{names[node]}.{port.get_index()}"

    kinds = {node.get_name(): node.get_type_name() for node in nodes}
    return Graph(
        {name: _shape(port.get_partial_shape()) for name, port in inputs.items()},
        {name: tensor(port.get_node().input_value(0)) for name, port in outputs.items()},
        {tensor(node.output(0)): _constant(node) for node in nodes if kinds[node.get_name()] == "Constant"},
        [
            Node(
                _kind(node.get_type_info()),
                node.get_friendly_name(),
                [tensor(port) for port in node.input_values()],
                [tensor(port) for port in node.outputs()],
                _version(node.get_type_info()),
                node.get_attributes() | {CHECKED: node.get_name() in checked},
            )
            for node in nodes
            if kinds[node.get_name()] not in ("Constant", "Parameter", "Result")
        ],
        OPERATORS,
    )


def _version(kind: Any) -> int:
    found = re.fullmatch(r"opset(\d+)", str(kind.version_id))
    return int(found[1]) if found else 0


def _kind(kind: Any) -> str:
    return str(kind.name) if 0 < _version(kind) <= _LAST_VERSION else f"{kind.version_id}.{kind.name}"


def _shape(shape: Any) -> list[int | None] | None:
    if shape.rank.is_dynamic:
        return None
    return [None if size.is_dynamic else size.get_length() for size in shape]


def _constant(node: Any) -> Value:
    sizes = [*node.get_output_shape(0)]
    if len(sizes) < 2 and math.prod(sizes) <= MOST_ELEMENTS:
        array = _array(node)
        if array is not None:
            return small(array)
    return constant([Size(int(size)) for size in sizes], load=partial(_array, node))


def _array(node: Any) -> Array | None:
    """Return the array of a constant; None if its values are packed, or of a type that numpy lacks."""
    if node.get_element_type().get_type_name() not in _DTYPES:
        return None
    return np.asarray(node.data)
