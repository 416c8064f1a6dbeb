"""Reads the graph of a program that PyTorch has exported."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

from cluster_serving.job.models.graph.network import Graph, Sizes
from cluster_serving.job.models.graph.torch.collector import NOWHERE, Argument, Collector, Named
from cluster_serving.job.models.graph.torch.table import NUMBERS

_INLINED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Operators that call a part of the program as it is: name → position of this part, which its inputs follow."""


_INDEXED = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default)


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
    found = reader.add_module(module, dict(zip(arguments, inputs, strict=True)))
    if len(found) != len(outputs):
        return None
    return reader.graph(inputs, dict(zip(outputs, found, strict=True)))


def _inputs(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


class _Reader(Collector):
    """Collects the nodes of a module, and of the parts that it calls."""

    def add_module(self, module: fx.GraphModule, names: dict[fx.Node, str]) -> list[str]:
        """Add a module whose inputs have these names; return the names of its outputs."""
        results: dict[Any, list[str]] = {}
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self._add_constant(module, node, names)
            elif node.op == "output":
                return [names.get(leaf, NOWHERE) for leaf in pytree.tree_leaves(node.args[0])]
            elif node.target is operator.getitem:
                found: Any = dict(enumerate(results.get(node.args[0], [])))
                names[node] = found.get(node.args[1], NOWHERE)
            elif node.op == "call_function":
                results[node] = self._inlined(module, node, names) or self._called(node, names)
                if _count(node) is None:
                    (names[node],) = results[node]
        return []

    def _add_constant(self, module: fx.GraphModule, node: fx.Node, names: dict[fx.Node, str]) -> None:
        names[node] = self.tensor(reduce(getattr, str(node.target).split("."), module))

    def _inlined(self, module: fx.GraphModule, node: fx.Node, names: dict[fx.Node, str]) -> list[str]:
        """Return the names of the results of a part that is called as it is; nothing for other operators."""
        at = _INLINED.get(node.target.name()) if isinstance(node.target, HigherOrderOperator) else None
        if at is None:
            return []
        part = getattr(module, str(node.args[at].target))
        given = [names.get(one, NOWHERE) for one in node.args[at + 1 :]]
        return self.add_module(part, dict(zip(_inputs(part), given, strict=True)))

    def _called(self, node: fx.Node, names: dict[fx.Node, str]) -> list[str]:
        """Add an operator; return the names of its results."""
        if isinstance(node.target, OpOverload) and torch.Tag.pointwise in node.target.tags:
            self.pointwise.add(_kind(node))
        return self.add(_kind(node), _title(node), _arguments(node, names), _count(node))


def _arguments(node: fx.Node, names: Mapping[fx.Node, str]) -> Iterator[Argument]:
    def named(value: Any) -> Any:
        return fx.map_arg(value, lambda one: Named(names.get(one, NOWHERE)))

    if not isinstance(node.target, OpOverload):
        # Of other operators than those of Python it is not known to what they write.
        is_written = isinstance(node.target, HigherOrderOperator)
        for at, value in enumerate((*node.args, *node.kwargs.values())):
            yield Argument(str(at), named(value), True, is_written)
        return
    for at, argument in enumerate(node.target._schema.arguments):
        value = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        yield Argument.of(argument, named(value))


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
    if node.target in _INDEXED and not all(map(_has_places, pytree.tree_leaves(node.args[1]))):
        return "mask"
    if getattr(node.target, "__module__", "") in (operator.add.__module__, torch.sym_float.__module__):
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
