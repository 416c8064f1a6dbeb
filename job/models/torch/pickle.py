"""An eager PyTorch module in a pickle, written by `torch.save(model, path)`. Loading a pickle runs any code in it."""

import inspect
from pathlib import Path
from typing import Any

import torch

from cluster_serving.job.models.base import cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.torch.module import TorchModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError


class PickledModel(TorchModel):
    """The method `forward` of a pickled module. Inputs have the names of its arguments without a default value.

    As with TorchScript, dtypes are known only with `ModelOptions.input_shapes`.
    """

    # Python code may do anything with a value.
    careful = True

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        super().__init__(files, options)
        self.engine = "PyTorch"
        self._loaded = _load(files.paths[0], options.device)
        parameters = inspect.signature(self._loaded.forward).parameters.values()
        self._by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        possible = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        required = [p.name for p in parameters if p.name in possible and p.default is p.empty]
        self._choose_untyped(options.inputs, possible, required)
        self.outputs = []
        if options.input_shapes:
            self._find_types(options.input_shapes)

    def _call(self, tensors: list[torch.Tensor]) -> Any:
        named = {spec.name: tensor for spec, tensor in zip(self.inputs, tensors, strict=True)}
        first = [named.pop(name) for name in self._by_position if name in named]
        return self._loaded(*first, **named)


def _load(path: Path, device: str) -> Any:
    try:
        module = torch.load(path, map_location=device, weights_only=False)
    except (AttributeError, ModuleNotFoundError) as error:
        raise ModelError(
            f"{path} is a pickle of a class that cannot be imported here ({cause(error)}): install the package that "
            f"defines it beside cluster-serving, or save the model with torch.jit.save"
        ) from error
    except Exception as error:
        raise ModelError(f"{path} is not a PyTorch model: {cause(error)}") from error
    if isinstance(module, dict):
        raise ModelError(f"{path} holds weights without the model (a state_dict): save the model itself")
    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"{path} holds a {type(module).__name__}; it has to be a torch.nn.Module")
    return module.eval()
