"""Reads the graph of a TorchScript module."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch

from cluster_serving.job.models.graph.network import Graph
from cluster_serving.job.models.graph.torch.collector import NOWHERE, Argument, Collector, Named, is_written
from cluster_serving.job.models.graph.torch.elementwise import UNEXPLAINED
from cluster_serving.job.models.graph.torch.table import NUMBERS, OPERATORS
from cluster_serving.job.models.graph.value import numbers

_MOST_ROUNDS, _MOST_NODES = 64, 20_000
"""Loops of more rounds, or in larger programs, are not followed round by round."""

_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip
"""Number of a dtype in TorchScript → dtype."""

_PLACES = (torch.int32, torch.int64)
"""Dtypes of places; numbers of other ones choose elements by True and False."""

_ALIASES = {"div": "truediv", "remainder": "mod", "floor_divide": "floordiv", "__not__": "not"}
"""Operator on numbers → its name in Python."""

_COMPUTED: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "neg")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{"not": operator.not_, "min": min, "max": max},
}
"""Operators on numbers and texts that are known."""

_INDEXED = frozenset(("aten::index", "aten::index_put", "aten::index_put_"))
_LISTED = frozenset(("aten::len", "aten::__getitem__", "aten::slice"))
_SAME = frozenset(("prim::unchecked_cast", "prim::unchecked_unwrap_optional", "aten::_unwrap_optional"))
_NUMBERED = re.compile(r"prim::NumToTensor|aten::(Bool|item|tensor|scalar_tensor|(Int|Float|Scalar)(Implicit)?)")
"""Operators that make a number of a tensor, or a tensor of a number."""

_WHOLE = re.compile(
    r"aten::(add|sub|mul|remainder|floor_divide|cumsum|clamp|view|reshape|unsqueeze|squeeze|expand|slice|select|flatten"
    r"|transpose|permute|repeat|cat|stack|contiguous|clone|detach|index_select|gather|masked_fill|where)_?"
)
"""Operators that make whole numbers of whole numbers."""


_OF_NUMBERS = frozenset(("int", "float", "bool", "number", "complex", "str", "Optional[int]", "Optional[float]"))
"""Types of arguments of operators on numbers."""


class _Fixed:
    """What is the same for all calls, such as a device, and not known."""


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


class _Items:
    """A list, or a dict, of TorchScript.

    Attributes:
        items: What is in it, by place or key.
        whole: What stands for all of it once it is not known what is in it.
    """

    def __init__(self, items: list[Any] | dict[Any, Any]) -> None:
        self.items = items
        self.whole: Named | None = None


class _Reader(Collector):
    """Follows a method from node to node.

    Args:
        module: See `read`.
        inputs: See `read`.
    """

    def __init__(self, module: Any, inputs: Mapping[str, str]) -> None:
        super().__init__()
        self._graph = module.inlined_graph
        self._lists: list[_Items] = []
        # Results that are numbers of elements, and tensors of such a number.
        self._numbers: set[str] = set()
        # Tensors of whole numbers that are places of elements.
        self._whole: set[str] = {name for name, dtype in inputs.items() if dtype in ("int32", "int64")}
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
        if isinstance(result, _Items):
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
            return [_Fixed()]
        if kind in ("aten::__is__", "aten::__isnot__") and (found := self._is_none(node, given)) is not None:
            return [found == (kind == "aten::__is__")]
        if kind in ("aten::append", "aten::_set_item") or (kind in _LISTED and _is_of_lists(node)):
            return self._of_list(node, given)
        if kind == "aten::add" and _is_of_lists(node):
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
            if value.dtype in _PLACES:
                self._whole.add(name)
            return Named(name)
        if isinstance(value, list | tuple):
            found = [self._constant(one) for one in value]
            return _Items(found) if isinstance(value, list) else tuple(found)
        if isinstance(value, dict):
            return _Items({key: self._constant(one) for key, one in value.items()})
        return value

    def _attribute(self, node: Any) -> list[Any]:
        name = node.s("name")
        owner = self._of(node.input())
        if name in self._set or isinstance(owner, Named):
            return [Named(NOWHERE)]
        found = self._constant(getattr(owner, name, Named(NOWHERE)))
        # Constants of the graph do not change; attributes may.
        return [self._list(found.items) if isinstance(found, _Items) else found]

    def _list(self, items: list[Any] | dict[Any, Any]) -> _Items:
        self._lists.append(_Items(items))
        return self._lists[-1]

    def _list_of(self, node: Any) -> list[Any]:
        return [self._list([self._of(value) for value in node.inputs()])]

    def _dict_of(self, node: Any) -> list[Any]:
        given = [self._of(value) for value in node.inputs()]
        if all(isinstance(key, str | int) for key in given[::2]):
            return [self._list(dict(zip(given[::2], given[1::2], strict=True)))]
        return [self._opaque(given)]

    def _unpacked(self, node: Any) -> list[Any]:
        given, count = self._of(node.input()), node.outputsSize()
        if isinstance(given, _Items) and given.whole is None and len(given.items) >= count:
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

    def _note(self, name: str, given: Sequence[Any]) -> None:
        """Note what a result is that is one of these."""
        for names in (self._numbers, self._whole):
            if all(not isinstance(one, Named) or one.name in names for one in given):
                names.add(name)

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
        self._values[place.debugName()] = self._named(_Fixed())
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

    def _forget(self, node: Any) -> None:
        """Forget what is in all lists if a node changes one, in blocks of which it is not known whether they run."""
        if any(_changes_list(inner) for block in node.blocks() for inner in nodes(block)):
            for one in self._lists:
                self._lose(one)

    def _lose(self, one: _Items) -> Named:
        if one.whole is None:
            one.whole = self._opaque([one.items])
        return one.whole

    def _opaque(self, given: Sequence[Any], title: str = "", is_written: bool = False) -> Named:
        """Return what is made of these in an unknown way."""
        leaves = [Argument("", [*_leaves(given)], is_written=is_written)]
        return Named(self.add("", title, leaves)[0])

    def _named(self, value: Any) -> Named:
        """Return any value as that of a node."""
        if isinstance(value, Named):
            return value
        if isinstance(value, bool | int | float):
            arguments = [Argument("self", value, is_tensor=True)]
            (name,) = self.add(f"{NUMBERS}number", "", arguments)
        elif isinstance(value, _Fixed):
            name = self.new(numbers([None], is_scalar=True))
        else:
            return self._opaque([value])
        self._numbers.add(name)
        return Named(name)

    def _is_none(self, node: Any, given: Sequence[Any]) -> bool | None:
        """Return True if both values are None, False if one of them only is, and None if that is not known."""
        if None not in given:
            return None
        (other,) = given[:1] if given[1] is None else given[1:]
        if not isinstance(other, Named):
            return other is None
        value = [*node.inputs()][given.index(other)]
        return None if value.type().kind() == "OptionalType" and other.name.startswith(NOWHERE) else False

    def _of_list(self, node: Any, given: Sequence[Any]) -> Sequence[Any]:
        """Return what an operator takes from a list or a dict, or makes of it."""
        kind = node.kind()
        of, *rest = given
        items: Any = of.items if isinstance(of, _Items) and of.whole is None else of if isinstance(of, tuple) else None
        if items is not None:
            with suppress(LookupError, TypeError):
                if kind == "aten::len":
                    return [len(items)]
                if kind == "aten::__getitem__" and isinstance(rest[0], int | str):
                    return [items[rest[0]]]
                if kind == "aten::slice" and all(one is None or isinstance(one, int) for one in rest):
                    return [self._list(items[slice(*rest)])]
                if kind == "aten::append":
                    items.append(rest[0])
                    return given[: node.outputsSize()]
                if kind == "aten::_set_item" and isinstance(rest[0], int | str):
                    items[rest[0]] = rest[1]
                    return given[: node.outputsSize()]
        if kind == "aten::__getitem__" and isinstance(rest[0], int):
            return [self._item(of, rest[0])]
        if isinstance(of, Named) and kind in ("aten::len", "aten::slice"):
            names = ("start", "end", "step")[: len(rest)]
            parts = [Argument(name, one) for name, one in zip(names, rest, strict=True)]
            (name,) = self.add(f"{NUMBERS}{kind.removeprefix('aten::')}", "", [Argument("self", of), *parts])
            self._numbers.add(name)
            return [Named(name)]
        return self._called(node, given)

    def _joined(self, given: Sequence[Any]) -> Any:
        """Return two lists, one behind the other."""
        if all(isinstance(one, _Items) and one.whole is None for one in given):
            return self._list([item for one in given for item in one.items])
        return Named(self.add(f"{NUMBERS}join", "", [Argument("", [self._named(one) for one in _leaves(given)])])[0])

    def _item(self, given: Any, place: int) -> Named:
        """Return what is at a place of a list that a node has computed."""
        of = self._lose(given) if isinstance(given, _Items) else self._named(given)
        (name,) = self.add(f"{NUMBERS}getitem", "", [Argument("self", of), Argument("place", place)])
        if of.name in self._numbers:
            self._numbers.add(name)
        return Named(name)

    def _numbered(self, node: Any, given: Sequence[Any]) -> Sequence[Any]:
        value = given[0]
        if isinstance(value, bool | int | float) and node.kind() not in ("prim::NumToTensor", "aten::tensor"):
            return [value]
        if isinstance(value, _Items):
            return self._called(node, given)
        one = self._named(value)
        (name,) = self.add(f"{NUMBERS}number", _title(node), [Argument("self", one)])
        self._note(name, [one])
        return [Named(name)]

    def _called(self, node: Any, given: Sequence[Any]) -> Sequence[Any]:
        """Add an operator as its schema has it."""
        text = node.schema()
        if not text.startswith(("aten::", "prim::", "torchvision::")) or "(" not in text:
            # It may write to any tensor that it gets.
            found = self._opaque(given, node.kind(), is_written=True)
            return [found] * node.outputsSize()
        schema, is_pointwise = _parsed(text)
        name, overload = schema.name.partition("::")[2], schema.overload_name or "default"
        for one, argument in zip(given, schema.arguments, strict=False):
            if isinstance(one, _Items) and is_written(argument):
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
        count = _taken(outputs[0]) if len(outputs) == 1 and str(outputs[0].type()) == "List[Tensor]" else None
        results = self.add(
            kind, _title(node), arguments, count if count is not None or len(outputs) == 1 else len(outputs)
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

    def _is_number(self, name: str) -> bool:
        value = self.constants.get(name)
        return name in self._numbers or (value is not None and value.shape == ())

    def _arithmetic(self, name: str, schema: Any, given: Sequence[Any]) -> Any:
        """Return the result of an operator on numbers of elements."""
        name = _ALIASES.get(name, name)
        # `format` takes more than its schema has.
        pairs = dict(zip((argument.name for argument in schema.arguments), given, strict=False))
        if name == "truediv" and pairs.pop("rounding_mode", None) == "floor":
            name = "floordiv"
        if pairs.pop("alpha", 1) != 1:
            name = "any"
        if all(isinstance(one, bool | int | float | str) for one in pairs.values()) and name in _COMPUTED:
            try:
                return _COMPUTED[name](*pairs.values())
            except (ArithmeticError, TypeError):
                return _Fixed()
        leaves = [*_leaves([*pairs.values()])]
        if any(isinstance(one, _Fixed | str) for one in pairs.values()) or not leaves:
            return _Fixed() if not any(isinstance(one, Named) for one in leaves) else self._opaque(leaves)
        kind = f"{NUMBERS}{name}"
        if kind not in OPERATORS or name in UNEXPLAINED:
            kind = f"{NUMBERS}any"
        found = Named(self.add(kind, "", [Argument(str(at), one, True) for at, one in enumerate(leaves)])[0])
        self._numbers.add(found.name)
        return found

    def _plain(self, argument: Any, value: Any) -> Any:
        """Return an argument as `Collector.add` takes it."""
        if isinstance(value, _Items):
            return self._plain(argument, value.items if value.whole is None else value.whole)
        if isinstance(value, list | tuple):
            return [self._plain(argument, one) for one in value]
        if type(value) is int and (argument.name == "dtype" or "ScalarType" in str(argument.real_type)):
            return _DTYPES.get(value, value)
        return value

    def _has_places(self, indices: Any) -> bool:
        items = indices.items if isinstance(indices, _Items) and indices.whole is None else None
        return items is not None and all(one is None or _in(one, self._whole) for one in items)

    def _makes_places(self, kind: str, arguments: Sequence[Argument], given: Sequence[Any]) -> bool:
        """Return True if an operator makes whole numbers that are places."""
        dtype = next((one.value for one in arguments if one.name == "dtype"), None)
        if dtype is not None:
            return dtype in _PLACES
        if kind == "aten::arange":
            return not any(isinstance(one, float) for one in given)
        leaves = [*_leaves(given)]
        if not _WHOLE.fullmatch(kind) or any(isinstance(one, float) for one in leaves):
            return False
        names = [one.name for one in leaves if isinstance(one, Named)]
        return all(name in self._whole or name in self._numbers for name in names)


def _in(value: Any, names: set[str]) -> bool:
    return isinstance(value, Named) and value.name in names


def _leaves(given: Any) -> Iterator[Any]:
    """Yield what is in lists, tuples and dicts, but for None and texts."""
    if isinstance(given, _Items):
        yield from _leaves(given.items if given.whole is None else [given.whole])
    elif isinstance(given, dict):
        yield from _leaves([*given.values()])
    elif isinstance(given, list | tuple):
        for one in given:
            yield from _leaves(one)
    elif isinstance(given, Named | bool | int | float):
        yield given


def nodes(block: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or a block, and of the blocks in them."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes(inner)


def _is_of_lists(node: Any) -> bool:
    text = node.schema()
    return "t[]" in text or "Dict(" in text


def _changes_list(node: Any) -> bool:
    text = node.schema()
    if "!" not in text:
        return False
    return any(is_written(one) and str(one.type) != "Tensor" for one in _parsed(text)[0].arguments)


@cache
def _parsed(text: str) -> tuple[Any, bool]:
    """Return a schema, and True if PyTorch says that its operator is pointwise."""
    schema = torch._C.parse_schema(text)
    space, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, space), name, None)
    overload = getattr(packet, schema.overload_name or "default", None)
    return schema, torch.Tag.pointwise in getattr(overload, "tags", ())


def _taken(value: Any) -> int | None:
    """Return how many items of a list are used, or None if it is used as a whole."""
    counts = []
    for use in value.uses():
        kind = use.user.kind()
        if kind == "prim::ListUnpack":
            counts.append(use.user.outputsSize())
        elif kind == "aten::__getitem__":
            place = [*use.user.inputs()][1].node()
            number = place.output().toIValue() if place.kind() == "prim::Constant" else -1
            if number < 0:
                return None
            counts.append(number + 1)
        else:
            return None
    return max(counts, default=None)


def _title(node: Any) -> str:
    """Return the name of the result of a node, with that of its module in front where a trace tells it."""
    name = next((value.debugName() for value in node.outputs()), "")
    module = node.scopeName().rpartition("/")[2].partition("__module.")[2]
    return f"{module}.{name}" if module else name
