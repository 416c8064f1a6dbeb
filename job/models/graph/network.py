"""The graph of a model, as the readers of the engines describe it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster_serving.job.models.graph.value import Kind, Unknown, Value
from cluster_serving.protocol.inputs import Array


@dataclass(frozen=True, slots=True)
class Node:
    """An operator of a graph.

    Attributes:
        kind: Name of the operator, with its domain in front if that is not the engine's own.
        name: Name of the node.
        inputs: Names of the tensors that it takes; empty for one that is left out.
        outputs: Names of the tensors that it makes.
        version: Version of the set of operators.
        attributes: Attributes, which are numbers, texts, lists of them, constants (`Value`) and graphs.
    """

    kind: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    version: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.name or next(iter(self.outputs), '')!r}"

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an attribute that is a whole number; raise `Unknown` if there is none."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise Unknown
        return value


_BOUNDED = ("greater", "less", "equal", "clip", "clamp", "bucketize", ".gt", ".ge", ".lt", ".le", ".eq")
"""Parts of the names of operators that compare numbers with others."""

_PASSING = ("identity", "cast", "convert", ".lift_fresh", ".detach", ".clone", ".alias", "._to_copy")
"""Parts of the names of operators that return their input."""

_DIRECTIONS = 3
"""Recurrent layers have fewer directions."""

Values = Sequence[Value | None]
"""Inputs of a node; None for one that is left out."""

Rule = Callable[[Node, Values], Value | Sequence[Value]]
"""Returns what is known of the outputs of a node, or of the first ones; raises `Unknown` if nothing is."""


Flow = Callable[[Node, Values], bool]
"""Returns True if the inputs of a node that are mixed reach its outputs."""


def stops(node: Node, values: Values) -> bool:
    """Return False: the operator makes something unknown of mixed tensors."""
    return False


def through(node: Node, values: Values) -> bool:
    """Return True: what is mixed reaches the outputs from all inputs."""
    return True


def from_first(node: Node, values: Values) -> bool:
    """Return True if what is mixed is the first input alone."""
    return all(value is None or value.kind is not Kind.MIXED for value in values[1:])


@dataclass(frozen=True, slots=True)
class Operator:
    """What nodes of one kind do to rows.

    Attributes:
        rule: See `Rule`. It gets constants and rows, and raises `Unknown` for what it was not made for.
        flows: See `Flow`.
        is_elementwise: The output has the shape that the inputs have in common.
        scales: What is mixed is multiplied by the other inputs, and lost if these are zero.
        picks: The operator takes some elements of its first input.
        moves: The operator takes or puts elements by places that are an input: records may come back to their own.
        takes_sizes: The rule takes numbers that depend on the number of records, too.
        takes_all: The rule takes tensors of all kinds but `UNKNOWN`.
        decides: The rule takes tensors of all kinds, and says all that is known.
    """

    rule: Rule
    flows: Flow = stops
    is_elementwise: bool = False
    scales: bool = False
    picks: bool = False
    moves: bool = False
    takes_sizes: bool = False
    takes_all: bool = False
    decides: bool = False


Sizes = Sequence[int | str | None]
"""Sizes of an input: a number, a text for a size that is equal wherever the text is, or None for one that is free."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The operators of a model.

    Attributes:
        inputs: Input → sizes; None where not even their number is known.
        outputs: Output of the model → name of its tensor.
        constants: Tensors that the graph has from the start.
        nodes: Operators, each behind those whose tensors it takes.
        operators: The table of the known operators.
    """

    inputs: Mapping[str, Sizes | None]
    outputs: Mapping[str, str]
    constants: Mapping[str, Value]
    nodes: Sequence[Node]
    operators: Mapping[str, Operator]

    def matrix_sizes(self, most: int, largest: int) -> list[int]:
        """Return at most `most` sizes of the first weights, and no size above `largest`."""
        found: dict[int, None] = {}
        for node in self.nodes:
            for name in node.inputs:
                value = self.constants.get(name)
                if value is None or value.rank not in (2, 3):
                    continue
                # Those of recurrent layers have the directions, the gates, and what the layer takes.
                recurrent = value.sizes[2:] if value.sizes[0].number < _DIRECTIONS else ()
                sizes = value.sizes if value.rank == 2 else recurrent
                found |= dict.fromkeys(size.number for size in sizes if size.number <= largest)
            if len(found) >= most:
                break
        return [*found][:most]

    def bounds(self, most: int) -> list[Array]:
        """Return up to so many (`most`) small arrays of numbers that something is compared with, or cut off at."""
        constants = {**self.constants}
        found: list[Array] = []
        for node in self.nodes:
            values = [value for value in node.attributes.values() if isinstance(value, Value)]
            if node.kind == "Constant" and values and node.outputs:
                constants[node.outputs[0]] = values[0]
            elif len(node.outputs) == 1 and node.inputs and any(word in node.kind.lower() for word in _PASSING):
                if node.inputs[0] in constants:
                    constants[node.outputs[0]] = constants[node.inputs[0]]
            elif any(word in node.kind.lower() for word in _BOUNDED):
                values = [constants[name] for name in node.inputs if name in constants]
                arrays = [value.load() for value in values if value.has_few()]
                found += [array for array in arrays if array is not None]
                found += [np.array(number) for number in node.attributes.values() if type(number) in (int, float)]
        return [array for array in found if array.size and array.dtype.kind in "fiu"][:most]
