"""Lists and dicts of TorchScript, which change from node to node."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cluster_serving.job.models.graph.torch.collector import Argument, Named
from cluster_serving.job.models.graph.torch.script.items import Items, leaves
from cluster_serving.job.models.graph.torch.script.nodes import changes_list, nodes
from cluster_serving.job.models.graph.torch.script.numbers import NumberCollector
from cluster_serving.job.models.graph.torch.table import NUMBERS


class ListCollector(NumberCollector):
    """Collects nodes, and knows what is in lists. For the arguments see `NumberCollector`."""

    def __init__(self, places: set[str]) -> None:
        super().__init__(places)
        self._lists: list[Items] = []

    def _list(self, items: list[Any] | dict[Any, Any]) -> Items:
        self._lists.append(Items(items))
        return self._lists[-1]

    def _forget(self, node: Any) -> None:
        """Forget what is in all lists if a node changes one, in blocks of which it is not known whether they run."""
        if any(changes_list(inner) for block in node.blocks() for inner in nodes(block)):
            for one in self._lists:
                self._lose(one)

    def _lose(self, one: Items) -> Named:
        if one.whole is None:
            one.whole = self._opaque([one.items])
        return one.whole

    def _of_list(self, node: Any, given: Sequence[Any]) -> Sequence[Any] | None:
        """Return what an operator takes from a list or a dict, or makes of it; None if that is not known."""
        kind = node.kind()
        of, *rest = given
        items: Any = of.items if isinstance(of, Items) and of.whole is None else of if isinstance(of, tuple) else None
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
        return None

    def _joined(self, given: Sequence[Any]) -> Any:
        """Return two lists, one behind the other."""
        if all(isinstance(one, Items) and one.whole is None for one in given):
            return self._list([item for one in given for item in one.items])
        return Named(self.add(f"{NUMBERS}join", "", [Argument("", [self._named(one) for one in leaves(given)])])[0])

    def _item(self, given: Any, place: int) -> Named:
        """Return what is at a place of a list that a node has computed."""
        of = self._lose(given) if isinstance(given, Items) else self._named(given)
        (name,) = self.add(f"{NUMBERS}getitem", "", [Argument("self", of), Argument("place", place)])
        if of.name in self._numbers:
            self._numbers.add(name)
        return Named(name)
