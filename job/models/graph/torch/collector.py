"""Collects the nodes and constants of a graph of PyTorch, whatever format it is read from."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from cluster_serving.job.models.graph.network import Graph, Node, Sizes
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.torch.arguments import Taken
from cluster_serving.job.models.graph.torch.elementwise import POINTWISE
from cluster_serving.job.models.graph.torch.table import OPERATORS
from cluster_serving.job.models.graph.torch.writes import Step, functional
from cluster_serving.job.models.graph.value import MOST_ELEMENTS, Value, constant, small
from cluster_serving.protocol.inputs import Array

NOWHERE = "\0"
"""Name of what no node makes that is read here."""

NUMBERS = ("self", "other", "exponent")
"""Arguments that may be a number in place of a tensor."""

_ALIASES = frozenset(("aten.positive.default", "aten.conj_physical.default"))
"""Pointwise operators that return their input where it is the result."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Types of constants; tensors of other types compute in ways of their own."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a node computes, or a constant tensor: its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an operator.

    Attributes:
        name: Its name in the schema.
        value: Numbers, texts, lists of them, and `Named` for what a node computes.
        is_tensor: A number stands for a tensor.
        is_written: The operator writes to it.
    """

    name: str
    value: Any
    is_tensor: bool = False
    is_written: bool = False

    @classmethod
    def of(cls, declared: Any, value: Any) -> Argument:
        """Return an argument as the schema of an operator declares it."""
        is_tensor = str(declared.type) in ("Tensor", "Optional[Tensor]") or declared.name in NUMBERS
        return cls(declared.name, value, is_tensor, is_written(declared))


def is_written(declared: Any) -> bool:
    """Return True if an operator writes to an argument that its schema declares."""
    return declared.alias_info is not None and declared.alias_info.is_write


class Collector:
    """The nodes of a graph, in order.

    Attributes:
        steps: The nodes.
        constants: See `Graph`.
        memory: Name of a constant → the memory that it is in.
        pointwise: Operators that are so, as PyTorch says.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.constants: dict[str, Value] = {}
        self.memory: dict[str, Hashable] = {}
        self.pointwise: set[str] = set()
        self._count = 0

    def graph(self, inputs: Mapping[str, Sizes | None], outputs: Mapping[str, str]) -> Graph:
        """Return the graph of all nodes; for inputs and outputs see `Graph`."""
        names = [*outputs.values()]
        nodes, unknown = functional(
            self.steps, self.memory | {name: name for name in inputs}, names, self.pointwise - _ALIASES
        )
        return Graph(
            {name: sizes for name, sizes in inputs.items() if name not in unknown},
            outputs,
            {name: value for name, value in self.constants.items() if name not in unknown},
            nodes,
            {**dict.fromkeys(self.pointwise, POINTWISE), **OPERATORS},
        )

    def new(self, value: Value | None = None) -> str:
        """Return a name that no tensor of the program has, for a constant if there is one."""
        self._count += 1
        name = f"\0{self._count}"
        if value is not None:
            self.constants[name] = value
        return name

    def tensor(self, tensor: object) -> str:
        """Return the name of a constant; `NOWHERE` for one that computes in ways of its own."""
        if not isinstance(tensor, torch.Tensor) or type(tensor) not in _PLAIN or tensor.layout != torch.strided:
            return NOWHERE
        name = self.new(_constant(tensor))
        self.memory[name] = ("constant", tensor.untyped_storage().data_ptr())
        return name

    def add(self, kind: str, title: str, arguments: Iterable[Argument], count: int | None = None) -> list[str]:
        """Add a node; return the names of its results: one, or as many as `count`."""
        name = self.new()
        results = [name] if count is None else [f"{name}.{at}" for at in range(count)]
        inputs: list[str] = []
        attributes = {}
        written: list[str] = []
        for one in arguments:
            start = len(inputs)
            attributes[one.name] = self._taken(one.value, one.is_tensor, inputs)
            written += inputs[start:] if one.is_written else []
        self.steps.append(Step(Node(kind, title, inputs, results, attributes=attributes), written))
        return results

    def _taken(self, value: Any, is_tensor: bool, inputs: list[str]) -> Any:
        """Return an argument as a rule takes it, and add what is a tensor to the inputs."""
        if isinstance(value, list | tuple):
            return [self._taken(one, False, inputs) for one in value]
        if isinstance(value, Named):
            inputs.append(value.name)
        elif is_tensor and isinstance(value, bool | int | float):
            inputs.append(self.new(small(np.array(value))))
        else:
            return value
        return Taken(len(inputs) - 1)


def _constant(tensor: torch.Tensor) -> Value:
    if tensor.ndim < 2 and math.prod(tensor.shape) <= MOST_ELEMENTS:
        array = _array(tensor)
        if array is not None:
            return small(array)
    return constant([Size(size) for size in tensor.shape], load=partial(_array, tensor))


def _array(tensor: torch.Tensor) -> Array | None:
    """Return the array of a constant; None if numpy has no such array."""
    plain = tensor.detach()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float32, torch.float64):
        plain = plain.float()
    try:
        array: Array = plain.cpu().numpy()
    except (RuntimeError, TypeError):
        return None
    return array
