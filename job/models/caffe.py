"""Caffe: `*.prototxt` and `*.caffemodel`, run by OpenCV 4 on the CPU (OpenCV 5 cannot read them)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2

from cluster_serving.job.models import prototxt
from cluster_serving.job.models.base import Model, TensorSpec, cause, choose
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

_WITH_WEIGHTS = {"Convolution", "Deconvolution", "InnerProduct"}


def load(files: ModelFiles, options: ModelOptions) -> Model:
    """Load a Caffe network; see `cluster_serving.job.models.load_model`."""
    return CaffeModel(files, options)


class CaffeModel(Model):
    """A Caffe network for inference; all its inputs and outputs are float32.

    OpenCV has one number of threads per process: the copy that is loaded last sets it, for all copies in the process
    and for the decoding of images.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        definition, weights = files.paths
        net = _parse(definition)
        shapes = _inputs(definition, net)
        # OpenCV writes what it raises to the log as well, once per layer.
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        try:
            self._net: Any = cv2.dnn.readNetFromCaffe(str(definition), str(weights))
        except cv2.error as error:
            raise ModelError(f"OpenCV cannot load {definition} with {weights}: {cause(error)}") from error
        for layer in _layers(net):
            name = str(layer.get("name", [""])[0])
            # OpenCV would compute with zeros.
            if layer.get("type", [""])[0] in _WITH_WEIGHTS and not self._net.getLayer(name).blobs:
                raise ModelError(f"{weights} has no weights for the layer {name!r} of {definition}")
        cv2.setNumThreads(options.threads)
        available = {name: TensorSpec(name, "float32", shape) for name, shape in shapes.items()}
        self.inputs = choose("input", options.inputs, available)
        if sorted(spec.name for spec in self.inputs) != sorted(available):
            raise ModelError(
                f"the model needs every one of its inputs, once: {', '.join(map(str, available.values()))}"
            )
        ends = list(self._net.getUnconnectedOutLayersNames())
        layers = set(self._net.getLayerNames())
        names = ends + [name for name in options.outputs if name in layers - set(ends)]
        self.outputs = choose("output", options.outputs, {name: TensorSpec(name, "float32", None) for name in names})
        if not options.outputs:
            self.outputs = self.outputs[: len(ends)]

    def close(self) -> None:
        """Free the network."""
        self._net = None

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        for spec, array in zip(self.inputs, inputs, strict=True):
            self._net.setInput(array, spec.name)
        return [*self._net.forward([spec.name for spec in self.outputs])]


def _parse(path: Path) -> prototxt.Message:
    try:
        return prototxt.parse(path.read_text("utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not a Caffe network: {error}") from error


def _layers(net: prototxt.Message) -> list[prototxt.Message]:
    return [layer for layer in net.get("layer", []) + net.get("layers", []) if isinstance(layer, dict)]


def _inputs(path: Path, net: prototxt.Message) -> dict[str, tuple[int | None, ...] | None]:
    """Name → shape of the inputs, which OpenCV does not tell; the batch is free."""
    names = [str(name) for name in net.get("input", [])]
    shapes = [shape.get("dim", []) for shape in net.get("input_shape", []) if isinstance(shape, dict)]
    dims = net.get("input_dim", [])
    shapes += [dims[start : start + 4] for start in range(0, len(dims), 4)]
    for layer in _layers(net):
        if layer.get("type") == ["Input"]:
            names += [str(name) for name in layer.get("top", [])]
            for parameters in layer.get("input_param", []):
                declared = parameters.get("shape", []) if isinstance(parameters, dict) else []
                shapes += [shape.get("dim", []) for shape in declared if isinstance(shape, dict)]
    if not names:
        raise ModelError(f"{path} has no input: serve the network for deployment (deploy.prototxt), not for training")
    if len(shapes) != len(names):
        return dict.fromkeys(names)
    return {
        name: (None, *(int(str(size)) for size in shape[1:])) if shape else None
        for name, shape in zip(names, shapes, strict=True)
    }
