"""Operators of ONNX that move, repeat, take and put together elements, and that make shapes of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cluster_serving.job.models.graph.given import (
    constant_or_none,
    given,
    integers,
    numbers,
    only_constants,
    optional,
    refuse_sizes,
    sizes,
)
from cluster_serving.job.models.graph.network import Node, Operator, Values, from_first
from cluster_serving.job.models.graph.rules import arithmetic, layout, pieces, windows
from cluster_serving.job.models.graph.rules.along import axis_of
from cluster_serving.job.models.graph.size import ONE, Size, product, unknown_size
from cluster_serving.job.models.graph.value import (
    MOST_ELEMENTS,
    Elements,
    Kind,
    Unknown,
    Value,
    constant,
    displaced,
    same_place,
    small,
)
from cluster_serving.job.models.graph.value import numbers as of_numbers
from cluster_serving.job.models.graph.value import places as places_of_records
from cluster_serving.protocol.inputs import Array

_SINCE = 13
"""Version since which the axes and parts of these operators are an input."""


def _array(value: Value) -> Array | None:
    """Return a small constant: exporters compute sizes from tables of them."""
    if value.kind is not Kind.CONSTANT or not all(size.is_number for size in value.sizes):
        return None
    return value.load() if product(value.sizes).number <= MOST_ELEMENTS else None


def _transposed(node: Node, values: Values) -> Value:
    x = given(values)
    if (array := _array(x)) is not None:
        return small(array.transpose(integers(node, "perm", [*range(x.rank)][::-1])))
    return layout.transposed(x, integers(node, "perm", [*range(x.rank)][::-1]))


def _reshaped(node: Node, values: Values) -> Value:
    x, target = given(values), sizes(values, 1)
    if x.elements is not None and len(target) < 2:
        # A vector or a number of sizes.
        return of_numbers(x.elements, is_scalar=not target)
    if (array := _array(x)) is not None and None not in target and Size(0) not in target:
        return small(array.reshape([_known(size) for size in target]))
    refuse_sizes(x)
    return layout.reshaped(x, target, copies_zero=not node.integer("allowzero", 0))


def _flattened(node: Node, values: Values) -> Value:
    return layout.flattened(given(values), node.integer("axis", 1))


def _squeezed(node: Node, values: Values) -> Value:
    x, axes = given(values), numbers(node, values, "axes", _SINCE)
    if x.elements is not None and x.rank == 1 and len(x.elements) == 1:
        return of_numbers(x.elements, is_scalar=True)
    refuse_sizes(x)
    if axes is None:
        # A batch of one record would lose its axis, too.
        raise Unknown
    return layout.squeezed(x, axes)


def _unsqueezed(node: Node, values: Values) -> Value:
    x, axes = given(values), numbers(node, values, "axes", _SINCE)
    if axes is None:
        raise Unknown
    if x.elements is not None and x.rank == 0 and len(axes) == 1:
        return of_numbers(x.elements)
    refuse_sizes(x)
    return layout.unsqueezed(x, axes)


def _expanded(node: Node, values: Values) -> Value:
    x = given(values)
    refuse_sizes(x)
    return layout.expanded(x, sizes(values, 1))


def _tiled(node: Node, values: Values) -> Value:
    x = given(values)
    refuse_sizes(x)
    return layout.tiled(x, sizes(values, 1))


def _filled(node: Node, values: Values) -> Value:
    shape = sizes(values, 0)
    content = node.get("value")
    filling = content.elements if isinstance(content, Value) else (Size(0),)
    if len(shape) == 1 and shape[0] is not None and shape[0].is_number and shape[0].number <= 64 and filling:
        return of_numbers(filling * shape[0].number)
    return layout.filled(shape)


def _measured(node: Node, values: Values) -> Value:
    x = given(values)
    if x.kind is Kind.PIECE:
        raise Unknown
    start, end = node.integer("start", 0), node.get("end")
    return arithmetic.measured(x.sizes[start:end])


def _counted(node: Node, values: Values) -> Value:
    x = given(values)
    if x.kind is Kind.PIECE:
        raise Unknown
    return of_numbers([product(x.sizes)], is_scalar=True)


def _constant(node: Node, values: Values) -> Value:
    content = node.get("value")
    if isinstance(content, Value):
        return content
    for name in ("value_int", "value_float"):
        if name in node.attributes:
            return of_numbers([_size(node.get(name))], is_scalar=True)
    for name in ("value_ints", "value_floats"):
        if name in node.attributes:
            return of_numbers([_size(one) for one in node.get(name)])
    raise Unknown


def _size(number: float) -> Size | None:
    return Size(int(number)) if number == int(number) else None


def _ranged(node: Node, values: Values) -> Value:
    if any(value is not None and value.counts for value in values):
        return places_of_records()
    only_constants(values, 0)
    return constant([unknown_size()])


def _joined(node: Node, values: Values) -> Value:
    inputs = [given(values, position) for position in range(len(values))]
    kinds = {value.kind for value in inputs}
    if kinds <= {Kind.CONSTANT, Kind.SIZES} and all(value.rank == 1 for value in inputs):
        # There may be too many of them.
        with suppress(Unknown):
            return arithmetic.joined(inputs)
    refuse_sizes(*inputs)
    return pieces.concatenated(inputs, node.integer("axis"))


def _parted(node: Node, values: Values) -> list[Value]:
    x, parts = given(values), numbers(node, values, "split", _SINCE)
    axis = axis_of(node.integer("axis", 0), x.rank)
    count = len(node.outputs)
    if x.elements is not None:
        if parts is None:
            if len(x.elements) % count:
                raise Unknown
            parts = [len(x.elements) // count] * count
        starts = [sum(parts[:at]) for at in range(count)]
        return [of_numbers(x.elements[at : at + size]) for at, size in zip(starts, parts, strict=True)]
    refuse_sizes(x)
    if parts is not None:
        return pieces.parted(x, axis, [Size(part) for part in parts])
    return pieces.parted(x, axis, [x.sizes[axis].over(Size(count)) or unknown_size()] * count)


def _sliced(node: Node, values: Values) -> Value:
    x = given(values)
    starts, ends, axes, steps = _bounds(node, values)
    if x.elements is not None:
        (start,), (end,), (step,) = starts, ends, steps
        if start is None or end is None or step is None or not (start.is_number and end.is_number and step.is_number):
            raise Unknown
        return of_numbers(x.elements[start.number : end.number : step.number])
    refuse_sizes(x)
    if (array := _array(x)) is not None:
        slices = [slice(None)] * x.rank
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            slices[axis] = slice(_known(start), _known(end), _known(step))
        return small(array[tuple(slices)])
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if x.kind in (Kind.MIXED, Kind.PIECE):
            # Of one axis, no more is known.
            raise Unknown
        x = pieces.sliced(x, axis, _plain(start), end, _plain(step))
    return x


def _bounds(node: Node, values: Values) -> tuple[Elements, Elements, list[int], Elements]:
    """Return the starts, ends, axes and steps of a slice."""
    if node.version < 10:
        first, last = ([Size(one) for one in integers(node, name)] for name in ("starts", "ends"))
        return tuple(first), tuple(last), integers(node, "axes", _range_of(first)), (ONE,) * len(first)
    starts, ends = sizes(values, 1), sizes(values, 2)
    places = constant_or_none(values, 3)
    steps = optional(values, 4)
    return (
        starts,
        ends,
        _range_of(starts) if places is None else places.numbers(),
        (ONE,) * len(starts) if steps is None else arithmetic.elements(steps),
    )


def _range_of(items: Sequence[Size | None]) -> list[int]:
    """Return the places of items."""
    return [*range(len(items))]


def _plain(size: Size | None) -> int | None:
    """Return a number, or None for one that is not known; raise `Unknown` if it depends on the number of records."""
    if size is not None and size.has_batch:
        raise Unknown
    return size.number if size is not None and size.is_number else None


def _known(size: Size | None) -> int:
    number = _plain(size)
    if number is None:
        raise Unknown
    return number


def _gathered(node: Node, values: Values) -> Value:
    x, places = given(values), given(values, 1)
    if x.elements is not None and places.kind is Kind.CONSTANT and places.elements is not None and x.rank == 1:
        found = [x.elements[at] for at in places.numbers()]
        return of_numbers(found, is_scalar=places.rank == 0)
    refuse_sizes(x)
    refuse_sizes(places)
    return pieces.gathered(x, places, node.integer("axis", 0))


def _gathered_elements(node: Node, values: Values) -> Value:
    return pieces.gathered_elements(given(values), given(values, 1), node.integer("axis", 0))


def _scattered(node: Node, values: Values) -> Value:
    return pieces.scattered(given(values), given(values, 1), given(values, 2), node.integer("axis", 0))


def _scattered_points(node: Node, values: Values) -> Value:
    return pieces.scattered_points(given(values), given(values, 1))


def _unique(node: Node, values: Values) -> list[Value]:
    axis = node.integer("axis") if "axis" in node.attributes else None
    return [pieces.unique(given(values), axis)] * len(node.outputs)


def _sampled(node: Node, values: Values) -> Value:
    return windows.sampled(given(values), given(values, 1))


def _gathered_points(node: Node, values: Values) -> Value:
    x, places = given(values), given(values, 1)
    count = node.integer("batch_dims", 0)
    depth = places.sizes[-1]
    if not depth.is_number or places.kind is not Kind.ROWS or places.axis == places.rank - 1:
        raise Unknown
    shape = (*places.sizes[:-1], *x.sizes[count + depth.number :])
    if count == 0 and x.kind is Kind.CONSTANT:
        return same_place(places, shape, places.axis)
    same = (x.axis, x.outer, x.inner) == (places.axis, places.outer, places.inner)
    if x.kind is Kind.ROWS and x.axis < count and same:
        return same_place(places, shape, places.axis)
    raise Unknown


def _padded(node: Node, values: Values) -> Value:
    x = given(values)
    if node.version < 11:
        pads: Elements = tuple(Size(one) for one in integers(node, "pads"))
    else:
        pads = sizes(values, 1)
    if x.kind is Kind.ROWS and optional(values, 2) is not None:
        constant_or_none(values, 2)
    axes = constant_or_none(values, 3)
    places = [*range(x.rank)] if axes is None else [axis_of(axis, x.rank) for axis in axes.numbers()]
    if len(pads) != 2 * len(places) or len({*places}) != len(places):
        raise Unknown
    plain = [_plain(pad) for pad in pads]
    before: list[int | None] = [0] * x.rank
    behind: list[int | None] = [0] * x.rank
    for at, place in enumerate(places):
        before[place], behind[place] = plain[at], plain[at + len(places)]
    return pieces.padded(x, before, behind)


def _resized(node: Node, values: Values) -> Value:
    """Return images of another size: records are not between each other if their axis keeps its size."""
    x = given(values)
    if str(node.get("coordinate_transformation_mode", "")) == "tf_crop_and_resize" or "axes" in node.attributes:
        raise Unknown
    if node.kind == "Upsample" or node.version < 11:
        scales, target = 1, None
    else:
        scales, target = 2, 3
    wanted = optional(values, target) if target else None
    if wanted is not None and wanted.sizes != (Size(0),):
        elements = arithmetic.elements(wanted)
        if str(node.get("keep_aspect_ratio_policy", "stretch")) != "stretch":
            raise Unknown
        stays = [size == x.sizes[at] for at, size in enumerate(elements)]
        shape = [unknown_size() if size is None else size for size in elements]
    else:
        if node.kind == "Upsample" and node.version < 9:
            elements = tuple(_size(one) for one in node.get("scales"))
        else:
            elements = sizes(values, scales)
        array = given(values, scales).load() if node.kind == "Resize" else None
        if array is not None and windows.scales(x, dict(enumerate(array.tolist()))):
            return displaced()
        stays = [factor == ONE for factor in elements]
        pairs = zip(x.sizes, elements, strict=True)
        shape = [unknown_size() if factor is None else size.times(factor) for size, factor in pairs]
    if len(shape) != x.rank or (x.kind is Kind.ROWS and not stays[x.axis]):
        raise Unknown
    return same_place(x, shape)


OPERATORS = {
    "Transpose": Operator(_transposed, from_first),
    "Reshape": Operator(_reshaped, from_first, takes_sizes=True),
    "Flatten": Operator(_flattened, from_first),
    "Squeeze": Operator(_squeezed, from_first, takes_sizes=True),
    "Unsqueeze": Operator(_unsqueezed, from_first, takes_sizes=True),
    "Expand": Operator(_expanded, from_first, takes_sizes=True),
    "Tile": Operator(_tiled, from_first, takes_sizes=True),
    "ConstantOfShape": Operator(_filled, takes_sizes=True),
    "Shape": Operator(_measured, takes_all=True),
    "Size": Operator(_counted, takes_all=True),
    "Constant": Operator(_constant),
    "Range": Operator(_ranged, takes_sizes=True),
    "Concat": Operator(_joined, takes_all=True),
    "Split": Operator(_parted, from_first, picks=True, takes_sizes=True),
    "Slice": Operator(_sliced, from_first, picks=True, takes_sizes=True),
    "Gather": Operator(_gathered, from_first, picks=True, moves=True, takes_sizes=True),
    "GatherElements": Operator(_gathered_elements, moves=True),
    "ScatterElements": Operator(_scattered, moves=True),
    "GatherND": Operator(_gathered_points, moves=True),
    "ScatterND": Operator(_scattered_points, moves=True),
    "Unique": Operator(_unique),
    "GridSample": Operator(_sampled),
    "Pad": Operator(_padded),
    "Resize": Operator(_resized, takes_sizes=True),
    "Upsample": Operator(_resized),
}
