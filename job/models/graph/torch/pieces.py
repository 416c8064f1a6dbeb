"""Operators of PyTorch that take parts of tensors, or put tensors together."""

from __future__ import annotations

from cluster_serving.job.models.graph.given import refuse_sizes
from cluster_serving.job.models.graph.network import Flow, Node, Operator, Rule, Values, from_first, stops
from cluster_serving.job.models.graph.rules import pieces
from cluster_serving.job.models.graph.rules.along import axis_of, resized
from cluster_serving.job.models.graph.rules.elementwise import broadcast
from cluster_serving.job.models.graph.rules.layout import unsqueezed
from cluster_serving.job.models.graph.size import ONE, Size, product, unknown_size
from cluster_serving.job.models.graph.torch.arguments import Taken, optional, size, sizes, tensor, tensors
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, constant, same_place

_END = Size(2**63 - 1)


def _given(node: Node, values: Values) -> list[Value]:
    found = [value for value in tensors(node, values, "tensors") if value is not None]
    refuse_sizes(*found)
    return found


def _joined(node: Node, values: Values) -> Value:
    given = _given(node, values)
    # PyTorch leaves out vectors without elements.
    some = [value for value in given if value.shape != (Size(0),)]
    return pieces.concatenated(some or given, node.integer("dim"))


def _stacked(node: Node, values: Values) -> Value:
    given = _given(node, values)
    if any(value.kind not in (Kind.CONSTANT, Kind.ROWS) for value in given):
        raise Unknown
    axis = node.integer("dim")
    return pieces.concatenated([unsqueezed(value, [axis]) for value in given], axis)


def _split(node: Node, values: Values) -> list[Value]:
    """Return parts of these sizes, or all of one size but for the last one."""
    x = tensor(node, values, "self")
    name = "split_sizes" if node.kind == "aten.split_with_sizes.default" else "split_size"
    if isinstance(node.get(name), list):
        found = [one or unknown_size() for one in sizes(node, values, name)]
    else:
        found = [unknown_size() for _ in node.outputs]
        each, whole = node.integer(name), x.sizes[axis_of(node.integer("dim"), x.rank)]
        if whole.is_number:
            found = [Size(min(each, whole.number - start)) for start in range(0, whole.number, each)]
    return pieces.parted(x, node.integer("dim"), found)


def _chunked(node: Node, values: Values) -> list[Value]:
    x = tensor(node, values, "self")
    whole = x.sizes[axis_of(node.integer("dim"), x.rank)]
    exact = whole.over(Size(node.integer("chunks")))
    return pieces.parted(x, node.integer("dim"), [exact or unknown_size() for _ in node.outputs])


def _unbound(node: Node, values: Values) -> list[Value]:
    x = tensor(node, values, "self")
    axis = axis_of(node.integer("dim"), x.rank)
    parts = pieces.parted(x, axis, [ONE for _ in node.outputs])
    return [part if part.kind is Kind.PERHAPS else _without(part, axis) for part in parts]


def _without(x: Value, axis: int) -> Value:
    shape = (*x.sizes[:axis], *x.sizes[axis + 1 :])
    return same_place(x, shape, x.axis - (axis < x.axis))


def _selected(node: Node, values: Values) -> Value:
    """Return the elements at one place of an axis, without this axis."""
    x = tensor(node, values, "self")
    refuse_sizes(x)
    axis = axis_of(node.integer("dim"), x.rank)
    if x.kind is not Kind.ROWS or x.axis != axis:
        place = size(node, values, "index")
        if place is not None and place.has_batch:
            raise Unknown
        return _without(x, axis)
    node.integer("index")
    if x.is_uniform or x.outer != ONE or x.inner != ONE:
        raise Unknown
    return pieces.picked(x, axis, ())


