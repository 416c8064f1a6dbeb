"""What a node of TorchScript says of itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from cluster_serving.job.models.graph.torch.collector import is_written


def nodes(block: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or a block, and of the blocks in them."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes(inner)


def is_of_lists(node: Any) -> bool:
    """Return True if an operator takes or returns lists or dicts of anything."""
    text = node.schema()
    return "t[]" in text or "Dict(" in text


def changes_list(node: Any) -> bool:
    """Return True if an operator changes a list or a dict."""
    text = node.schema()
    if "!" not in text:
        return False
    return any(is_written(one) and str(one.type) != "Tensor" for one in parsed(text)[0].arguments)


@cache
def parsed(text: str) -> tuple[Any, bool]:
    """Return a schema, and True if PyTorch says that its operator is pointwise."""
    schema = torch._C.parse_schema(text)
    space, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, space), name, None)
    overload = getattr(packet, schema.overload_name or "default", None)
    return schema, torch.Tag.pointwise in getattr(overload, "tags", ())


def taken(value: Any) -> int | None:
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


def title(node: Any) -> str:
    """Return the name of the result of a node, with that of its module in front where a trace tells it."""
    name = next((value.debugName() for value in node.outputs()), "")
    module = node.scopeName().rpartition("/")[2].partition("__module.")[2]
    return f"{module}.{name}" if module else name
