"""The layers of BigDL that can be served, for inference: each a function of PyTorch tensors, made from a module.

Images are a batch in NCHW, or in NHWC if the layer's `format` or `dataFormat` is 1.
"""

import math
import re
from collections.abc import Callable
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it

from cluster_serving.job.models.bigdl.format import Module

Layer = Callable[[Any], Any]
"""Function from a tensor, or a list of tensors (a BigDL table), to one of these."""

# Layers that return what they take, a table included.
_UNCHANGED = ("Dropout", "Identity", "Input")
# The padding that stands for TensorFlow's SAME.
_SAME = (-1, -1)
_CLASS = re.compile(r"com\.intel\.analytics\.bigdl\.(?:dllib\.)?nn\.(\w+)")


def make_layer(module: Module) -> Layer:
    """Return the function that a module computes."""
    return LAYERS[class_name(module) or ""](module)


def class_name(module: Module) -> str | None:
    """Return the name of the layer if it can be served; BigDL's Keras API and MKL-DNN have layers of the same names."""
    match = _CLASS.fullmatch(module.type)
    return match[1] if match and match[1] in LAYERS else None


def unknown_layers(module: Module) -> list[str]:
    """Return the types of the layers in a module that cannot be served, each once."""
    here = [] if class_name(module) else [module.type]
    return list(dict.fromkeys(here + [name for inner in module.modules for name in unknown_layers(inner)]))


def is_graph(module: Module) -> bool:
    """Return True if the module is a graph, whose inputs and outputs have names."""
    return class_name(module) in ("Graph", "StaticGraph")


def input_names(module: Module) -> list[str]:
    """Return the names of a graph's inputs; `input` for any other module."""
    return list(module.attributes["inputNames"]) if is_graph(module) else ["input"]


def output_names(module: Module) -> list[str]:
    """Return the names of a graph's outputs; for any other module `output`, or `output_0`, `output_1` and so on."""
    if is_graph(module):
        return list(module.attributes["outputNames"])
    last = module
    while class_name(last) == "Sequential" and last.modules:
        last = next((inner for inner in reversed(last.modules) if class_name(inner) not in _UNCHANGED), last.modules[0])
    count = 1
    if is_graph(last):
        count = len(output_names(last))
    elif class_name(last) == "ConcatTable":
        count = len(last.modules)
    return ["output"] if count == 1 else [f"output_{index}" for index in range(count)]


def _sequential(module: Module) -> Layer:
    layers = [make_layer(inner) for inner in module.modules]
    return lambda x: reduce(lambda value, layer: layer(value), layers, x)


def _graph(module: Module) -> Layer:
    nodes = {node.name: node for node in module.modules}
    layers = {name: make_layer(node) for name, node in nodes.items()}
    inputs, outputs = input_names(module), output_names(module)
    # Edge → element of the previous node's table that the edge carries, counted from 1, or -1 for the whole table.
    edges = {name: (module.attributes.get(f"{name}_edges") or {}) for name in nodes}
    order = _order(nodes, outputs)

    def take(values: dict[str, Any], name: str, previous: str) -> Any:
        index = edges[name].get(previous, -1)
        return values[previous] if index == -1 else values[previous][index - 1]

    def run(x: Any) -> Any:
        given = dict(zip(inputs, x if len(inputs) > 1 else [x], strict=True))
        values: dict[str, Any] = {}
        for name in order:
            taken = [given[name]] if name in given else [take(values, name, p) for p in nodes[name].previous]
            values[name] = layers[name](taken[0] if len(taken) == 1 else taken)
        return values[outputs[0]] if len(outputs) == 1 else [values[name] for name in outputs]

    return run


def _order(nodes: dict[str, Module], outputs: list[str]) -> list[str]:
    """Return the names of the nodes that the outputs need. Each node is behind the nodes that it needs."""
    needed: dict[str, list[str]] = {}
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name not in nodes:
            raise ValueError(f"its graph has no node {name!r}")
        if name not in needed:
            needed[name] = nodes[name].previous
            waiting += needed[name]
    try:
        return list(TopologicalSorter(needed).static_order())
    except CycleError as error:
        raise ValueError(f"its graph has a loop: {' → '.join(error.args[1])}") from error


