"""One-hot encoders of an ONNX model that refuse all values but their categories, and the columns that they encode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cluster_serving.job.models import onnx_shapes_pb2
from cluster_serving.job.models.category import not_a_category, shown
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

ENCODER = "OneHotEncoder"
"""Operator, as a file and an error of ONNX Runtime have it."""

UNKNOWN = "Unknown Category and zeros = 0"
"""ONNX Runtime's message for another value."""

_SAME = frozenset({"Cast", "Flatten", "Identity", "Reshape"})
_CHOSEN = frozenset({"ArrayFeatureExtractor", "Gather"})


class Column(NamedTuple):
    """A column of an input of the model."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Encoder:
    """An encoder that has to know its values.

    Attributes:
        column: What it encodes; None if its values are computed.
        inputs: Names of the inputs that its values come from.
        categories: Texts, or whole numbers, in the order of the file.
    """

    column: Column | None
    inputs: Sequence[str]
    categories: Sequence[str | int]

    def refusal(self, record: Mapping[str, Array]) -> InvalidInput | None:
        """Return the error if the encoder refuses a value of one record; None if it takes it, or cannot tell."""
        if self.column is None:
            return None
        name, at = self.column
        values = record[name].ravel().tolist()
        if at >= len(values) or _text(values[at]) in set(map(str, self.categories)):
            return None
        return not_a_category(name, values[at], self.categories, at if len(values) > 1 else None)

    def doubt(self) -> InvalidInput:
        """Return the error of a value that was computed."""
        names = " or ".join(map(repr, self.inputs))
        return InvalidInput(f"a value of input {names} is not one of the categories: {shown(self.categories)}")


class Encoders:
    """The encoders of a file that refuse other values."""

    def __init__(self, content: bytes) -> None:
        graph = onnx_shapes_pb2.Model.FromString(content).graph
        reader = _Reader(graph)
        self._all = [reader.encoder(node) for node in graph.node if node.op_type == ENCODER and _refuses(node)]

    def __bool__(self) -> bool:
        """True if there is one."""
        return bool(self._all)

    def fill(self, inputs: Mapping[str, Array]) -> None:
        """Put a category in each place of the inputs (batch first) that is encoded."""
        for encoder in self._all:
            if encoder.column is not None:
                array = inputs[encoder.column.name]
                # The model may make texts of numbers.
                category = encoder.categories[0] if array.dtype != object else str(encoder.categories[0])
                with suppress(ValueError):
                    array.reshape(len(array), -1)[:, encoder.column.at] = category

    def refusal(self, record: Mapping[str, Array]) -> InvalidInput | None:
        """Return the error for one record that ONNX Runtime has refused."""
        found = [error for encoder in self._all if (error := encoder.refusal(record))]
        computed = [encoder.doubt() for encoder in self._all if encoder.column is None]
        return next(iter(found or computed), None)


class _Reader:
    """Follows tensors of a graph to the inputs of the model."""

    def __init__(self, graph: Any) -> None:
        self._makers = {output: node for node in graph.node for output in node.output}
        self._constants = {values.name: values for values in graph.initializer}
        # Old files list all constants as inputs, too.
        ports = [port for port in graph.input if port.name not in self._constants]
        self._widths = {port.name: [size.dim_value for size in port.type.tensor_type.shape.dim[1:]] for port in ports}

    def encoder(self, node: Any) -> Encoder:
        """Return the encoder that a node is."""
        attributes = {attribute.name: attribute for attribute in node.attribute}
        texts = attributes["cats_strings"].strings if "cats_strings" in attributes else ()
        numbers = attributes["cats_int64s"].ints if "cats_int64s" in attributes else ()
        return Encoder(
            self._column(node.input[0], 0),
            self._sources(node.input[0]),
            [text.decode("utf-8", "replace") for text in texts] or [*map(int, numbers)],
        )

    def _column(self, tensor: str, at: int) -> Column | None:
        if tensor in self._widths:
            return Column(tensor, at)
        node = self._makers.get(tensor)
        if node is None:
            return None
        if node.op_type in _SAME:
            return self._column(node.input[0], at)
        if node.op_type in _CHOSEN and node.input[1] in self._constants:
            chosen = _numbers(self._constants[node.input[1]])
            return self._column(node.input[0], chosen[at]) if at < len(chosen) else None
        if node.op_type == "Concat":
            for part in node.input:
                if at == 0 or part not in self._widths:
                    return self._column(part, at) if at == 0 else None
                width = int(np.prod(self._widths[part]))
                if at < width:
                    return Column(part, at)
                at -= width
        return None

    def _sources(self, tensor: str) -> list[str]:
        found: set[str] = set()
        waiting = [tensor]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._makers[name].input if name in self._makers else ()
        return [name for name in self._widths if name in found]


def _refuses(node: Any) -> bool:
    """Return True if another value is an error for an encoder; by default it becomes zeros."""
    return any(attribute.name == "zeros" and not attribute.i for attribute in node.attribute)


def _numbers(values: Any) -> list[int]:
    return np.frombuffer(values.raw_data, np.int64).tolist() if values.raw_data else [*map(int, values.int64_data)]


def _text(value: Any) -> str:
    """Return a value as an encoder compares it: a number without its fraction."""
    return str(int(value)) if isinstance(value, float) and np.isfinite(value) else str(value)
