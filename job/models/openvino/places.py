"""Places in tables that inputs of an OpenVINO network lead to; those outside are refused before it computes.

OpenVINO raises no error for a row that a table lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.openvino.compiled import Compiled, openvino
from cluster_serving.job.models.openvino.values import named, takes_any
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

_KEEPING = named("Convert ConvertLike Reshape Squeeze Transpose Unsqueeze")
"""Operators that keep all numbers of their first input."""

_CHOOSING = named("Broadcast Concat Gather Roll Slice Split StridedSlice Tile VariadicSplit")
"""Operators whose numbers are those of their inputs."""

_CHEAP = (
    named(
        "Abs Add BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceiling Clamp CumSum Divide Equal Floor FloorMod Greater "
        "GreaterEqual Less LessEqual LogicalAnd LogicalNot LogicalOr LogicalXor Maximum Minimum Mod Multiply Negative "
        "NotEqual Pad Range ReduceMax ReduceMin ReduceProd ReduceSum Relu Round Select ShapeOf Sign Subtract"
    )
    | _KEEPING
    | _CHOOSING
)
"""Operators that are computed twice, to know the places before the network computes."""

_LOOKUPS = named("EmbeddingBagPackedSum Gather GatherElements GatherND")
"""Operators whose second input has places in the first."""

_WRAPPING = named("GatherElements GatherND")
"""Those that count negative places from the end; so does `Gather` of the eighth set."""


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A place where the network looks up rows.

    Attributes:
        indices: The tensor with the places.
        sizes: Number of rows of the table; of `GatherND`, that of each part of a place.
        wraps: Negative places count from the end.
        inputs: Numbers of the inputs of the network that lead here.
        is_direct: The places are all numbers of one input.
        is_value: The places are numbers of the inputs.
    """

    indices: Any
    sizes: tuple[int, ...]
    wraps: bool
    inputs: tuple[int, ...]
    is_direct: bool
    is_value: bool

    def outside(self, numbers: Array) -> int | None:
        """Return the first place that the table lacks, or None."""
        if not numbers.size:
            return None
        if len(self.sizes) > 1:
            parts = (_Lookup(None, (size,), self.wraps, (), False, False) for size in self.sizes)
            found = (part.outside(numbers[..., at]) for at, part in enumerate(parts))
            return next((place for place in found if place is not None), None)
        most, least = numbers.max(), numbers.min()
        if most < self.sizes[0] and least >= -self.sizes[0] * self.wraps:
            return None
        return int(most if most >= self.sizes[0] else least)


class Places:
    """The lookups of a network.

    Args:
        core: OpenVINO.
        network: The network, which is not changed.
        specs: Its inputs, in its order.

    Attributes:
        takes_any: True if no value of a record is a place, a size or a condition, except places that are checked and
            come of whole numbers alone.
    """

    _is_checked = True

    def __init__(self, core: Any, network: Any, specs: Sequence[TensorSpec]) -> None:
        self._specs = specs
        network = network.clone()
        found = dict(_lookups(network))
        self._whole = whole = {at for at, spec in enumerate(specs) if spec.dtype.startswith(("int", "uint"))}
        checked = frozenset(name for name, lookup in found.items() if whole.issuperset(lookup.inputs))
        self.takes_any = takes_any(network, checked)
        # A number with a fraction may be none, or become another one.
        self._direct = [one for one in found.values() if one.is_direct and whole.issuperset(one.inputs)]
        self._others = [one for one in found.values() if one not in self._direct]
        self._given = sorted({at for lookup in self._others for at in lookup.inputs})
        self._computed: Compiled | None = None
        if self._others:
            parameters = [network.inputs[at].get_node() for at in self._given]
            try:
                self._computed = Compiled(core, openvino.Model([one.indices for one in self._others], parameters), 1)
            except RuntimeError:
                # A network that cannot be computed in part is computed as a whole, with care.
                self.takes_any, self._is_checked = takes_any(network), False

    def checked(self, network: Any) -> frozenset[str]:
        """Return the names of the nodes of this network, or a copy, whose places are whole numbers that are checked."""
        lookups = _lookups(network) if self._is_checked else ()
        return frozenset(name for name, lookup in lookups if self._whole.issuperset(lookup.inputs))

    def check(self, inputs: Sequence[Array]) -> None:
        """Raise `InvalidInput` if the inputs, in the order of the network, lead outside a table."""
        for lookup in self._direct:
            self._refuse(lookup, lookup.outside(inputs[lookup.inputs[0]]))
        if self._computed is not None:
            numbers = self._computed.run([inputs[at] for at in self._given])
            for lookup, array in zip(self._others, numbers, strict=True):
                self._refuse(lookup, lookup.outside(array))

    def _refuse(self, lookup: _Lookup, place: int | None) -> None:
        if place is None:
            return
        names = " and ".join(repr(self._specs[at].name) for at in lookup.inputs)
        if len(lookup.inputs) > 1:
            subject = f"inputs {names} lead to row {place}"
        else:
            subject = f"input {names} {f'has {place}' if lookup.is_value else f'leads to row {place}'}"
        least = -lookup.sizes[0] if lookup.wraps else 0
        (sizes, allowed) = (
            (f"{lookup.sizes[0]} rows", f"; {least} to {lookup.sizes[0] - 1} are allowed")
            if len(lookup.sizes) == 1
            else (f"{' x '.join(map(str, lookup.sizes))} numbers", "")
        )
        raise InvalidInput(f"{subject}, and the model looks that up in a table of {sizes}{allowed}")


