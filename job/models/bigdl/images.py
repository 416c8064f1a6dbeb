"""Convolution and pooling of BigDL in numpy; a batch of images is NCHW, or NHWC if the layer's `format` says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cluster_serving.job.models.bigdl.format import Module
from cluster_serving.protocol.inputs import Array

Layer = Callable[[Array], Array]


class _Window(NamedTuple):
    """Where windows lie along one axis: `number` windows of `size`, the first one `before` the image."""

    size: int
    stride: int
    before: int
    after: int
    number: int


def convolution(module: Module) -> Layer:
    """SpatialConvolution; a padding of -1 keeps the size, as TensorFlow's SAME."""
    attributes = module.attributes
    weight, *bias = module.parameters
    last = bool(attributes.get("format"))
    # (group, out, in, height, width); of NHWC (group, height, width, in, out)
    groups = [w.transpose(3, 2, 0, 1) if last else w for w in weight]
    matrices = [np.ascontiguousarray(w.reshape(len(w), -1).T) for w in groups]
    inputs = groups[0].shape[1]

    def run(x: Array) -> Array:
        windows = _windows(x, module, ("kernel", "stride"), 0.0, last)[0]
        parts = []
        for index, matrix in enumerate(matrices):
            part = windows[:, index * inputs : (index + 1) * inputs].transpose(0, 2, 3, 1, 4, 5)
            parts.append(part.reshape(*part.shape[:3], -1) @ matrix)
        y = np.concatenate(parts, axis=3) if len(parts) > 1 else parts[0]
        return _back(y + bias[0] if bias else y, last)

    return run


def max_pooling(module: Module) -> Layer:
    """SpatialMaxPooling."""
    last = bool(module.attributes.get("format"))

    def run(x: Array) -> Array:
        windows = _windows(x, module, ("k", "d"), -math.inf, last)[0]
        return _back(windows.max(axis=(4, 5)).transpose(0, 2, 3, 1), last)

    return run


def average_pooling(module: Module) -> Layer:
    """SpatialAveragePooling."""
    attributes = module.attributes
    last = bool(attributes.get("format"))

    def run(x: Array) -> Array:
        windows, (rows, columns), (height, width) = _windows(x, module, ("k", "d"), 0.0, last)
        included = attributes.get("countIncludePad", True)
        counts = np.outer(_counts(rows, height, included), _counts(columns, width, included)).astype(x.dtype)
        y = windows.sum(axis=(4, 5)) / counts
        if not attributes.get("divide", True):
            y = y * x.dtype.type(rows.size * columns.size)
        return _back(y.transpose(0, 2, 3, 1), last)

    return run


def _windows(
    x: Array, module: Module, names: tuple[str, str], fill: float, last: bool
) -> tuple[Array, tuple[_Window, _Window], tuple[int, int]]:
    """Windows (n, channel, row, column, height, width) of images, how they lie, and height and width of the images."""
    if x.ndim != 4:
        raise ValueError(f"{module.name} takes images with a batch dimension: 4 dimensions, not {x.ndim}")
    if last:
        x = x.transpose(0, 3, 1, 2)
    attributes = module.attributes
    size, stride = names
    ceil = bool(attributes.get("ceilMode") or attributes.get("ceil_mode"))
    axes = []
    for axis, length in zip("HW", x.shape[2:], strict=True):
        kernel = length if attributes.get("globalPooling") else attributes[f"{size}{axis}"]
        axes.append(_axis(length, kernel, attributes[f"{stride}{axis}"], attributes[f"pad{axis}"], ceil))
    rows, columns = axes
    padded = np.pad(
        x, ((0, 0), (0, 0), (rows.before, rows.after), (columns.before, columns.after)), constant_values=fill
    )
    sizes: Any = (rows.size, columns.size)
    axes_of_images: Any = (2, 3)
    views = np.lib.stride_tricks.sliding_window_view(padded, sizes, axis=axes_of_images)
    chosen = views[:, :, :: rows.stride, :: columns.stride][:, :, : rows.number, : columns.number]
    return chosen, (rows, columns), (x.shape[2], x.shape[3])


def _axis(length: int, size: int, stride: int, pad: int, ceil: bool) -> _Window:
    if pad == -1:
        count = math.ceil(length / stride)
        total = max(0, (count - 1) * stride + size - length)
        return _Window(size, stride, total // 2, total - total // 2, count)
    steps = (length + 2 * pad - size) / stride
    count = (math.ceil(steps) if ceil else math.floor(steps)) + 1
    if ceil and pad and (count - 1) * stride >= length + pad:
        count -= 1  # a window has to begin inside the image
    return _Window(size, stride, pad, max(pad, (count - 1) * stride + size - length - pad), count)


def _counts(window: _Window, length: int, with_padding: bool) -> Array:
    """How many places of each window are counted; what ceil mode adds beyond the padding never is."""
    start = np.arange(window.number) * window.stride - window.before
    end = np.minimum(start + window.size, length + window.before)
    inside = np.minimum(end, length) - np.maximum(start, 0)
    counts: Array = end - start if with_padding else inside
    return counts


def _back(y: Array, last: bool) -> Array:
    """From NHWC to what the layer returns."""
    return y if last else y.transpose(0, 3, 1, 2)
