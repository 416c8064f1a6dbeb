"""What an ONNX model knows: the keys of its tables and categories, and the texts that it compares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cluster_serving.job.models import onnx_shapes_pb2
from cluster_serving.job.models.graph.patterns import examples

KEYS = (b"keys_int64s", b"cats_int64s", b"pool_int64s", b"int64_vocabulary")
"""Names of attributes that have whole numbers of inputs, as in a file."""

_TEXT = 8
"""Type of a tensor of texts."""

_MOST_KEYS = 200_000
_MOST_BYTES = 256


def known(content: bytes, with_texts: bool) -> list[str | int]:
    """Return the keys of the tables of a model, and its texts if wanted, each once.

    Args:
        content: The file.
        with_texts: Texts are wanted, too, and those that its patterns match.
    """
    model = onnx_shapes_pb2.Model.FromString(content)
    found: dict[str | int, None] = {}
    for graph in _graphs(model):
        for values in graph.initializer if with_texts and isinstance(graph, onnx_shapes_pb2.Graph) else ():
            found |= dict.fromkeys(_texts(values))
        for node in graph.node:
            for attribute in node.attribute:
                found |= dict.fromkeys(_of(attribute, with_texts))
        if len(found) > _MOST_KEYS:
            break
    return [*found][:_MOST_KEYS]


def _graphs(model: Any) -> Iterator[Any]:
    """Yield the graph and those of its functions, and all that are in their nodes."""
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]


def _of(attribute: Any, with_texts: bool) -> Iterator[str | int]:
    if attribute.name.encode() in KEYS:
        yield from map(int, attribute.ints)
    if with_texts:
        yield from _decoded(attribute.strings)
        if attribute.name == "pattern":
            yield from examples(attribute.s.decode("utf-8", "replace"))
        if attribute.HasField("t"):
            yield from _texts(attribute.t)


def _texts(values: Any) -> Iterator[str]:
    if values.data_type == _TEXT:
        yield from _decoded(values.string_data)


def _decoded(texts: Any) -> Iterator[str]:
    yield from (text.decode("utf-8", "replace") for text in texts if len(text) <= _MOST_BYTES)