def _concat(module: Module) -> Layer:
    layers, axis = [make_layer(inner) for inner in module.modules], module.attributes["dimension"] - 1
    return lambda x: torch.cat([layer(x) for layer in layers], axis)


def _concat_table(module: Module) -> Layer:
    layers = [make_layer(inner) for inner in module.modules]
    return lambda x: [layer(x) for layer in layers]


def _join_table(module: Module) -> Layer:
    dimension, record_dims = module.attributes["dimension"], module.attributes["nInputDims"]

    def run(xs: list[torch.Tensor]) -> torch.Tensor:
        axis = xs[0].ndim + dimension if dimension < 0 else dimension - 1
        has_batch = dimension > 0 and record_dims > 0 and xs[0].ndim == record_dims + 1
        return torch.cat(xs, axis + has_batch)

    return run


def _linear(module: Module) -> Layer:
    return lambda x: F.linear(x, *module.parameters)


def _convolution(module: Module) -> Layer:
    attributes, (weight, *bias) = module.attributes, module.parameters
    # The weight is (group, out, in, height, width); for NHWC it is (group, height, width, in, out).
    kernel = (weight.permute(0, 4, 3, 1, 2) if attributes.get("format") else weight).flatten(0, 1).contiguous()
    size, stride, padding = (_pair(attributes, prefix) for prefix in ("kernel", "stride", "pad"))

    def run(x: torch.Tensor) -> torch.Tensor:
        if padding == _SAME:
            x = F.pad(x, _same_padding(x, size, stride))
        return F.conv2d(x, kernel, *(bias or [None]), stride, 0 if padding == _SAME else padding, groups=len(weight))

    return _images(module, run)


def _max_pooling(module: Module) -> Layer:
    attributes = module.attributes
    stride, padding = _pair(attributes, "d"), _pair(attributes, "pad")

    def run(x: torch.Tensor) -> torch.Tensor:
        size = _window(attributes, x)
        if padding == _SAME:
            return F.max_pool2d(F.pad(x, _same_padding(x, size, stride), value=-math.inf), size, stride)
        return F.max_pool2d(x, size, stride, padding, ceil_mode=_rounds_up(attributes))

    return _images(module, run)


def _average_pooling(module: Module) -> Layer:
    attributes = module.attributes
    stride, padding = _pair(attributes, "d"), _pair(attributes, "pad")
    counts_padding = bool(attributes.get("countIncludePad", True))

    def run(x: torch.Tensor) -> torch.Tensor:
        size = _window(attributes, x)
        if padding == _SAME:
            left, right, top, bottom = pads = _same_padding(x, size, stride)
            # BigDL counts as much padding behind an image as before it, even where there is one row or column more.
            places = F.pad(torch.ones_like(x[:1, :1]), [left, left, top, top], value=counts_padding)
            places = F.pad(places, [0, right - left, 0, bottom - top])
            y, counts = (F.avg_pool2d(t, size, stride, divisor_override=1) for t in (F.pad(x, pads), places))
            y = y / counts
        else:
            y = F.avg_pool2d(x, size, stride, padding, _rounds_up(attributes), counts_padding)
        return y if attributes.get("divide", True) else y * math.prod(size)

    return _images(module, run)


