"""The error for an index that ONNX Runtime refuses, if it is a value of an input."""

import re
from collections.abc import Mapping
from typing import Any

from cluster_serving.job.models import onnx_shapes_pb2
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

_OUTSIDE = re.compile(
    r"running (\w+) node\. Name:'(.*?)' .*\bidx=(-?\d+) must be within the inclusive range \[(-?\d+),(-?\d+)\]"
)

_SAME = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose output has the values of their first input, and no others."""


class Indices:
    """The inputs that are the indices of nodes.

    Args:
        content: The file.
    """

    def __init__(self, content: bytes) -> None:
        graph = onnx_shapes_pb2.Model.FromString(content).graph
        self._nodes = graph.node
        self._makers = {output: node for node in graph.node for output in node.output}
        # Old files list all constants as inputs, too.
        self._inputs = {port.name for port in graph.input} - {values.name for values in graph.initializer}

    def refusal(self, message: str, record: Mapping[str, Array]) -> InvalidInput | None:
        """Return the error that names the input with the index of a message; None unless it is one input's.

        Nodes may have no name. Then the index may be that of each of them.
        """
        found = _OUTSIDE.search(message)
        if found is None:
            return None
        kind, name, index, least, most = found.groups()
        origins = {self._origin(node.input[1]) for node in self._nodes if (node.op_type, node.name) == (kind, name)}
        names = [origin for origin in origins if origin and (record[origin].astype(int) == int(index)).any()]
        if len(names) != 1 or "" in origins:
            return None
        return InvalidInput(
            f"input {names[0]!r} has {index}, and the model takes whole numbers from {least} to {most} there"
        )

    def _origin(self, tensor: str) -> str:
        """Return the input that has the values of a tensor; empty if the graph computes them."""
        node: Any = self._makers.get(tensor)
        while node is not None and node.op_type in _SAME:
            tensor = node.input[0]
            node = self._makers.get(tensor)
        return tensor if tensor in self._inputs else ""
