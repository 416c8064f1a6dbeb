"""Values of TorchScript that are no tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cluster_serving.job.models.graph.torch.collector import Named


class Items:
    """A list, or a dict, of TorchScript.

    Attributes:
        items: What is in it, by place or key.
        whole: What stands for all of it once it is not known what is in it.
    """

    def __init__(self, items: list[Any] | dict[Any, Any]) -> None:
        self.items = items
        self.whole: Named | None = None


class Fixed:
    """What is the same for all calls, such as a device, and not known."""


def leaves(given: Any) -> Iterator[Any]:
    """Yield what is in lists, tuples and dicts, but for None and texts."""
    if isinstance(given, Items):
        yield from leaves(given.items if given.whole is None else [given.whole])
    elif isinstance(given, dict):
        yield from leaves([*given.values()])
    elif isinstance(given, list | tuple):
        for one in given:
            yield from leaves(one)
    elif isinstance(given, Named | bool | int | float):
        yield given
