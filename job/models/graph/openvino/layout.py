"""Operators of OpenVINO that move, repeat, take and put together elements, and that make shapes of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cluster_serving.job.models.graph.given import (
    constant_or_none,
    given,
    integers,
    only_constants,
    optional,
    refuse_sizes,
    sizes,
)
from cluster_serving.job.models.graph.network import Node, Operator, Values, from_first
from cluster_serving.job.models.graph.openvino.along import axes
from cluster_serving.job.models.graph.rules import arithmetic, layout, pieces, windows
from cluster_serving.job.models.graph.rules.along import axes_of, axis_of
from cluster_serving.job.models.graph.size import ONE, Size, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, constant, displaced, numbers, same_place
from cluster_serving.job.models.graph.value import places as places_of_records

CHECKED = "checked"
"""Attribute of a node whose places are checked before the network computes."""

_FAR = Size(2**31 - 1)
"""An end beyond every tensor."""

_Bound = tuple[int, Size | None, Size | None, Size | None]
"""Axis, start, end and step of a slice."""

_GATHERS_FROM_END = 8
"""Version since which a negative place is counted from the end."""


def _transposed(node: Node, values: Values) -> Value:
    x = given(values)
    return layout.transposed(x, axes(values) or [*range(x.rank)][::-1])


def _reshaped(node: Node, values: Values) -> Value:
    x, target = given(values), sizes(values, 1)
    if x.elements is not None and len(target) < 2:
        # A vector or a number of sizes.
        return numbers(x.elements, is_scalar=not target)
    refuse_sizes(x)
    return layout.reshaped(x, target, copies_zero=bool(node.get("special_zero")))


def _squeezed(node: Node, values: Values) -> Value:
    x, gone = given(values), axes(values)
    if x.elements is not None and x.rank == 1 and len(x.elements) == 1 and gone in ([0], [-1]):
        return numbers(x.elements, is_scalar=True)
    refuse_sizes(x)
    # Of another size, the axis may stay.
    if not gone or any(x.sizes[at] != ONE for at in axes_of(gone, x.rank)):
        raise Unknown
    return layout.squeezed(x, gone)


def _unsqueezed(node: Node, values: Values) -> Value:
    x, added = given(values), axes(values)
    if x.elements is not None and x.rank == 0 and len(added) == 1:
        return numbers(x.elements)
    refuse_sizes(x)
    return layout.unsqueezed(x, added)


def _expanded(node: Node, values: Values) -> Value:
    x = given(values)
    refuse_sizes(x)
    if len(values) != 2 or node.get("mode") not in ("numpy", "bidirectional"):
        raise Unknown
    return layout.expanded(x, sizes(values, 1))


def _tiled(node: Node, values: Values) -> Value:
    x = given(values)
    refuse_sizes(x)
    return layout.tiled(x, sizes(values, 1))


def _measured(node: Node, values: Values) -> Value:
    x = given(values)
    if x.kind is Kind.PIECE:
        raise Unknown
    return arithmetic.measured(x.sizes)


def _ranged(node: Node, values: Values) -> Value:
    if any(value is not None and value.counts for value in values):
        return places_of_records()
    only_constants(values, 0)
    return constant([unknown_size()])


def _joined(node: Node, values: Values) -> Value:
    inputs = [given(values, position) for position in range(len(values))]
    if {value.kind for value in inputs} <= {Kind.CONSTANT, Kind.SIZES} and all(value.rank == 1 for value in inputs):
        # There may be too many of them.
        with suppress(Unknown):
            return arithmetic.joined(inputs)
    refuse_sizes(*inputs)
    return pieces.concatenated(inputs, node.integer("axis"))


def _parted(node: Node, values: Values) -> list[Value]:
    x, (axis,) = given(values), axes(values)
    at = axis_of(axis, x.rank)
    count = len(node.outputs)
    size = x.sizes[at]
    if node.kind == "Split":
        return pieces.parted(x, at, [size.over(Size(count)) or unknown_size()] * count)
    parts = axes(values, 2)
    if len(parts) != count:
        raise Unknown
    return pieces.parted(x, at, [unknown_size() if part < 0 else Size(part) for part in parts])


def _sliced(node: Node, values: Values) -> Value:
    starts, ends, steps = (sizes(values, position) for position in (1, 2, 3))
    places = range(len(starts)) if optional(values, 4) is None else axes(values, 4)
    return _cut(given(values), [*zip(places, starts, ends, steps, strict=True)])


def _cut_by_steps(node: Node, values: Values) -> Value:
    """Return a slice of the first axes; masks name the axes that lose a bound, or vanish."""
    starts, ends = sizes(values, 1), sizes(values, 2)
    steps = sizes(values, 3) if optional(values, 3) is not None else (ONE,) * len(starts)
    count = len(starts)
    if any(_mask(node, "new_axis_mask", count)) or any(_mask(node, "ellipsis_mask", count)):
        raise Unknown
    vanish = _mask(node, "shrink_axis_mask", count)
    bounds: list[_Bound] = []
    rows = zip(starts, ends, steps, _mask(node, "begin_mask", count), _mask(node, "end_mask", count), strict=True)
    for at, (start, end, step, from_first_one, to_last) in enumerate(rows):
        if vanish[at]:
            # One element, whatever the end is.
            if start is None or not start.is_number:
                raise Unknown
            last = _FAR if start.number == -1 else Size(start.number + 1)
            bounds.append((at, start, last, ONE))
        else:
            bounds.append((at, Size(0) if from_first_one else start, _FAR if to_last else end, step))
    x = _cut(given(values), bounds)
    gone = [at for at in range(count) if vanish[at]]
    if not gone:
        return x
    if x.elements is not None:
        return numbers(x.elements, is_scalar=True)
    if x.kind not in (Kind.CONSTANT, Kind.ROWS) or (x.kind is Kind.ROWS and x.axis in gone):
        raise Unknown
    shape = [size for at, size in enumerate(x.sizes) if at not in gone]
    return same_place(x, shape, x.axis - sum(at < x.axis for at in gone))


def _mask(node: Node, name: str, count: int) -> list[bool]:
    found = [bool(one) for one in integers(node, name)]
    return [*found, *[False] * count][:count]


def _cut(x: Value, bounds: Sequence[_Bound]) -> Value:
    if x.elements is not None:
        if x.rank != 1 or len(bounds) != 1:
            raise Unknown
        ((_, first, last, pace),) = bounds
        if _step(pace) is None:
            raise Unknown
        return numbers(x.elements[_known(first) : _known(last) : _step(pace)])
    refuse_sizes(x)
    if len(axes_of([axis for axis, *_ in bounds], x.rank)) != len(bounds):
        raise Unknown
    for axis, first, last, pace in bounds:
        if x.kind in (Kind.MIXED, Kind.PIECE):
            # Of one axis, no more is known.
            raise Unknown
        is_of_batch = x.kind is Kind.ROWS and x.axis == axis_of(axis, x.rank) and not x.is_uniform
        if is_of_batch and pace is not None and pace.number < 0:
            return displaced()
        if first is not None and first.has_batch:
            raise Unknown
        start = first.number if first is not None and first.is_number else None
        x = pieces.sliced(x, axis, start, last, _step(pace))
    return x


def _known(size: Size | None) -> int:
    if size is None or not size.is_number:
        raise Unknown
    return size.number


def _step(size: Size | None) -> int | None:
    """Return a step; None if it is not known, or goes backwards."""
    return size.number if size is not None and size.is_number and size.number > 0 else None


def _gathered(node: Node, values: Values) -> Value:
    x, places, (axis,) = given(values), given(values, 1), axes(values, 2)
    if node.get("batch_dims", 0):
        raise Unknown
    if x.kind is not Kind.ROWS and x.elements is not None and places.elements is not None and x.rank == 1:
        found = [x.elements[_place(node, at)] for at in places.numbers()]
        return numbers(found, is_scalar=places.rank == 0)
    refuse_sizes(x, places)
    # Kernels read other memory beyond the end.
    if not node.get(CHECKED) and (
        places.kind is not Kind.CONSTANT or not _is_within(node, places.numbers(), x.sizes[axis_of(axis, x.rank)])
    ):
        raise Unknown
    return pieces.gathered(x, places, axis)


def _bags(node: Node, values: Values) -> Value:
    """Return sums of rows of a table, one for the places of each record."""
    table, places = given(values), given(values, 1)
    if not node.get(CHECKED) or len(values) > 2 or table.kind is not Kind.CONSTANT or places.rank != 2:
        raise Unknown
    refuse_sizes(table, places)
    if places.kind is not Kind.ROWS or places.axis:
        raise Unknown
    return same_place(places, (places.sizes[0], *table.sizes[1:]), 0)


def _is_within(node: Node, places: Sequence[int], size: Size) -> bool:
    """Return True if an axis has these places; an axis of unknown size has at least one element."""
    least = size.number if size.is_number else 1
    return all(-least <= _place(node, at) < least for at in places)


def _place(node: Node, at: int) -> int:
    if at < 0 and node.version < _GATHERS_FROM_END:
        raise Unknown
    return at


def _scattered(node: Node, values: Values) -> Value:
    (axis,) = axes(values, 3)
    return pieces.scattered(given(values), given(values, 1), given(values, 2), axis)


def _scattered_points(node: Node, values: Values) -> Value:
    return pieces.scattered_points(given(values), given(values, 1))


def _unique(node: Node, values: Values) -> list[Value]:
    axis = axes(values)[0] if len(values) > 1 else None
    return [pieces.unique(given(values), axis)] * len(node.outputs)


def _sampled(node: Node, values: Values) -> Value:
    return windows.sampled(given(values), given(values, 1))


def _padded(node: Node, values: Values) -> Value:
    before, behind = (_plain(values, position) for position in (1, 2))
    constant_or_none(values, 3)
    return pieces.padded(given(values), before, behind)


def _plain(values: Values, position: int) -> list[int | None]:
    only_constants(values, position)
    return [size.number if size is not None and size.is_number else None for size in sizes(values, position)]


def _resampled(node: Node, values: Values) -> Value:
    """Return images of another size: records are not between each other if their axis is not resized."""
    # Since version 11, either sizes or scales are an input.
    position = 2 if node.version >= 11 else 3
    x = given(values)
    only_constants(values)
    if node.version < 4 or any(integers(node, "pads_begin")) or any(integers(node, "pads_end")):
        raise Unknown
    places = range(x.rank) if optional(values, position) is None else axes_of(axes(values, position), x.rank)
    if node.get("shape_calculation_mode") == "scales":
        array = given(values, position - 1).load()
        factors = dict(zip(places, [] if array is None else array.tolist(), strict=True))
        if windows.scales(x, factors):
            return displaced()
        resized_axes = [at for at, factor in factors.items() if factor != 1]
    else:
        resized_axes = [*places]
    if x.kind is Kind.ROWS and x.axis in resized_axes:
        raise Unknown
    return same_place(x, [unknown_size() if at in resized_axes else size for at, size in enumerate(x.sizes)])


OPERATORS = {
    "Transpose": Operator(_transposed, from_first),
    "Reshape": Operator(_reshaped, from_first, takes_sizes=True),
    "Squeeze": Operator(_squeezed, from_first, takes_sizes=True),
    "Unsqueeze": Operator(_unsqueezed, from_first, takes_sizes=True),
    "Broadcast": Operator(_expanded, from_first, takes_sizes=True),
    "Tile": Operator(_tiled, from_first, takes_sizes=True),
    "ShapeOf": Operator(_measured, takes_all=True),
    "Range": Operator(_ranged, takes_sizes=True),
    "Concat": Operator(_joined, takes_all=True),
    "Split": Operator(_parted, from_first, picks=True),
    "VariadicSplit": Operator(_parted, from_first, picks=True),
    "Slice": Operator(_sliced, from_first, picks=True, takes_sizes=True),
    "StridedSlice": Operator(_cut_by_steps, from_first, picks=True, takes_sizes=True),
    "Gather": Operator(_gathered, from_first, picks=True, moves=True, takes_sizes=True),
    **{name: Operator(_scattered, moves=True) for name in ("ScatterElementsUpdate", "ScatterUpdate")},
    "ScatterNDUpdate": Operator(_scattered_points, moves=True),
    "Unique": Operator(_unique),
    "GridSample": Operator(_sampled),
    "EmbeddingBagPackedSum": Operator(_bags),
    "Pad": Operator(_padded),
    "Interpolate": Operator(_resampled),
}
