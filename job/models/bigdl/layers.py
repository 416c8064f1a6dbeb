"""The layers of BigDL that are served, in numpy, for inference: functions of arrays, each made of a module."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from cluster_serving.job.models.bigdl.format import Module
from cluster_serving.job.models.bigdl.images import average_pooling, convolution, max_pooling
from cluster_serving.protocol.inputs import Array

Layer = Callable[[Any], Any]
"""From what a layer takes to what it returns: an array, or a list of arrays (a BigDL table)."""

_CLASS = re.compile(r"com\.intel\.analytics\.bigdl\.(?:dllib\.)?nn\.(\w+)")


def make_layer(module: Module) -> Layer:
    """Make the function that a module computes."""
    return LAYERS[class_name(module) or ""](module)


def class_name(module: Module) -> str | None:
    """Name of the layer if it can be served; the layers of BigDL's Keras API and of MKL-DNN are others."""
    match = _CLASS.fullmatch(module.type)
    return match[1] if match and match[1] in LAYERS else None


def unknown_layers(module: Module) -> list[str]:
    """Types of the layers in a module that cannot be served, each once."""
    here = [] if class_name(module) else [module.type]
    return list(dict.fromkeys(here + [name for inner in module.modules for name in unknown_layers(inner)]))


def _sequential(module: Module) -> Layer:
    layers = [make_layer(inner) for inner in module.modules]

    def run(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return run


def graph_inputs(module: Module) -> list[str]:
    """Names of a graph's inputs."""
    return [str(name) for name in module.attributes["inputNames"]]


def graph_outputs(module: Module) -> list[str]:
    """Names of a graph's outputs."""
    return [str(name) for name in module.attributes["outputNames"]]


def _graph(module: Module) -> Layer:
    nodes = {node.name: node for node in module.modules}
    layers = {name: make_layer(node) for name, node in nodes.items()}
    inputs, outputs = graph_inputs(module), graph_outputs(module)
    # Which element of a table an edge carries, counted from 1, or -1 for all of it.
    edges = {name: (module.attributes.get(f"{name}_edges") or {}) for name in nodes}
    order: list[str] = []
    _visit(outputs, nodes, order, set())

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


def _visit(names: list[str], nodes: dict[str, Module], order: list[str], active: set[str]) -> None:
    for name in names:
        if name in order:
            continue
        if name in active or name not in nodes:
            raise ValueError(f"its graph has {'a loop at' if name in active else 'no node'} {name!r}")
        _visit(nodes[name].previous, nodes, order, active | {name})
        order.append(name)


def _concat(module: Module) -> Layer:
    layers, axis = [make_layer(inner) for inner in module.modules], module.attributes["dimension"] - 1
    return lambda x: np.concatenate([layer(x) for layer in layers], axis)


def _concat_table(module: Module) -> Layer:
    layers = [make_layer(inner) for inner in module.modules]
    return lambda x: [layer(x) for layer in layers]


def _join_table(module: Module) -> Layer:
    dimension, record_dims = module.attributes["dimension"], module.attributes["nInputDims"]

    def run(xs: list[Array]) -> Array:
        axis = xs[0].ndim + dimension if dimension < 0 else dimension - 1
        batched = dimension > 0 and record_dims > 0 and xs[0].ndim == record_dims + 1
        return np.concatenate(xs, axis + batched)

    return run


def _sum(xs: list[Array]) -> Array:
    total: Array = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def _linear(module: Module) -> Layer:
    weight, *bias = module.parameters
    matrix = np.ascontiguousarray(weight.T)
    return lambda x: x @ matrix + bias[0] if bias else x @ matrix


def _normalization(module: Module) -> Layer:
    attributes = module.attributes
    mean, variance = attributes["runningMean"], attributes["runningVar"]
    scale = 1 / np.sqrt(variance + variance.dtype.type(attributes["eps"]))
    if module.parameters:
        scale = scale * module.parameters[0]
    shift = (module.parameters[1] if len(module.parameters) > 1 else 0) - mean * scale

    def run(x: Array) -> Any:
        if x.ndim == 2 or attributes.get("dataFormat"):  # NHWC
            return x * scale + shift
        return x * scale[:, np.newaxis, np.newaxis] + shift[:, np.newaxis, np.newaxis]

    return run


def _reshape(module: Module) -> Layer:
    size, mode = tuple(module.attributes["size"]), module.attributes["batchMode"]
    elements = math.prod(size)

    def run(x: Array) -> Array:
        is_whole = mode == 1 or (mode == 0 and x.size == elements and len(x) != 1)
        return x.reshape(size if is_whole else (len(x), *size))

    return run


def _view(module: Module) -> Layer:
    sizes = tuple(module.attributes["sizes"])
    # BigDL drops the dimension of a batch of one, which the layers after it cannot tell from a record.
    return lambda x: x.reshape(sizes if -1 in sizes else (len(x), *sizes))


def _infer_reshape(module: Module) -> Layer:
    size, keeps_batch = module.attributes["size"], module.attributes["batchMode"]

    def run(x: Array) -> Array:
        dims = x.shape[1:] if keeps_batch else x.shape
        shape = [dims[index] if length == 0 else length for index, length in enumerate(size)]
        return x.reshape([len(x), *shape] if keeps_batch else shape)

    return run


def _check_classes(x: Array) -> Any:
    if x.ndim not in (2, 4):
        raise ValueError(f"SoftMax takes 2 or 4 dimensions with the batch, not {x.ndim}")
    return x - x.max(axis=1, keepdims=True)


def _softmax(x: Array) -> Array:
    powers = np.exp(_check_classes(x))
    result: Array = powers / powers.sum(axis=1, keepdims=True)
    return result


def _log_softmax(x: Array) -> Array:
    x = _check_classes(x)
    result: Array = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    return result


def _sigmoid(x: Array) -> Array:
    result: Array = 0.5 * (np.tanh(0.5 * x) + 1)  # which does not overflow
    return result


def _same(module: Module) -> Layer:
    return lambda x: x


def _function(function: Layer) -> Callable[[Module], Layer]:
    return lambda module: function


LAYERS: dict[str, Callable[[Module], Layer]] = {
    "Sequential": _sequential,
    "StaticGraph": _graph,
    "Graph": _graph,
    "Concat": _concat,
    "ConcatTable": _concat_table,
    "JoinTable": _join_table,
    "CAddTable": _function(_sum),
    "Linear": _linear,
    "SpatialConvolution": convolution,
    "SpatialShareConvolution": convolution,
    "SpatialMaxPooling": max_pooling,
    "SpatialAveragePooling": average_pooling,
    "BatchNormalization": _normalization,
    "SpatialBatchNormalization": _normalization,
    "Reshape": _reshape,
    "View": _view,
    "InferReshape": _infer_reshape,
    "ReLU": _function(lambda x: np.maximum(x, 0)),
    "ReLU6": _function(lambda x: np.clip(x, 0, 6)),
    "Tanh": _function(np.tanh),
    "Sigmoid": _function(_sigmoid),
    "SoftMax": _function(_softmax),
    "LogSoftMax": _function(_log_softmax),
    "Dropout": _same,
    "Identity": _same,
    "Input": _same,
}
"""Scala class → what makes the layer of a module."""