def _sliced(node: Node, values: Values) -> Value:
    x = tensor(node, values, "self")
    refuse_sizes(x)
    start = Size(0) if node.get("start") is None else size(node, values, "start")
    end = _END if node.get("end") is None else size(node, values, "end")
    return pieces.sliced(x, node.integer("dim"), _plain(start), end, _plain(size(node, values, "step")))


def _narrowed(node: Node, values: Values) -> Value:
    x = tensor(node, values, "self")
    refuse_sizes(x)
    axis, length = axis_of(node.integer("dim"), x.rank), size(node, values, "length")
    start = _plain(size(node, values, "start"))
    if x.kind is Kind.ROWS and x.axis == axis:
        raise Unknown
    if length is not None and length.has_batch:
        raise Unknown
    return x if length == x.sizes[axis] and start == 0 else resized(x, axis, length or unknown_size())


def _plain(number: Size | None) -> int | None:
    """Return a number, or None for one that is not known; raise `Unknown` if it depends on the number of records."""
    if number is not None and number.has_batch:
        raise Unknown
    return number.number if number is not None and number.is_number else None


def _taken(node: Node, values: Values) -> Value:
    return pieces.gathered(tensor(node, values, "self"), tensor(node, values, "index"), node.integer("dim"))


def _looked_up(node: Node, values: Values) -> Value:
    return pieces.gathered(tensor(node, values, "weight"), tensor(node, values, "indices"), 0)


def _indexed(node: Node, values: Values) -> Value:
    """Return the elements at some places of one axis, or of some that are next to each other."""
    x, places = tensor(node, values, "self"), tensors(node, values, "indices")
    at = [axis for axis, place in enumerate(places) if place is not None]
    found = [place for place in places if place is not None]
    if not found or at != [*range(at[0], at[0] + len(at))]:
        raise Unknown
    if len(found) == 1:
        return pieces.gathered(x, found[0], at[0])
    if any(place.kind is not Kind.CONSTANT for place in found) or (x.kind is Kind.ROWS and x.axis in at):
        raise Unknown
    common = broadcast([place.sizes for place in found])
    shape = (*x.sizes[: at[0]], *common, *x.sizes[at[-1] + 1 :])
    if x.kind is Kind.CONSTANT:
        return constant(shape)
    return same_place(x, shape, x.axis + (len(common) - len(at) if x.axis > at[-1] else 0))


def _gathered(node: Node, values: Values) -> Value:
    return pieces.gathered_elements(tensor(node, values, "self"), tensor(node, values, "index"), node.integer("dim"))


def _scattered(node: Node, values: Values) -> Value:
    """Return a tensor with other elements at some places of an axis."""
    x, places = tensor(node, values, "self"), tensor(node, values, "index")
    updates = optional(node, values, "source" if "source" in node.attributes else "src")
    return pieces.scattered(x, places, places if updates is None else updates, node.integer("dim"))


def _put(node: Node, values: Values) -> Value:
    """Return a tensor with other elements at the places of one axis."""
    x, places = tensor(node, values, "self"), tensors(node, values, "indices")
    found = [(axis, place) for axis, place in enumerate(places) if place is not None]
    if len(found) != 1:
        raise Unknown
    ((axis, place),) = found
    return pieces.scattered(x, place, tensor(node, values, "values"), axis)


def _unique(node: Node, values: Values) -> list[Value]:
    axis = node.integer("dim") if node.get("dim") is not None else None
    return [pieces.unique(tensor(node, values, "self"), axis)] * len(node.outputs)