def _lookups(network: Any) -> Iterator[tuple[str, _Lookup]]:
    """Yield the lookups whose places are known before the network computes, by the names of their nodes."""
    numbers = {port.get_node().get_name(): at for at, port in enumerate(network.inputs)}
    # Tensors that are computed of inputs by cheap operators, by the names of their nodes.
    known: dict[str, _Origin] = {}
    for node in network.get_ordered_ops():
        kind, name = node.get_type_name(), node.get_name()
        given = [port.get_source_output() for port in node.inputs()]
        origins = [known.get(port.get_node().get_name()) for port in given]
        if kind == "Parameter":
            known[name] = _Origin(frozenset({numbers[name]}), True, True)
        elif kind == "Constant":
            known[name] = _Origin(frozenset(), False, True)
        elif kind in _CHEAP and None not in origins:
            known[name] = _Origin.of(kind, [origin for origin in origins if origin is not None])
        table = _table(kind, node)
        if table is None:
            continue
        sizes, wraps = table
        origin = origins[1]
        if origin is not None and origin.inputs:
            is_direct = origin.is_direct and len(origin.inputs) == 1 and len(sizes) == 1
            inputs = tuple(sorted(origin.inputs))
            yield name, _Lookup(given[1], sizes, wraps, inputs, is_direct, origin.is_value)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Inputs that a tensor is computed of; `is_direct` if it has all numbers of one, `is_value` if it has no others."""

    inputs: frozenset[int]
    is_direct: bool
    is_value: bool

    @staticmethod
    def of(kind: str, origins: Sequence[_Origin]) -> _Origin:
        inputs = frozenset().union(*(origin.inputs for origin in origins))
        first = origins[0] if origins else _Origin(frozenset(), False, True)
        keeps = kind in _KEEPING and first.is_direct
        chooses = kind in _KEEPING | _CHOOSING and all(origin.is_value for origin in origins)
        # A size is no number of an input.
        return _Origin(inputs, keeps and inputs == first.inputs, chooses)


def _table(kind: str, node: Any) -> tuple[tuple[int, ...], bool] | None:
    """Return the sizes of the table of a lookup, and True if negative places count from its end."""
    if kind not in _LOOKUPS:
        return None
    shape, parts = (node.input_value(at).get_partial_shape() for at in range(2))
    if shape.rank.is_dynamic or parts.rank.is_dynamic:
        return None
    count = 1
    if kind == "GatherND":
        if parts[len(parts) - 1].is_dynamic:
            return None
        axis, count = node.get_attributes()["batch_dims"], parts[len(parts) - 1].get_length()
    elif kind == "Gather":
        source = node.input_value(2).get_node()
        if source.get_type_name() != "Constant":
            return None
        axis = int(source.get_data().reshape(-1)[0])
    else:
        axis = node.get_attributes().get("axis", 0)
    sizes = [shape[at] for at in range(axis, axis + count)]
    if any(size.is_dynamic for size in sizes):
        return None
    wraps = kind in _WRAPPING or node.get_type_info().version_id == "opset8"
    return tuple([size.get_length() for size in sizes]), wraps
