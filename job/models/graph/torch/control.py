"""Numbers, lists and control flow of TorchScript."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cluster_serving.job.models.graph.network import Node, Operator, Values, from_first
from cluster_serving.job.models.graph.rules import arithmetic
from cluster_serving.job.models.graph.size import Size
from cluster_serving.job.models.graph.torch.arguments import tensor
from cluster_serving.job.models.graph.value import UNKNOWN, Kind, Unknown, Value
from cluster_serving.job.models.graph.value import numbers as of_numbers


def _number(node: Node, values: Values) -> Value:
    """Return a tensor of one number as that number, or the other way round."""
    (x,) = values
    if x is None or x.kind not in (Kind.CONSTANT, Kind.SIZES):
        # Rows that are one number are those of one record.
        raise Unknown
    return replace(x, elements=x.elements or (None,), shape=())


def _dimensions(node: Node, values: Values) -> Value:
    return of_numbers([Size(tensor(node, values, "self").rank)], is_scalar=True)


def _measured(node: Node, values: Values) -> Value:
    x = tensor(node, values, "self")
    if x.kind is Kind.PIECE:
        raise Unknown
    return of_numbers(x.sizes)


def _counted(node: Node, values: Values) -> Value:
    x = values[0]
    if x is None or x.kind is Kind.PIECE or not x.rank:
        raise Unknown
    return of_numbers([x.sizes[0]], is_scalar=True)


def _item(node: Node, values: Values) -> Value:
    """Return one of the numbers of a list."""
    x = values[0]
    if x is None or x.rank != 1:
        raise Unknown
    return of_numbers([arithmetic.elements(x)[node.integer("place")]], is_scalar=True)


def _part(node: Node, values: Values) -> Value:
    """Return some of the numbers of a list."""
    found = arithmetic.elements(tensor(node, values, "self"))
    places = [node.get(name) for name in ("start", "end", "step")]
    if any(place is not None and type(place) is not int for place in places):
        raise Unknown
    return of_numbers(found[slice(*places)])


def _joined(node: Node, values: Values) -> Value:
    return arithmetic.joined([value for value in values if value is not None])


def _general(value: Value) -> Value:
    """Return a value without what another one of its kind and shape need not have."""
    return replace(value, elements=None if value.shape else (None,), load=lambda: None, is_uniform=False)


def _carried(node: Node, values: Values) -> Value:
    (x,) = values
    if x is None or x.kind not in (Kind.CONSTANT, Kind.ROWS):
        raise Unknown
    return _general(x)


def _is_like(one: Value, other: Value) -> bool:
    if one.kind not in (Kind.CONSTANT, Kind.ROWS) or one.kind is not other.kind or one.shape != other.shape:
        return False
    return one.kind is Kind.CONSTANT or (one.axis, one.outer, one.inner) == (other.axis, other.outer, other.inner)


def _perhaps(given: Sequence[Value]) -> Value:
    """Return what is known where nothing is but that these values may have an effect."""
    mixed = [value.node for value in given if value.kind in (Kind.MIXED, Kind.PERHAPS)]
    return Value(Kind.PERHAPS, node=mixed[0]) if mixed else UNKNOWN


def _chosen(node: Node, values: Values) -> Value:
    """Return what one of two blocks has computed."""
    condition, one, other = (UNKNOWN if value is None else value for value in values)
    if condition.kind is Kind.CONSTANT:
        (number,) = condition.elements or (None,)
        if number is not None and number.is_number:
            return one if number.number else other
        if _is_like(one, other):
            return replace(_general(one), is_uniform=one.is_uniform and other.is_uniform)
    return _perhaps([condition, one, other])


def _repeated(node: Node, values: Values) -> list[Value]:
    """Return what is carried by a loop that has as many rounds for all records: what a round does not change."""
    count = len(node.outputs)
    rounds, (start, end) = [UNKNOWN if value is None else value for value in values[:3]], (3, 3 + count)
    before, behind = ([value or UNKNOWN for value in values[at : at + count]] for at in (start, end))
    if all(value.kind is Kind.CONSTANT for value in rounds) and all(map(_is_like, before, behind)):
        return before
    return [_perhaps([*rounds, *before, *behind])] * count


OPERATORS = {
    "operator.number": Operator(_number, from_first, takes_sizes=True),
    "operator.getitem": Operator(_item, takes_sizes=True),
    "operator.slice": Operator(_part, takes_sizes=True),
    "operator.join": Operator(_joined, takes_sizes=True),
    "operator.len": Operator(_counted, takes_all=True),
    "operator.carried": Operator(_carried, from_first),
    "operator.if": Operator(_chosen, decides=True),
    "operator.loop": Operator(_repeated, decides=True),
    "dim.default": Operator(_dimensions, takes_all=True),
    "size.default": Operator(_measured, takes_all=True),
    "len.Tensor": Operator(_counted, takes_all=True),
}
