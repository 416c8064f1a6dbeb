"""BigDL: a `*.model` or `*.bigdl` written by `saveModule`, whose layers PyTorch computes."""

from pathlib import Path
from typing import Any

import torch

from cluster_serving.job.models.base import TensorSpec, cause
from cluster_serving.job.models.bigdl.format import Module, read
from cluster_serving.job.models.bigdl.layers import LAYERS, input_names, make_layer, output_names, unknown_layers
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.ports import batch_shape, choose, choose_inputs
from cluster_serving.job.models.torch.module import TorchModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError


class BigDLModel(TorchModel):
    """A BigDL module in inference mode.

    The inputs and outputs of a graph have the names of its nodes. Those of another container are `input` and `output`,
    or `output_0`, `output_1` and so on. The file has no shapes: `ModelOptions.input_shapes` gives them.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        super().__init__(files, options)
        path = files.paths[0]
        module = _read(path, options.device)
        dtype = next((str(tensor.dtype).removeprefix("torch.") for tensor in _parameters(module)), "float32")
        names = input_names(module)
        shapes = options.input_shapes
        if shapes and len(shapes) != len(names):
            raise ModelError(f"there are {len(shapes)} input shapes; the inputs of {path} are {', '.join(names)}")
        specs = {name: TensorSpec(name, dtype, None) for name in names}
        specs |= {n: TensorSpec(n, dtype, batch_shape(shape)) for n, shape in zip(names, shapes, strict=False)}
        self.inputs = choose_inputs(options.inputs, specs)
        self._order = [[spec.name for spec in self.inputs].index(name) for name in names]
        self._output_names = output_names(module)
        specs = {name: TensorSpec(name, dtype, None) for name in self._output_names}
        self.outputs = choose("output", options.outputs, specs)
        self._loaded = make_layer(module)

    def _call(self, tensors: list[torch.Tensor]) -> Any:
        ordered = [tensors[index] for index in self._order]
        result = self._loaded(ordered[0] if len(ordered) == 1 else ordered)
        return dict(zip(self._output_names, result if isinstance(result, list) else [result], strict=True))


def _read(path: Path, device: str) -> Module:
    data = path.read_bytes()
    if data.startswith(b"{"):
        raise ModelError(f"{path} is a model of XGBoost: rename it to {path.stem}.ubj")
    try:
        module = read(data, device)
    except ValueError as error:
        raise ModelError(f"{path} is not a BigDL module that can be served: {cause(error)}") from error
    unknown = unknown_layers(module)
    if unknown:
        raise ModelError(
            f"{path} has layers that cannot be served: {', '.join(unknown)}. Those that can are {', '.join(LAYERS)}; "
            f"train the model with these, or serve it in another format"
        )
    return module


def _parameters(module: Module) -> list[torch.Tensor]:
    return module.parameters + [tensor for inner in module.modules for tensor in _parameters(inner)]
