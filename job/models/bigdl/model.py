"""BigDL: a `*.model` or `*.bigdl` written by `saveModule`, whose layers are computed by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from cluster_serving.job.models.base import Model, TensorSpec, cause, choose
from cluster_serving.job.models.bigdl.format import Module, read
from cluster_serving.job.models.bigdl.layers import (
    LAYERS,
    class_name,
    graph_inputs,
    graph_outputs,
    make_layer,
    unknown_layers,
)
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array


def load(files: ModelFiles, options: ModelOptions) -> Model:
    """Load a BigDL module; see `cluster_serving.job.models.load_model`."""
    return BigDLModel(files, options)


class BigDLModel(Model):
    """A BigDL module in inference mode.

    The inputs and outputs of a graph have the names of its nodes; those of another container are `input` and `output`,
    or `output_0`, `output_1` and so on. The file does not say the shapes: `ModelOptions.input_shapes` does.

    numpy has one number of threads per process: the copy that is loaded last sets it for all copies in the process.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        path = files.paths[0]
        module = _read(path)
        is_graph = class_name(module) in ("Graph", "StaticGraph")
        dtype = next((array.dtype.name for array in _parameters(module)), "float32")
        names = graph_inputs(module) if is_graph else ["input"]
        shapes: Sequence[Sequence[int]] = options.input_shapes
        if shapes and len(shapes) != len(names):
            raise ModelError(f"there are {len(shapes)} input shapes; the inputs of {path} are {', '.join(names)}")
        specs = {name: TensorSpec(name, dtype, None) for name in names}
        for name, shape in zip(names, shapes, strict=False):
            specs[name] = TensorSpec(name, dtype, (None, *(None if size < 0 else size for size in shape)))
        self.inputs = choose("input", options.inputs, specs)
        if sorted(spec.name for spec in self.inputs) != sorted(names):
            raise ModelError(f"the model needs every one of its inputs, once: {', '.join(names)}")
        self._order = [[spec.name for spec in self.inputs].index(name) for name in names]
        self._names = graph_outputs(module) if is_graph else []
        self._wanted = options.outputs
        self.outputs = choose(
            "output", options.outputs, {n: TensorSpec(n, dtype, None) for n in self._names or ["output"]}
        )
        threadpool_limits(options.threads, "blas")
        self._layer = make_layer(module)

    def close(self) -> None:
        """Free the weights."""
        del self._layer

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        # BLAS sums in another order where memory is strided.
        ordered = [np.ascontiguousarray(inputs[index]) for index in self._order]
        result = self._layer(ordered[0] if len(ordered) == 1 else ordered)
        arrays = result if isinstance(result, list) else [result]
        names = self._names or (["output"] if len(arrays) == 1 else [f"output_{i}" for i in range(len(arrays))])
        # Copied, as a layer may return what it was given.
        return [np.array(array) for array in choose("output", self._wanted, dict(zip(names, arrays, strict=True)))]


def _read(path: Path) -> Module:
    try:
        module = read(path.read_bytes())
    except (ValueError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not a BigDL module that can be served: {cause(error)}") from error
    unknown = unknown_layers(module)
    if unknown:
        raise ModelError(
            f"{path} has layers that cannot be served: {', '.join(unknown)}. Those that can are {', '.join(LAYERS)}; "
            f"train the model with these, or serve it in another format"
        )
    return module


def _parameters(module: Module) -> list[Array]:
    return module.parameters + [array for inner in module.modules for array in _parameters(inner)]
