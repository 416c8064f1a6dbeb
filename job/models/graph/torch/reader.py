"""Reads the graph of a program that PyTorch has exported."""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

from cluster_serving.job.models.graph.network import Graph, Node, Sizes
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.torch.arguments import Taken
from cluster_serving.job.models.graph.torch.elementwise import POINTWISE
from cluster_serving.job.models.graph.torch.table import NUMBERS, OPERATORS
from cluster_serving.job.models.graph.torch.writes import Step, functional
from cluster_serving.job.models.graph.value import MOST_ELEMENTS, Value, constant, small
from cluster_serving.protocol.inputs import Array

_INLINED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Operators that call a part of the program as it is: name → position of this part, which its inputs follow."""

_NUMBERS = ("self", "other", "exponent")
"""Arguments that may be a number in place of a tensor."""

_NOWHERE = "\0"
"""Name of what no node makes that is read here."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Types of constants; tensors of other types compute in ways of their own."""


def read(module: fx.GraphModule, inputs: Mapping[str, Sizes | None], outputs: Sequence[str]) -> Graph | None:
    """Return the graph of a program; None if it has other inputs or outputs.

    Args:
        module: The module of an `ExportedProgram`, whose parameters the constants of the graph keep alive.
        inputs: Inputs of the program, in order; see `Graph`.
        outputs: Names of all outputs of the program, in order.
    """
    reader = _Reader()
    arguments = _inputs(module)
    if len(arguments) != len(inputs):
        return None
    found = reader.add(module, dict(zip(arguments, inputs, strict=True)))
    if len(found) != len(outputs):
        return None
    nodes, unknown = functional(reader.steps, reader.memory | {name: name for name in inputs}, found)
    return Graph(
        {name: None if name in unknown else sizes for name, sizes in inputs.items()},
        dict(zip(outputs, found, strict=True)),
        {name: value for name, value in reader.constants.items() if name not in unknown},
        nodes,
        {**dict.fromkeys(reader.pointwise, POINTWISE), **OPERATORS},
    )


def _inputs(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


class _Reader:
    """Collects the nodes of a module, and of the parts that it calls.

    Attributes:
        steps: The nodes, in order.
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

    def add(self, module: fx.GraphModule, names: dict[fx.Node, str]) -> list[str]:
        """Add a module whose inputs have these names; return the names of its outputs."""
        results: dict[Any, list[str]] = {}
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self._add_constant(module, node, names)
            elif node.op == "output":
                return [names.get(leaf, _NOWHERE) for leaf in pytree.tree_leaves(node.args[0])]
            elif node.target is operator.getitem:
                found: Any = dict(enumerate(results.get(node.args[0], [])))
                names[node] = found.get(node.args[1], _NOWHERE)
            elif node.op == "call_function":
                results[node] = self._inlined(module, node, names) or self._called(node, names)
                if _count(node) is None:
                    (names[node],) = results[node]
        return []

    def _add_constant(self, module: fx.GraphModule, node: fx.Node, names: dict[fx.Node, str]) -> None:
        tensor = reduce(getattr, str(node.target).split("."), module)
        if type(tensor) in _PLAIN:
            names[node] = self._new(_constant(tensor))
            self.memory[names[node]] = ("constant", tensor.untyped_storage().data_ptr())

    def _inlined(self, module: fx.GraphModule, node: fx.Node, names: dict[fx.Node, str]) -> list[str]:
        """Return the names of the results of a part that is called as it is; nothing for other operators."""
        at = _INLINED.get(node.target.name()) if isinstance(node.target, HigherOrderOperator) else None
        if at is None:
            return []
        part = getattr(module, str(node.args[at].target))
        given = [names.get(one, _NOWHERE) for one in node.args[at + 1 :]]
        return self.add(part, dict(zip(_inputs(part), given, strict=True)))

    def _called(self, node: fx.Node, names: dict[fx.Node, str]) -> list[str]:
        """Add an operator; return the names of its results."""
        name, count = self._new(), _count(node)
        if isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags:
            self.pointwise.add(_kind(node))
        results = [name] if count is None else [f"{name}.{at}" for at in range(count)]
        inputs: list[str] = []
        attributes = {}
        written: list[str] = []
        for argument, value, is_tensor, is_written in _arguments(node):
            start = len(inputs)
            attributes[argument] = self._argument(value, is_tensor, names, inputs)
            written += inputs[start:] if is_written else []
        self.steps.append(Step(Node(_kind(node), _title(node), inputs, results, attributes=attributes), written))
        return results

    def _argument(self, value: Any, is_tensor: bool, names: dict[fx.Node, str], inputs: list[str]) -> Any:
        """Return an argument as a rule takes it, and add what is a tensor to the inputs."""
        if isinstance(value, list | tuple):
            return [self._argument(one, False, names, inputs) for one in value]
        if isinstance(value, fx.Node):
            inputs.append(names.get(value, _NOWHERE))
        elif is_tensor and isinstance(value, bool | int | float):
            inputs.append(self._new(small(np.array(value))))
        else:
            return value
        return Taken(len(inputs) - 1)

    def _new(self, value: Value | None = None) -> str:
        """Return a name that no tensor of the program has, for a constant if there is one."""
        self._count += 1
        name = f"\0{self._count}"
        if value is not None:
            self.constants[name] = value
        return name


def _arguments(node: fx.Node) -> Iterator[tuple[str, Any, bool, bool]]:
    """Yield name and value of each argument, and True for a tensor, and for one to which the operator writes."""
    if not isinstance(node.target, OpOverload):
        # Of other operators than those of Python it is not known to what they write.
        is_written = isinstance(node.target, HigherOrderOperator)
        for at, value in enumerate((*node.args, *node.kwargs.values())):
            yield str(at), value, True, is_written
        return
    for at, argument in enumerate(node.target._schema.arguments):
        value = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        is_tensor = str(argument.type) in ("Tensor", "Optional[Tensor]") or argument.name in _NUMBERS
        yield argument.name, value, is_tensor, argument.alias_info is not None and argument.alias_info.is_write


def _count(node: fx.Node) -> int | None:
    """Return the number of results; None if the result is no list or tuple."""
    if isinstance(node.target, OpOverload):
        types = [str(one.type) for one in node.target._schema.returns]
        if len(types) != 1:
            return len(types)
        if not types[0].startswith("List"):
            return None
    elif not isinstance(node.target, HigherOrderOperator):
        return None
    taken = [user.args[1] for user in node.users if user.target is operator.getitem]
    return 1 + max((at for at in taken if isinstance(at, int)), default=-1)


def _kind(node: fx.Node) -> str:
    if node.target is torch.ops.aten.index.Tensor and not all(map(_has_places, pytree.tree_leaves(node.args[1]))):
        return "mask"
    if getattr(node.target, "__module__", "") == operator.add.__module__:
        return f"{NUMBERS}{getattr(node.target, '__name__', '')}"
    return str(node.target)


def _has_places(index: Any) -> bool:
    """Return True if an index has places, and does not choose elements by True and False."""
    if index is None:
        return True
    example = index.meta.get("val") if isinstance(index, fx.Node) else None
    return isinstance(example, torch.Tensor) and example.dtype in (torch.int32, torch.int64)


def _title(node: fx.Node) -> str:
    """Return the name of a node, with that of its module in front."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    # PyTorch makes up a name with this beginning where there is none.
    module = paths[-1] if paths and not paths[-1].startswith("_empty_nn_module") else ""
    return f"{module}.{node.name}" if module else node.name


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
