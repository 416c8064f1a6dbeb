"""An engine for Cluster Serving: TensorFlow Lite models (`*.tflite`), which LiteRT computes.

Inputs and outputs have the names of the signature `serving_default`, or those of the tensors if there is none. A free
first dimension is the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.job.models import Format, Model, ModelFiles, ModelOptions, TensorSpec

FORMAT = Format(
    engine="LiteRT",
    loader="cluster_serving_litert:LiteRTModel",
    package="ai_edge_litert",
    parts=(("*.tflite",),),
)


class LiteRTModel(Model):
    """A TensorFlow Lite model on the CPU."""

    layout = "HWC"

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        # Imported here: this module is imported for every model, to know its format.
        from ai_edge_litert.interpreter import Interpreter

        self.engine = files.format.engine
        self._loaded = Interpreter(str(files.paths[0]), num_threads=options.thread_per_model)
        self._loaded.allocate_tensors()
        self._ports = self._loaded.get_input_details()
        self._results = self._loaded.get_output_details()
        self.inputs = [_spec(port) for port in self._ports]
        self.outputs = [_spec(port) for port in self._results]

    def _run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        # An interpreter computes one size of batch until it is told another.
        shapes = [tuple(self._loaded.get_tensor(port["index"]).shape) for port in self._ports]
        if shapes != [array.shape for array in inputs]:
            for port, array in zip(self._ports, inputs, strict=True):
                self._loaded.resize_tensor_input(port["index"], array.shape)
            self._loaded.allocate_tensors()
        for port, array in zip(self._ports, inputs, strict=True):
            self._loaded.set_tensor(port["index"], array)
        self._loaded.invoke()
        # `get_tensor` copies: the caller owns the arrays.
        return [self._loaded.get_tensor(result["index"]) for result in self._results]


def _spec(port: dict[str, Any]) -> TensorSpec:
    name = port["name"].removeprefix("serving_default_").partition(":")[0]
    shape = tuple(None if size < 0 else int(size) for size in port["shape_signature"])
    return TensorSpec(name, np.dtype(port["dtype"]).name, shape)
