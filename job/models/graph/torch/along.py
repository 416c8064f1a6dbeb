"""Operators of PyTorch that compute along axes: reductions, normalizations, sorting."""

from __future__ import annotations

from dataclasses import replace

from cluster_serving.job.models.graph.network import Flow, Node, Operator, Rule, Values, from_first, stops, through
from cluster_serving.job.models.graph.rules.along import along, axis_of, largest, reduced, resized
from cluster_serving.job.models.graph.rules.elementwise import elementwise
from cluster_serving.job.models.graph.size import ONE, Size, unknown_size
from cluster_serving.job.models.graph.torch.arguments import constants, flag, integers, optional, size, tensor
from cluster_serving.job.models.graph.value import UNKNOWN, Kind, Unknown, Value, displaced, mixed, same_place

_ALL_IF_NONE = ("aten.amax.default", "aten.amin.default", "aten.sum.dim_IntList", "aten.mean.dim")
"""Reductions of all axes where none is named."""


def _axes(node: Node, x: Value) -> list[int]:
    """Return the axes of a reduction."""
    if node.get("dim") is None:
        return [*range(x.rank)]
    found = integers(node, "dim")
    if not found and node.kind in _ALL_IF_NONE:
        return [*range(x.rank)]
    if not found:
        # Some operators reduce all axes then, and some reduce none.
        raise Unknown
    return found


def _reduced(node: Node, values: Values) -> list[Value]:
    (x,) = values
    if x is None:
        raise Unknown
    return [reduced(x, _axes(node, x), bool(node.get("keepdim", False)))] * len(node.outputs)


def _with_places(node: Node, values: Values) -> list[Value]:
    """Return the element of an axis that is chosen, and its place."""
    x = tensor(node, values, "self")
    axis = node.integer("dim")
    found = reduced(x, [axis], flag(node, "keepdim"))
    return [found, _place(x, axis, found)]


def _argument(node: Node, values: Values) -> Value:
    x = tensor(node, values, "self")
    if node.get("dim") is None:
        return reduced(x, range(x.rank), False)
    axis = node.integer("dim")
    return _place(x, axis, reduced(x, [axis], flag(node, "keepdim")))


def _place(x: Value, axis: int, found: Value) -> Value:
    # Of one element, the place is known.
    return replace(found, is_uniform=True) if x.sizes[axis] == ONE and found.kind is Kind.ROWS else found


def _on_axis(node: Node, values: Values) -> Value:
    (x,) = values
    if x is None:
        raise Unknown
    return along(x, [node.integer("dim")])


def _greatest(node: Node, values: Values) -> list[Value]:
    found = _on_axis(node, values)
    return [found, UNKNOWN if found.kind is Kind.MIXED else found]


def _sorted(node: Node, values: Values) -> list[Value]:
    (x,) = values
    if x is None:
        raise Unknown
    axis = node.integer("dim")
    found, places = largest(x, axis, x.sizes[axis_of(axis, x.rank)])
    return [found, _place(x, axis, places)][-len(node.outputs) :]


def _largest(node: Node, values: Values) -> list[Value]:
    x, count = tensor(node, values, "self"), size(node, values, "k")
    axis = node.integer("dim")
    if count is not None and count.has_batch and not (x.kind is Kind.ROWS and axis_of(axis, x.rank) == x.axis):
        raise Unknown
    found, places = largest(x, axis, count or unknown_size())
    return [found, _place(x, axis, places)]


def _transformed(node: Node, values: Values) -> Value:
    """Return the spectrum of an axis, or what has this spectrum."""
    return resized(tensor(node, values, "self"), node.integer("dim"), unknown_size())


def _normalized(node: Node, values: Values) -> list[Value]:
    """Return the last axes, normalised over themselves, and statistics that stay unknown."""
    constants(node, values, "weight", "bias")
    x = tensor(node, values, "input")
    count = len(node.get("normalized_shape"))
    found = along(x, range(x.rank - count, x.rank))
    if found.kind is Kind.MIXED:
        if not _keeps(node, values):
            raise Unknown
        return [found]
    scaled = elementwise([found, *_scales(node, values)])
    if scaled.sizes != found.sizes:
        raise Unknown
    return [scaled]


def _scales(node: Node, values: Values) -> list[Value]:
    return [value for value in (optional(node, values, name) for name in ("weight", "bias")) if value is not None]


def _keeps(node: Node, values: Values) -> bool:
    """Return True if the weights of a normalization lose nothing of what is mixed."""
    scales = _scales(node, values)
    return from_first(node, values) and not (scales and scales[0].is_zero())


