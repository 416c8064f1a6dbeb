"""Inputs and attributes of nodes, as the rules of the tables take them."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_serving.job.models.graph.network import Node, Values
from cluster_serving.job.models.graph.rules.arithmetic import elements
from cluster_serving.job.models.graph.value import Elements, Kind, Unknown, Value


def given(values: Values, position: int = 0) -> Value:
    """Return an input; raise `Unknown` if there is none."""
    value = optional(values, position)
    if value is None:
        raise Unknown
    return value


def optional(values: Values, position: int) -> Value | None:
    """Return an input, or None."""
    return values[position] if position < len(values) else None


def constant_or_none(values: Values, position: int) -> Value | None:
    """Return an input, or None; raise `Unknown` if it is no constant."""
    value = optional(values, position)
    if value is not None and value.kind is not Kind.CONSTANT:
        raise Unknown
    return value


def only_constants(values: Values, first: int = 1) -> None:
    """Raise `Unknown` if an input from a position on is no constant."""
    for position in range(first, len(values)):
        constant_or_none(values, position)


def integers(node: Node, name: str, default: Sequence[int] | None = None) -> list[int]:
    """Return an attribute that is a list of whole numbers."""
    value = node.get(name, default)
    if not isinstance(value, list | tuple):
        raise Unknown
    return [*value]


def numbers(node: Node, values: Values, name: str, since: int, position: int = 1) -> list[int] | None:
    """Return whole numbers that are an attribute up to a version, and an input since then; None if there are none."""
    if node.version < since:
        return integers(node, name) if name in node.attributes else None
    value = constant_or_none(values, position)
    return None if value is None else value.numbers()


def sizes(values: Values, position: int) -> Elements:
    """Return an input that has the sizes of a tensor."""
    return elements(given(values, position))


def refuse_sizes(*values: Value) -> None:
    """Raise `Unknown` if a value is numbers that depend on the number of records."""
    if any(value.kind is Kind.SIZES for value in values):
        raise Unknown