def _padded(node: Node, values: Values) -> Value:
    """Return a tensor with more elements around its last axes, or less."""
    x = tensor(node, values, "self")
    refuse_sizes(x)
    if isinstance(node.get("value"), Taken):
        raise Unknown
    pads = sizes(node, values, "padding" if "padding" in node.attributes else "pad")
    if len(pads) % 2 or len(pads) > 2 * x.rank:
        raise Unknown
    plain = [_plain(pad) for pad in pads]
    before: list[int | None] = [0] * x.rank
    behind: list[int | None] = [0] * x.rank
    for place in range(len(pads) // 2):
        before[-1 - place], behind[-1 - place] = plain[2 * place : 2 * place + 2]
    return pieces.padded(x, before, behind)


def _unfolded(node: Node, values: Values) -> Value:
    """Return windows over an axis, whose elements are a new last axis."""
    x = tensor(node, values, "self")
    axis = axis_of(node.integer("dimension"), x.rank)
    if x.kind is Kind.ROWS and x.axis == axis:
        raise Unknown
    shape = [*x.sizes, Size(node.integer("size"))]
    shape[axis] = unknown_size()
    return same_place(x, shape)


def _shuffled(node: Node, values: Values) -> Value:
    """Return images whose channels become pixels, or the other way round."""
    x = tensor(node, values, "self")
    if x.rank != 4 or (x.kind is Kind.ROWS and x.axis != 0):
        raise Unknown
    if node.kind == "aten.channel_shuffle.default":
        return same_place(x, x.sizes)
    is_larger = node.kind == "aten.pixel_shuffle.default"
    factor = Size(node.integer("upscale_factor" if is_larger else "downscale_factor"))
    area = factor.times(factor)
    if is_larger:
        found = [x.sizes[1].over(area), *(side.times(factor) for side in x.sizes[2:])]
    else:
        found = [x.sizes[1].times(area), *(side.over(factor) for side in x.sizes[2:])]
    return same_place(x, (x.sizes[0], *(one or unknown_size() for one in found)))


def _outer(node: Node, values: Values) -> list[Value]:
    """Return constants that are repeated along the axes of each other."""
    given = _given(node, values)
    if any(value.kind is not Kind.CONSTANT or value.rank > 1 for value in given):
        raise Unknown
    shape = [product(value.sizes) for value in given]
    return [constant(shape if node.get("indexing", "ij") == "ij" else [unknown_size() for _ in shape])] * len(given)


def _operators(names: str, rule: Rule, flows: Flow = stops, *, picks: bool = False) -> dict[str, Operator]:
    return {name: Operator(rule, flows, picks=picks, takes_sizes=True) for name in names.split()}


OPERATORS = {
    **{name: Operator(_joined, takes_all=True) for name in ("cat.default", "concat.default", "concatenate.default")},
    **_operators("stack.default", _stacked),
    **_operators("split.Tensor split.sizes split_with_sizes.default", _split, from_first, picks=True),
    **_operators("chunk.default", _chunked, from_first, picks=True),
    **_operators("unbind.int", _unbound, from_first, picks=True),
    **_operators("select.int", _selected, from_first, picks=True),
    **_operators("slice.Tensor", _sliced, from_first, picks=True),
    **_operators("narrow.default", _narrowed, from_first, picks=True),
    "index_select.default": Operator(_taken, from_first, picks=True, moves=True),
    "embedding.default": Operator(_looked_up),
    "index.Tensor": Operator(_indexed, moves=True),
    "gather.default": Operator(_gathered, moves=True),
    **{
        name: Operator(_scattered, moves=True)
        for name in (
            "scatter.src",
            "scatter.value",
            "scatter_add.default",
            "scatter_reduce.two",
            "index_add.default",
            "index_copy.default",
        )
    },
    "index_put.default": Operator(_put, moves=True),
    **{name: Operator(_unique) for name in ("_unique2.default", "unique_consecutive.default", "unique_dim.default")},
    **_operators(
        "constant_pad_nd.default pad.default reflection_pad1d.default reflection_pad2d.default "
        "reflection_pad3d.default replication_pad1d.default replication_pad2d.default replication_pad3d.default",
        _padded,
    ),
    "unfold.default": Operator(_unfolded),
    **{
        name: Operator(_shuffled, from_first)
        for name in ("pixel_shuffle.default", "pixel_unshuffle.default", "channel_shuffle.default")
    },
    **_operators("meshgrid.default meshgrid.indexing", _outer),
}
