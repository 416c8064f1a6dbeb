"""Caffe: `*.prototxt` and `*.caffemodel`, run by OpenCV 4 on the CPU (OpenCV 5 cannot read them)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
from google.protobuf import text_format

from cluster_serving.job.models import caffe_pb2
from cluster_serving.job.models.base import Model, TensorSpec, cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.ports import choose, choose_inputs
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

_WITH_WEIGHTS = {"Convolution", "Deconvolution", "InnerProduct"}


class CaffeModel(Model):
    """A Caffe network for inference. All its inputs and outputs are float32.

    OpenCV has one number of threads per process. The copy that is loaded last sets it for all copies in the process,
    and for the decoding of images.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        definition, weights = files.paths
        network = _parse(definition)
        shapes = _input_shapes(definition, network)
        # OpenCV also logs the errors that it raises, once per layer.
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        try:
            self._loaded = cv2.dnn.readNetFromCaffe(str(definition), str(weights))
        except cv2.error as error:
            raise ModelError(f"OpenCV cannot load {definition} with {weights}: {cause(error)}") from error
        for layer in network.layer:
            # Without weights OpenCV computes with zeros.
            if layer.type in _WITH_WEIGHTS and not self._loaded.getLayer(layer.name).blobs:
                raise ModelError(f"{weights} has no weights for the layer {layer.name!r} of {definition}")
        cv2.setNumThreads(options.thread_per_model)
        specs = {name: TensorSpec(name, "float32", shape) for name, shape in shapes.items()}
        self.inputs = choose_inputs(options.inputs, specs)
        ends = list(self._loaded.getUnconnectedOutLayersNames())
        layers = set(self._loaded.getLayerNames())
        names = ends + [name for name in options.outputs if name in layers - set(ends)]
        self.outputs = choose("output", options.outputs, {name: TensorSpec(name, "float32", None) for name in names})

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        for spec, array in zip(self.inputs, inputs, strict=True):
            self._loaded.setInput(array, spec.name)
        return [*self._loaded.forward([spec.name for spec in self.outputs])]


def _parse(path: Path) -> Any:
    try:
        # The other fields of Caffe are skipped.
        return text_format.Parse(path.read_text("utf-8"), caffe_pb2.NetParameter(), allow_unknown_field=True)
    except (text_format.ParseError, ValueError) as error:
        raise ModelError(f"{path} is not a Caffe network: {cause(error)}") from error


def _input_shapes(path: Path, network: Any) -> dict[str, tuple[int | None, ...] | None]:
    """Return the shapes of the inputs by name, with a free batch. OpenCV does not give them."""
    dims = network.input_dim
    declared = [shape.dim for shape in network.input_shape]
    declared += [dims[start : start + 4] for start in range(0, len(dims), 4)]
    names = list(network.input)
    for layer in network.layer:
        if layer.type == "Input":
            names += layer.top
            declared += [shape.dim for shape in layer.input_param.shape]
    if not names:
        raise ModelError(f"{path} has no input: serve the network for deployment (deploy.prototxt), not for training")
    if len(declared) != len(names):
        return dict.fromkeys(names)
    return {name: (None, *sizes[1:]) if sizes else None for name, sizes in zip(names, declared, strict=True)}
