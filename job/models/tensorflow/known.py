"""What a graph of TensorFlow knows: the keys of its tables, and the texts and numbers that it compares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import tensorflow as tf

from cluster_serving.job.models.graph.patterns import examples
from cluster_serving.job.models.graph.value import MOST_ELEMENTS
from cluster_serving.protocol.inputs import Array

_TABLES = ("HashTableV2", "MutableDenseHashTableV2", "MutableHashTableV2")
_MOST_KEYS = 200_000
_MOST_CONSTANTS = 1000
_MOST_BYTES = 256
_COMPARISONS = (
    "Greater",
    "GreaterEqual",
    "Less",
    "LessEqual",
    "Equal",
    "NotEqual",
    "ClipByValue",
    "Maximum",
    "Minimum",
)
_OF_FILES = ("save", "__inference__traced_save", "__inference__traced_restore")
"""Beginning of the names of functions and nodes that read and write variables, by their names."""


def known(session: Any, with_texts: bool) -> list[str | int]:
    """Return the keys of the tables in a session, and the texts of its graph if wanted, each once."""
    tables = [operation for operation in session.graph.get_operations() if operation.type in _TABLES]
    found = [key for operation in tables for key in _keys(session, operation)]
    # A graph of more than 2 GB cannot be written.
    with suppress(ValueError, tf.errors.OpError):
        found += _constants(session.graph.as_graph_def()) if with_texts else []
    return [*dict.fromkeys(_value(key) for key in found)]


def bounds(session: Any, most: int) -> list[Array]:
    """Return up to so many (`most`) small constants that numbers are compared with, or cut off at."""
    found: list[Array] = []
    with suppress(ValueError, tf.errors.OpError):
        for nodes in _parts(session.graph.as_graph_def()):
            constants = {node.name: node.attr["value"].tensor for node in nodes if node.op == "Const"}
            for node in nodes:
                names = [name.split(":")[0] for name in node.input if node.op in _COMPARISONS]
                few = [constants[name] for name in names if name in constants]
                found += [tf.make_ndarray(one) for one in few if one.ByteSize() <= _MOST_BYTES]
    return [array for array in found if 0 < array.size <= MOST_ELEMENTS and array.dtype.kind in "fiu"][:most]


def _parts(graph: Any) -> list[Any]:
    """Return the nodes of the graph, and those of each of its functions."""
    functions = [one for one in graph.library.function if not one.signature.name.startswith(_OF_FILES)]
    return [graph.node, *(function.node_def for function in functions)]


def _keys(session: Any, operation: Any) -> list[Any]:
    """Return the keys of a table that are texts or whole numbers."""
    key, value, table = operation.get_attr("key_dtype"), operation.get_attr("value_dtype"), operation.outputs[0]
    if not (key == tf.string or key.is_integer) or table.dtype != tf.resource:
        return []
    with session.graph.as_default(), suppress(tf.errors.OpError):
        # A table that nothing has filled has no size.
        if session.run(tf.raw_ops.LookupTableSizeV2(table_handle=table)) <= _MOST_KEYS:
            exported = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=key, Tvalues=value)
            return [*session.run(exported.keys).flat]
    return []


def _constants(graph: Any) -> Iterator[bytes]:
    """Yield the texts that are inputs of operators, in the graph and its functions, and some for its patterns."""
    for nodes in _parts(graph):
        for node in nodes:
            if "Regex" in node.op:
                yield from (text.encode() for text in examples(node.attr["pattern"].s.decode("utf-8", "replace")))
            is_text = node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum
            if is_text and not node.name.startswith(_OF_FILES):
                texts = node.attr["value"].tensor.string_val[:_MOST_CONSTANTS]
                for text in texts:
                    if len(text) <= _MOST_BYTES:
                        yield text
                        # It may be a pattern.
                        yield from (one.encode() for one in examples(text.decode("utf-8", "replace")))


def _value(key: Any) -> str | int:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else int(key)