def _normalized_batch(node: Node, values: Values) -> list[Value]:
    constants(node, values, "weight", "bias", "running_mean", "running_var")
    x = tensor(node, values, "input")
    trains = "training" in node.attributes and flag(node, "training")
    if x.rank < 2 or (x.kind is Kind.ROWS and x.axis == 1):
        raise Unknown
    if not trains or x.kind is not Kind.ROWS:
        return [same_place(x, x.sizes)]
    if x.is_uniform:
        raise Unknown
    if not _keeps(node, values):
        raise Unknown
    return [mixed(x.sizes)]


def _normalized_channels(node: Node, values: Values) -> list[Value]:
    """Return what each channel of each record, or some channels of it, make of themselves; the batch is in front."""
    constants(node, values, "weight", "bias", "running_mean", "running_var")
    x = tensor(node, values, "input")
    if x.rank > 2 and x.kind is Kind.ROWS and x.axis > 1 and not x.is_uniform:
        return [displaced()]
    if x.rank < 2 or (x.kind is Kind.ROWS and x.axis != 0) or ("instance" in node.kind and x.rank < 3):
        raise Unknown
    return [same_place(x, x.sizes)]


def _triangle(node: Node, values: Values) -> Value:
    x = tensor(node, values, "self")
    # The numbers of the diagonals may be those of the records.
    if len(values) > 1 or (x.kind is Kind.ROWS and x.axis >= x.rank - 2):
        raise Unknown
    return same_place(x, x.sizes)


def _one_hot(node: Node, values: Values) -> Value:
    x, count = tensor(node, values, "self"), node.integer("num_classes")
    if count < 1:
        # As many as the largest number of the call.
        raise Unknown
    return same_place(x, (*x.sizes, Size(count)))


def _turned(node: Node, values: Values) -> Value:
    """Return elements that change their places on some axes."""
    x = tensor(node, values, "self")
    # Without axes, all elements are one row.
    axes = {axis_of(axis, x.rank) for axis in integers(node, "dims") or range(x.rank)}
    if x.kind is Kind.ROWS and x.axis in axes:
        return _displaced(x)
    return same_place(x, x.sizes)


def _displaced(x: Value) -> Value:
    if x.is_uniform:
        raise Unknown
    return displaced()


def _compared(node: Node, values: Values) -> Value:
    """Return how near two tensors are, along an axis."""
    x = elementwise([tensor(node, values, "x1"), tensor(node, values, "x2")])
    if x.kind is Kind.MIXED:
        raise Unknown
    return reduced(x, [node.integer("dim", -1)], bool(node.get("keepdim", False)))


def _operators(names: str, rule: Rule, flows: Flow = stops) -> dict[str, Operator]:
    return {name: Operator(rule, flows) for name in names.split()}


OPERATORS = {
    **_operators(
        "sum.dim_IntList sum.default mean.dim mean.default amax.default amin.default max.default min.default "
        "logsumexp.default var.correction var.dim var.default std.correction std.dim std.default "
        "var_mean.correction var_mean.dim std_mean.correction prod.dim_int prod.default",
        _reduced,
        from_first,
    ),
    # A norm of order 0 counts what is not zero.
    **_operators(
        "linalg_vector_norm.default norm.Scalar norm.ScalarOpt_dim median.default nanmedian.default", _reduced
    ),
    **_operators("any.dim any.dims any.default all.dim all.dims all.default", _reduced),
    **_operators("max.dim min.dim median.dim mode.default kthvalue.default", _with_places),
    **_operators("argmax.default argmin.default", _argument),
    **_operators("softmax.int _softmax.default log_softmax.int _log_softmax.default", _on_axis, through),
    **_operators("cumsum.default logcumsumexp.default", _on_axis, from_first),
    **_operators("cumprod.default", _on_axis),
    **_operators("cummax.default cummin.default", _greatest),
    **_operators("sort.default sort.stable argsort.default argsort.stable", _sorted),
    **_operators("topk.default", _largest),
    **_operators("fft_fft.default fft_ifft.default fft_rfft.default fft_irfft.default", _transformed),
    **_operators(
        "layer_norm.default native_layer_norm.default rms_norm.default _fused_rms_norm.default", _normalized, _keeps
    ),
    **_operators(
        "batch_norm.default native_batch_norm.default _native_batch_norm_legit_no_training.default "
        "_native_batch_norm_legit_functional.default _batch_norm_no_update.default cudnn_batch_norm.default",
        _normalized_batch,
        _keeps,
    ),
    **_operators("group_norm.default instance_norm.default", _normalized_channels, _keeps),
    "native_group_norm.default": Operator(_normalized_channels, takes_sizes=True),
    **_operators("tril.default triu.default", _triangle),
    **_operators("one_hot.default", _one_hot),
    **_operators("roll.default flip.default", _turned),
    **_operators("cosine_similarity.default pairwise_distance.default", _compared),
}
