"""Arguments of a node, by the names of its schema."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_serving.job.models.graph.network import Node, Values
from cluster_serving.job.models.graph.rules import arithmetic
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.value import UNKNOWN, Elements, Kind, Unknown, Value


@dataclass(frozen=True, slots=True)
class Taken:
    """An argument, or a part of one, that is an input of the node.

    Attributes:
        position: Position of the input.
    """

    position: int


def tensor(node: Node, values: Values, name: str) -> Value:
    """Return an argument that is a tensor; raise `Unknown` if there is none."""
    found = optional(node, values, name)
    if found is None:
        raise Unknown
    return found


def optional(node: Node, values: Values, name: str) -> Value | None:
    """Return an argument that is a tensor, or None."""
    return _value(values, node.get(name))


def tensors(node: Node, values: Values, name: str) -> list[Value | None]:
    """Return an argument that is a list of tensors or None."""
    given = node.get(name)
    if not isinstance(given, list):
        raise Unknown
    return [_value(values, one) for one in given]


def constants(node: Node, values: Values, *names: str) -> None:
    """Raise `Unknown` if one of these arguments is there and no constant."""
    for name in names:
        value = optional(node, values, name)
        if value is not None and value.kind is not Kind.CONSTANT:
            raise Unknown


def integers(node: Node, name: str, count: int | None = None) -> list[int]:
    """Return an argument that is a list of whole numbers; one number may stand for `count` of them."""
    given = node.get(name)
    found = [given] if type(given) is int else given
    if not isinstance(found, list) or any(type(one) is not int for one in found):
        raise Unknown
    return found * (count or 1) if len(found) == 1 else found


def sizes(node: Node, values: Values, name: str) -> Elements:
    """Return an argument that is a list of sizes."""
    given = node.get(name)
    if isinstance(given, Taken):
        return arithmetic.elements(values[given.position] or UNKNOWN)
    if not isinstance(given, list):
        raise Unknown
    return tuple(_size(values, one) for one in given)


def size(node: Node, values: Values, name: str) -> Size | None:
    """Return an argument that is a number of elements; None if it is not known."""
    return _size(values, node.get(name))


def flag(node: Node, name: str) -> bool:
    """Return an argument that is True or False."""
    value = node.get(name)
    if not isinstance(value, bool):
        raise Unknown
    return value


def _value(values: Values, given: object) -> Value | None:
    if given is None:
        return None
    if not isinstance(given, Taken):
        raise Unknown
    return values[given.position]


def _size(values: Values, given: object) -> Size | None:
    if type(given) is int:
        return Size(given)
    value = _value(values, given)
    if value is None or value.rank:
        raise Unknown
    (found,) = arithmetic.elements(value)
    return found
