"""Numbers of TorchScript: sizes, and whole numbers that are places."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cluster_serving.job.models.graph.torch.collector import Argument, Collector, Named
from cluster_serving.job.models.graph.torch.elementwise import UNEXPLAINED
from cluster_serving.job.models.graph.torch.script.items import Fixed, Items, leaves
from cluster_serving.job.models.graph.torch.table import NUMBERS, OPERATORS
from cluster_serving.job.models.graph.value import numbers

PLACES = (torch.int32, torch.int64)
"""Dtypes of places; numbers of other ones choose elements by True and False."""

_ALIASES = {"div": "truediv", "remainder": "mod", "floor_divide": "floordiv", "__not__": "not"}
"""Operator on numbers → its name in Python."""

_COMPUTED: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "neg")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{"not": operator.not_, "min": min, "max": max},
}
"""Operators on numbers and texts that are known."""

_WHOLE = re.compile(
    r"aten::(add|sub|mul|remainder|floor_divide|cumsum|clamp|view|reshape|unsqueeze|squeeze|expand|slice|select|flatten"
    r"|transpose|permute|repeat|cat|stack|contiguous|clone|detach|index_select|gather|masked_fill|where)_?"
)
"""Operators that make whole numbers of whole numbers."""


class NumberCollector(Collector):
    """Collects nodes, and knows which results are numbers.

    Args:
        places: Tensors of whole numbers that are given.
    """

    def __init__(self, places: set[str]) -> None:
        super().__init__()
        # Results that are numbers of elements, and tensors of such a number.
        self._numbers: set[str] = set()
        # Tensors of whole numbers that are places of elements.
        self._whole = places

    def _opaque(self, given: Sequence[Any], title: str = "", is_written: bool = False) -> Named:
        """Return what is made of these in an unknown way."""
        arguments = [Argument("", [*leaves(given)], is_written=is_written)]
        return Named(self.add("", title, arguments)[0])

    def _named(self, value: Any) -> Named:
        """Return any value as that of a node."""
        if isinstance(value, Named):
            return value
        if isinstance(value, bool | int | float):
            arguments = [Argument("self", value, is_tensor=True)]
            (name,) = self.add(f"{NUMBERS}number", "", arguments)
        elif isinstance(value, Fixed):
            name = self.new(numbers([None], is_scalar=True))
        else:
            return self._opaque([value])
        self._numbers.add(name)
        return Named(name)

    def _note(self, name: str, given: Sequence[Any]) -> None:
        """Note what a result is that is one of these."""
        for names in (self._numbers, self._whole):
            if all(not isinstance(one, Named) or one.name in names for one in given):
                names.add(name)

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
                return Fixed()
        parts = [*leaves([*pairs.values()])]
        if any(isinstance(one, Fixed | str) for one in pairs.values()) or not parts:
            return Fixed() if not any(isinstance(one, Named) for one in parts) else self._opaque(parts)
        kind = f"{NUMBERS}{name}"
        if kind not in OPERATORS or name in UNEXPLAINED:
            kind = f"{NUMBERS}any"
        found = Named(self.add(kind, "", [Argument(str(at), one, True) for at, one in enumerate(parts)])[0])
        self._numbers.add(found.name)
        return found

    def _has_places(self, indices: Any) -> bool:
        items = indices.items if isinstance(indices, Items) and indices.whole is None else None
        return items is not None and all(one is None or _in(one, self._whole) for one in items)

    def _makes_places(self, kind: str, arguments: Sequence[Argument], given: Sequence[Any]) -> bool:
        """Return True if an operator makes whole numbers that are places."""
        dtype = next((one.value for one in arguments if one.name == "dtype"), None)
        if dtype is not None:
            return dtype in PLACES
        if kind == "aten::arange":
            return not any(isinstance(one, float) for one in given)
        parts = [*leaves(given)]
        if not _WHOLE.fullmatch(kind) or any(isinstance(one, float) for one in parts):
            return False
        names = [one.name for one in parts if isinstance(one, Named)]
        return all(name in self._whole or name in self._numbers for name in names)


def _in(value: Any, names: set[str]) -> bool:
    return isinstance(value, Named) and value.name in names