def _images(module: Module, function: Layer) -> Layer:
    """Return a function of NCHW images as the module takes them: a batch, and NHWC if its `format` says so."""

    def run(x: torch.Tensor) -> torch.Tensor:
        if x.ndim != 4:
            raise ValueError(f"{module.name} takes images with a batch dimension: 4 dimensions, not {x.ndim}")
        if not module.attributes.get("format"):
            y: torch.Tensor = function(x)
            return y
        return function(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    return run


def _pair(attributes: dict[str, Any], prefix: str) -> tuple[int, int]:
    return attributes[f"{prefix}H"], attributes[f"{prefix}W"]


def _window(attributes: dict[str, Any], x: torch.Tensor) -> tuple[int, int]:
    return (x.shape[2], x.shape[3]) if attributes.get("globalPooling") else _pair(attributes, "k")


def _rounds_up(attributes: dict[str, Any]) -> bool:
    return bool(attributes.get("ceilMode") or attributes.get("ceil_mode"))


def _same_padding(x: torch.Tensor, size: tuple[int, int], stride: tuple[int, int]) -> list[int]:
    """Return the padding that keeps the size, as TensorFlow's SAME: left, right, top, bottom."""
    pads: list[int] = []
    for length, window, step in zip(x.shape[:1:-1], size[::-1], stride[::-1], strict=True):
        total = max(0, (math.ceil(length / step) - 1) * step + window - length)
        pads += [total // 2, total - total // 2]
    return pads


def _normalization(module: Module) -> Layer:
    attributes = module.attributes
    mean, variance = attributes["runningMean"], attributes["runningVar"]
    weight, bias, *_ = [*module.parameters, None, None]

    def run(x: torch.Tensor) -> torch.Tensor:
        channel = -1 if attributes.get("dataFormat") else 1
        return F.batch_norm(x.movedim(channel, 1), mean, variance, weight, bias, eps=attributes["eps"]).movedim(
            1, channel
        )

    return run


def _reshape(module: Module) -> Layer:
    size, mode = tuple(module.attributes["size"]), module.attributes["batchMode"]
    elements = math.prod(size)

    def run(x: torch.Tensor) -> torch.Tensor:
        is_whole = mode == 1 or (mode == 0 and x.numel() == elements and len(x) != 1)
        return x.reshape(size if is_whole else (len(x), *size))

    return run


def _view(module: Module) -> Layer:
    sizes = tuple(module.attributes["sizes"])
    # BigDL drops the dimension of a batch of one, which the layers after it cannot tell from a record.
    return lambda x: x.reshape(sizes if -1 in sizes else (len(x), *sizes))


def _infer_reshape(module: Module) -> Layer:
    size, keeps_batch = module.attributes["size"], module.attributes["batchMode"]

    def run(x: torch.Tensor) -> torch.Tensor:
        dims = x.shape[1:] if keeps_batch else x.shape
        shape = [dims[index] if length == 0 else length for index, length in enumerate(size)]
        return x.reshape([len(x), *shape] if keeps_batch else shape)

    return run


def _over_classes(function: Callable[..., torch.Tensor]) -> Layer:
    def run(x: torch.Tensor) -> torch.Tensor:
        if x.ndim not in (2, 4):
            raise ValueError(f"SoftMax takes 2 or 4 dimensions with the batch, not {x.ndim}")
        return function(x, 1)

    return run


def _function(function: Layer) -> Callable[[Module], Layer]:
    return lambda module: function


_identity = _function(lambda x: x)

LAYERS: dict[str, Callable[[Module], Layer]] = {
    "Sequential": _sequential,
    "StaticGraph": _graph,
    "Graph": _graph,
    "Concat": _concat,
    "ConcatTable": _concat_table,
    "JoinTable": _join_table,
    "CAddTable": _function(sum),
    "Linear": _linear,
    "SpatialConvolution": _convolution,
    "SpatialShareConvolution": _convolution,
    "SpatialMaxPooling": _max_pooling,
    "SpatialAveragePooling": _average_pooling,
    "BatchNormalization": _normalization,
    "SpatialBatchNormalization": _normalization,
    "Reshape": _reshape,
    "View": _view,
    "InferReshape": _infer_reshape,
    "ReLU": _function(torch.relu),
    "ReLU6": _function(F.relu6),
    "Tanh": _function(torch.tanh),
    "Sigmoid": _function(torch.sigmoid),
    "SoftMax": _function(_over_classes(torch.softmax)),
    "LogSoftMax": _function(_over_classes(torch.log_softmax)),
    "Dropout": _identity,
    "Identity": _identity,
    "Input": _identity,
}
"""Scala class → function that makes the layer from a module."""
