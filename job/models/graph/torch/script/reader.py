"""Reads the graph of a TorchScript module."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cluster_serving.job.models.graph.network import Graph
from cluster_serving.job.models.graph.torch.collector import NOWHERE, Argument, Named, is_written
from cluster_serving.job.models.graph.torch.script.items import Fixed, Items
from cluster_serving.job.models.graph.torch.script.lists import ListCollector
from cluster_serving.job.models.graph.torch.script.nodes import is_of_lists, parsed, taken, title
from cluster_serving.job.models.graph.torch.script.numbers import PLACES
from cluster_serving.job.models.graph.torch.table import NUMBERS

_MOST_ROUNDS, _MOST_NODES = 64, 20_000
"""Loops of more rounds, or in larger programs, are not followed round by round."""

_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip
"""Number of a dtype in TorchScript → dtype."""

_NUMBERED = re.compile(r"prim::NumToTensor|aten::(Bool|item|tensor|scalar_tensor|(Int|Float|Scalar)(Implicit)?)")
"""Operators that make a number of a tensor, or a tensor of a number."""

_INDEXED = frozenset(("aten::index", "aten::index_put", "aten::index_put_"))
_LISTED = frozenset(("aten::len", "aten::__getitem__", "aten::slice"))
_SAME = frozenset(("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional"))
_OF_NUMBERS = frozenset(("int", "float", "bool", "number", "complex", "str", "Optional[int]", "Optional[float]"))
"""Types of arguments of operators on numbers."""


class _Lost(Exception):
    """The outputs of the module are in a form that is not read."""


def read(module: Any, inputs: Mapping[str, str]) -> Graph | None:
    """Return the graph of the method `forward`; None if its outputs are in a form that is not known.

    Args:
        module: The module. The constants of the graph keep its parameters alive.
        inputs: Arguments that are given → dtype, or nothing if that is not known.
    """
    reader = _Reader(module, inputs)
    try:
        outputs = reader.outputs()
    except _Lost:
        return None
    return reader.graph(dict.fromkeys(inputs), outputs)


class _Reader(ListCollector):
    """Follows a method from node to node.

    Args:
        module: See `read`.
        inputs: See `read`.
    """

    def __init__(self, module: Any, inputs: Mapping[str, str]) -> None:
        super().__init__({name for name, dtype in inputs.items() if dtype in ("int32", "int64")})
        self._graph = module.inlined_graph
        self._set = {node.s("name") for node in self._graph.findAllNodes("prim::SetAttr")}
        self._values: dict[str, Any] = {}
        self._special: Mapping[str, Callable[[Any], Sequence[Any]]] = {
            "prim::Constant": self._constant_node,
            "prim::GetAttr": self._attribute,
            "prim::SetAttr": lambda node: [],
            "prim::ListConstruct": self._list_of,
            "prim::TupleConstruct": lambda node: [tuple(self._of(value) for value in node.inputs())],
            "prim::DictConstruct": self._dict_of,
            "prim::ListUnpack": self._unpacked,
            "prim::TupleUnpack": self._unpacked,
            "prim::TupleIndex": self._part,
            "prim::Uninitialized": lambda node: [Named(NOWHERE)],
            "prim::If": self._choice,
            "prim::Loop": self._loop,
        }
        first, *given = self._graph.inputs()
        self._values[first.debugName()] = module
        arguments = module.forward.schema.arguments[1:]
        for value, argument in zip(given, arguments, strict=True):
            is_given = argument.name in inputs
            self._values[value.debugName()] = Named(argument.name) if is_given else argument.default_value

    def outputs(self) -> dict[str, str]:
        """Add all nodes; return the outputs and the names of their tensors."""
        self._add_block(self._graph)
        (result,) = [self._of(value) for value in self._graph.outputs()]
        if isinstance(result, Named):
            kind = next(iter(self._graph.outputs())).type().kind()
            if kind != "TensorType":
                raise _Lost
            return {"output": result.name}
        if isinstance(result, Items):
            if result.whole is not None:
                raise _Lost
            result = result.items
        named = result if isinstance(result, dict) else {f"output_{at}": one for at, one in enumerate(result)}
        if not all(isinstance(one, Named) for one in named.values()):
            raise _Lost
        return {str(name): one.name for name, one in named.items()}

    def _of(self, value: Any) -> Any:
        return self._values.get(value.debugName(), Named(NOWHERE))

    def _add_block(self, block: Any) -> bool:
        """Add the nodes of a block; return False if it ends in an error."""
        for node in block.nodes():
            if node.kind() == "prim::RaiseException":
                return False
            found = self._results(node)
            for value, one in zip(node.outputs(), found, strict=True):
                self._values[value.debugName()] = one
        return True

    def _results(self, node: Any) -> Sequence[Any]:
        """Return what a node computes."""
        kind = node.kind()
        special = self._special.get(kind)
        if special is not None:
            return special(node)
        given = [self._of(value) for value in node.inputs()]
        if kind in _SAME:
            return given[:1]
        if kind in ("prim::device", "prim::dtype", "prim::layout", "prim::is_cuda", "aten::is_floating_point"):
            return [Fixed()]
        if kind in ("aten::__is__", "aten::__isnot__") and (found := self._is_none(node, given)) is not None:
            return [found == (kind == "aten::__is__")]
        if kind in ("aten::append", "aten::_set_item") or (kind in _LISTED and is_of_lists(node)):
            listed = self._of_list(node, given)
            return self._called(node, given) if listed is None else listed
        if kind == "aten::add" and is_of_lists(node):
            return [self._joined(given)]
        if _NUMBERED.fullmatch(kind):
            return self._numbered(node, given)
        return self._called(node, given)

    def _constant_node(self, node: Any) -> list[Any]:
        value = node.output().toIValue() if node.attributeNames() else None
        return [self._constant(value)]

    def _constant(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            name = self.tensor(value)
            if value.dtype in PLACES:
                self._whole.add(name)
            return Named(name)
        if isinstance(value, list | tuple):
            found = [self._constant(one) for one in value]
            return Items(found) if isinstance(value, list) else tuple(found)
        if isinstance(value, dict):
            return Items({key: self._constant(one) for key, one in value.items()})
        return value

    def _attribute(self, node: Any) -> list[Any]:
        name = node.s("name")
        owner = self._of(node.input())
        if name in self._set or isinstance(owner, Named):
            return [Named(NOWHERE)]
        found = self._constant(getattr(owner, name, Named(NOWHERE)))
        # Constants of the graph do not change; attributes may.
        return [self._list(found.items) if isinstance(found, Items) else found]

    def _list_of(self, node: Any) -> list[Any]:
        return [self._list([self._of(value) for value in node.inputs()])]

    def _dict_of(self, node: Any) -> list[Any]:
        given = [self._of(value) for value in node.inputs()]
        if all(isinstance(key, str | int) for key in given[::2]):
            return [self._list(dict(zip(given[::2], given[1::2], strict=True)))]
        return [self._opaque(given)]

    def _unpacked(self, node: Any) -> list[Any]:
        given, count = self._of(node.input()), node.outputsSize()
        if isinstance(given, Items) and given.whole is None and len(given.items) >= count:
            return list(given.items)[:count]
        if isinstance(given, tuple) and len(given) == count:
            return [*given]
        return [self._item(given, at) for at in range(count)]

    def _part(self, node: Any) -> list[Any]:
        given, place = (self._of(value) for value in node.inputs())
        if isinstance(given, tuple) and isinstance(place, int):
            return [given[place]]
        return [self._opaque([given])]

    def _choice(self, node: Any) -> list[Any]:
        condition = self._of(node.input())
        blocks = [*node.blocks()]
        if isinstance(condition, bool):
            block = blocks[0 if condition else 1]
            self._add_block(block)
            return [self._of(value) for value in block.outputs()]
        self._forget(node)
        ends = [self._add_block(block) for block in blocks]
        one, other = ([self._of(value) for value in block.outputs()] for block in blocks)
        if all(ends):
            return [self._either(self._named(condition), *pair) for pair in zip(one, other, strict=True)]
        return one if ends[0] else other

    def _either(self, condition: Named, one: Any, other: Any) -> Any:
        """Return what is one or the other by a condition."""
        if one is other or (type(one) is type(other) and isinstance(one, bool | int | str) and one == other):
            return one
        if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
            return tuple(self._either(condition, *pair) for pair in zip(one, other, strict=True))
        if all(isinstance(each, Named | bool | int | float) for each in (one, other)):
            parts = [condition, self._named(one), self._named(other)]
            (name,) = self.add(f"{NUMBERS}if", "", [Argument("", parts)])
            self._note(name, [one, other])
            return Named(name)
        return self._opaque([condition, one, other])

    def _loop(self, node: Any) -> list[Any]:
        rounds, condition, *carried = (self._of(value) for value in node.inputs())
        block = next(iter(node.blocks()))
        place, *names = block.inputs()
        end, *results = block.outputs()
        repeats = self._of(end) is True or (end.node().kind() == "prim::Constant" and end.toIValue() is True)
        if repeats and condition is True and isinstance(rounds, int) and rounds <= _MOST_ROUNDS:
            return self._rounds(block, rounds, carried)
        self._forget(node)
        start = len(self.steps)
        before = [Named(self.add(f"{NUMBERS}carried", "", [Argument("", self._named(one))])[0]) for one in carried]
        for name, one, old in zip(names, before, carried, strict=True):
            self._values[name.debugName()] = one
            self._note(one.name, [old])
        self._values[place.debugName()] = self._named(Fixed())
        made = {*self.constants} | {name for step in self.steps[:start] for name in step.node.outputs}
        self._add_block(block)
        behind = [self._named(self._of(value)) for value in results]
        # In the next round, what was there before is read again.
        read = {name for step in self.steps[start:] for name in step.node.inputs if name in made}
        parts = [self._named(rounds), self._named(condition), self._named(self._of(end)), *before, *behind]
        arguments = [Argument("", parts), Argument("read", [Named(name) for name in sorted(read)])]
        found = self.add(f"{NUMBERS}loop", "", arguments, len(carried))
        for name, *pair in zip(found, before, behind, strict=True):
            self._note(name, pair)
        return [Named(name) for name in found]

    def _rounds(self, block: Any, rounds: int, carried: list[Any]) -> list[Any]:
        place, *names = block.inputs()
        _, *results = block.outputs()
        for number in range(rounds):
            if len(self.steps) > _MOST_NODES:
                raise _Lost
            self._values[place.debugName()] = number
            for name, one in zip(names, carried, strict=True):
                self._values[name.debugName()] = one
            self._add_block(block)
            carried = [self._of(value) for value in results]
        return carried

    def _is_none(self, node: Any, given: Sequence[Any]) -> bool | None:
        """Return True if both values are None, False if one of them only is, and None if that is not known."""
        if None not in given:
            return None
        (other,) = given[:1] if given[1] is None else given[1:]
        if not isinstance(other, Named):
            return other is None
        value = [*node.inputs()][given.index(other)]
        return None if value.type().kind() == "OptionalType" and other.name.startswith(NOWHERE) else False

    def _numbered(self, node: Any, given: Sequence[Any]) -> Sequence[Any]:
        value = given[0]
        if isinstance(value, bool | int | float) and node.kind() not in ("prim::NumToTensor", "aten::tensor"):
            return [value]
        if isinstance(value, Items):
            return self._called(node, given)
        one = self._named(value)
        (name,) = self.add(f"{NUMBERS}number", title(node), [Argument("self", one)])
        self._note(name, [one])
        return [Named(name)]

    def _called(self, node: Any, given: Sequence[Any]) -> Sequence[Any]:
        """Add an operator as its schema has it."""
        text = node.schema()
        if not text.startswith(("aten::", "prim::", "torchvision::")) or "(" not in text:
            # It may write to any tensor that it gets.
            found = self._opaque(given, node.kind(), is_written=True)
            return [found] * node.outputsSize()
        schema, is_pointwise = parsed(text)
        name, overload = schema.name.partition("::")[2], schema.overload_name or "default"
        for one, argument in zip(given, schema.arguments, strict=False):
            if isinstance(one, Items) and is_written(argument):
                self._lose(one)
                one.whole = self._opaque([one.whole, *given])
        if any(is_written(argument) and "Tensor" not in str(argument.type) for argument in schema.arguments):
            return given[:1] if node.outputsSize() == 1 else [self._opaque(given) for _ in range(node.outputsSize())]
        is_of_tensors = any("Tensor" in str(one.type) for one in (*schema.arguments, *schema.returns))
        of = {one.name for one in given if isinstance(one, Named)}
        if not is_of_tensors and not {str(argument.type) for argument in schema.arguments} <= _OF_NUMBERS:
            return [self._opaque(given)] * node.outputsSize()
        if not is_of_tensors or (is_pointwise and of & self._numbers and all(map(self._is_number, of))):
            return [self._arithmetic(name, schema, given)] * node.outputsSize()
        kind = f"{schema.name.replace('::', '.')}.{overload}"
        if node.kind() in _INDEXED and not self._has_places(given[1]):
            kind = "mask"
        if is_pointwise:
            self.pointwise.add(kind)
        arguments = [
            Argument.of(argument, self._plain(argument, one))
            for argument, one in zip(schema.arguments, given, strict=True)
        ]
        return self._made(node, kind, arguments, given)

    def _made(self, node: Any, kind: str, arguments: Sequence[Argument], given: Sequence[Any]) -> Sequence[Any]:
        """Add a node for an operator; return its results."""
        outputs = [*node.outputs()]
        count = taken(outputs[0]) if len(outputs) == 1 and str(outputs[0].type()) == "List[Tensor]" else None
        results = self.add(
            kind, title(node), arguments, count if count is not None or len(outputs) == 1 else len(outputs)
        )
        if count is not None:
            return [self._list([Named(name) for name in results])]
        if not outputs:
            return []
        for name, value in zip(results, outputs, strict=True):
            if self._makes_places(node.kind(), arguments, given):
                self._whole.add(name)
            if value.type().kind() != "TensorType" and "Tensor" not in str(value.type()):
                self._numbers.add(name)
        return [Named(name) for name in results]

    def _plain(self, argument: Any, value: Any) -> Any:
        """Return an argument as `Collector.add` takes it."""
        if isinstance(value, Items):
            return self._plain(argument, value.items if value.whole is None else value.whole)
        if isinstance(value, list | tuple):
            return [self._plain(argument, one) for one in value]
        if type(value) is int and (argument.name == "dtype" or "ScalarType" in str(argument.real_type)):
            return _DTYPES.get(value, value)
        return value
