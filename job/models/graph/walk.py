"""A pass over the operators of a model that follows the rows of its inputs to its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cluster_serving.job.models.graph.network import Graph, Node, Operator, Sizes, Values, stops
from cluster_serving.job.models.graph.rules.elementwise import broadcast
from cluster_serving.job.models.graph.size import BATCH, ONE, Size, unknown_size
from cluster_serving.job.models.graph.value import UNKNOWN, Kind, Unknown, Value, displaced, mixed, rows


@dataclass(frozen=True, slots=True)
class Finding:
    """What the graph says about an output.

    Attributes:
        axis: Axis of the batch, if each row depends on its own record alone, whatever the place and the size of the
            call. None if that is not proven.
        mixed_by: The operator that lets a row depend on other records; empty if no dependence is proven.
        may_mix: An operator that mixes records, if the output may depend on what it has mixed for some values only;
            empty if there is none.
    """

    axis: int | None = None
    mixed_by: str = ""
    may_mix: str = ""


NOTHING = Finding()


def follow(graph: Graph, axes: Mapping[str, int | None]) -> dict[str, Finding]:
    """Follow the rows of inputs with the batch at these axes; return what is found about each output."""
    values = dict(graph.constants)
    symbols = _symbols(graph, axes)
    values |= {name: _input(shape, axes[name], symbols) for name, shape in graph.inputs.items() if name in axes}
    for node in graph.nodes:
        values |= dict(zip(node.outputs, _outputs(graph.operators.get(node.kind), node, values), strict=False))
        values.pop("", None)
    return {name: _finding(values.get(tensor, UNKNOWN)) for name, tensor in graph.outputs.items()}


def _symbols(graph: Graph, axes: Mapping[str, int | None]) -> dict[str, Size]:
    """Return the size that each text stands for."""
    found: dict[str, Size] = {}
    for name, shape in graph.inputs.items():
        axis = axes.get(name)
        for at, size in enumerate(shape or ()):
            if isinstance(size, str):
                found[size] = BATCH if at == axis else found.get(size) or unknown_size()
    return found


def _input(shape: Sizes | None, axis: int | None, symbols: Mapping[str, Size]) -> Value:
    if shape is None or axis is None or axis >= len(shape):
        return UNKNOWN
    sizes = [symbols[size] if isinstance(size, str) else _size(size) for size in shape]
    sizes[axis] = BATCH
    try:
        return rows(sizes, axis)
    except Unknown:
        # Another size is the number of records.
        return UNKNOWN


def _size(size: int | None) -> Size:
    return unknown_size() if size is None else Size(size)


def _finding(value: Value) -> Finding:
    if value.kind is Kind.MIXED:
        return Finding(mixed_by=value.node)
    if value.kind is Kind.PERHAPS:
        return Finding(may_mix=value.node)
    if value.kind is Kind.ROWS and value.outer == value.inner == ONE:
        return Finding(value.axis)
    return NOTHING


def _outputs(operator: Operator | None, node: Node, values: Mapping[str, Value]) -> list[Value]:
    inputs = [values.get(name, UNKNOWN) if name else None for name in node.inputs]
    rest = _rest(operator, inputs)
    try:
        if operator is not None and operator.decides:
            result = operator.rule(node, inputs)
            return [result] if isinstance(result, Value) else [*result]
        found = [] if operator is None else _found(operator, node, inputs)
    except (Unknown, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # A file may have any attributes. What the rules do not expect is not known.
        found = []
    moves = (Kind.MIXED, Kind.PERHAPS)
    named = [replace(one, node=str(node)) if one.kind in moves and not one.node else one for one in found]
    return [rest if one.kind is Kind.UNKNOWN else one for one in (*named, *[UNKNOWN] * len(node.outputs))]


def _rest(operator: Operator | None, inputs: Values) -> Value:
    """Return what is known of outputs of which a rule says nothing."""
    given = [value for value in inputs if value is not None]
    some = [value for value in given if value.kind in (Kind.MIXED, Kind.PERHAPS)]
    if some:
        is_measured = operator is not None and operator.takes_all and len(given) == 1
        if is_measured or (operator is not None and operator.moves and _comes_back(given)):
            return UNKNOWN
        return replace(displaced(is_placed=some[0].is_placed, is_order=some[0].is_order), node=some[0].node)
    if operator is not None and all(value.kind in (Kind.CONSTANT, Kind.SIZES) for value in given):
        is_placed = operator.flows is not stops and any(_is_of_batch(value) for value in given)
        return Value(Kind.SIZES, is_placed=is_placed)
    return UNKNOWN


def _is_of_batch(value: Value) -> bool:
    """Return True for sizes all of which depend on the number of records, or on their places."""
    return value.counts and (value.is_placed or all(one is not None and one.has_batch for one in value.elements or ()))


def _comes_back(given: Sequence[Value]) -> bool:
    """Return True if the elements that an operator moves by these places may be in those of their own records.

    They are so where a record finds its elements in a longer axis, and where records have been sorted before.
    """
    _, *places = given
    orders = [value for value in places if value.is_order]
    is_sorted = any(one is not value and one.node == value.node for value in orders for one in given)
    return is_sorted or any(value.is_placed for value in places)


def _found(operator: Operator, node: Node, inputs: Values) -> Sequence[Value]:
    kinds = {value.kind for value in inputs if value is not None}
    if kinds & {Kind.UNKNOWN, Kind.PERHAPS}:
        raise Unknown
    if not operator.takes_all:
        if Kind.PIECE in kinds or (Kind.SIZES in kinds and not operator.takes_sizes):
            raise Unknown
        if Kind.MIXED in kinds:
            return [_flowed(operator, node, inputs)] * (len(node.outputs) if operator.picks else 1)
    found = operator.rule(node, inputs)
    return [found] if isinstance(found, Value) else found


def _flowed(operator: Operator, node: Node, inputs: Values) -> Value:
    """Return the result for mixed tensors."""
    given = [value for value in inputs if value is not None]
    mixtures = [value for value in given if value.kind is Kind.MIXED]
    constants = [value for value in given if value.kind is Kind.CONSTANT]
    if not operator.flows(node, inputs) or (operator.picks and not mixtures[0].is_whole):
        raise Unknown
    if operator.scales and (Kind.SIZES in {value.kind for value in given} or any(map(Value.is_zero, constants))):
        raise Unknown
    is_whole = any(value.is_whole for value in mixtures)
    if operator.scales and any(value.has_zero() for value in constants):
        is_whole = False
    shape = None
    if operator.is_elementwise and all(value.shape is not None for value in given):
        shape = broadcast([value.sizes for value in given])
    return replace(mixed(shape, is_whole=is_whole), node=mixtures[0].node)
