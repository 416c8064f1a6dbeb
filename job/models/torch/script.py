"""TorchScript: a `*.pt` or `*.pth` written by `torch.jit.save`; with `allow_pickle` also one by `torch.save`."""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from cluster_serving.job.models.base import Model, TensorSpec, choose
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.torch.module import TorchModel
from cluster_serving.job.models.torch.pickle import PickledModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError


def load(files: ModelFiles, options: ModelOptions) -> Model:
    """Load TorchScript, or a pickle if the options allow it."""
    path = files.paths[0]
    if _is_torchscript(path):
        return TorchScriptModel(files, options)
    if options.allow_pickle:
        return PickledModel(files, options)
    raise ModelError(
        f"{path} is not TorchScript (a pickled model or a state_dict, perhaps): save the model with torch.jit.save("
        f"torch.jit.trace(model.eval(), example_input), 'model.pt'), or with torch.jit.script instead of trace. "
        f"Loading a pickle runs any code in it, so it needs allowPickle: true"
    )


class TorchScriptModel(TorchModel):
    """The method `forward` of a TorchScript module.

    Inputs have the names of its arguments. TorchScript stores neither shapes nor dtypes of the inputs. If
    `ModelOptions.input_shapes` is set, computing zeros finds the dtypes; otherwise both are unknown.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        super().__init__(files, options)
        self._loaded = _load(files.paths[0], options.device)
        schema = self._loaded.forward.schema
        arguments = schema.arguments[1:]
        possible = [a.name for a in arguments if str(a.type) in ("Tensor", "Optional[Tensor]")]
        required = [a.name for a in arguments if not a.has_default_value()]
        for argument in arguments:
            if argument.name in required and argument.name not in possible:
                raise ModelError(f"argument {argument.name!r} of forward is {argument.type}; it has to be a Tensor")
        self._choose_untyped(options.inputs, possible, required)
        names = _output_names(schema.returns[0].type)
        self.outputs = choose("output", options.outputs if names else (), {n: TensorSpec(n, "", None) for n in names})
        if options.input_shapes:
            self._find_types(options.input_shapes)

    def _call(self, tensors: list[torch.Tensor]) -> Any:
        return self._loaded(**{spec.name: tensor for spec, tensor in zip(self.inputs, tensors, strict=True)})


def _load(path: Path, device: str) -> Any:
    warnings.filterwarnings("ignore", r"`torch\.jit\.(load|freeze)` is deprecated", DeprecationWarning)
    module = torch.jit.load(str(path), map_location=device).eval()
    try:
        # Folding batch normalization and constants made a network of 20 convolutions 1.4 times as fast.
        return torch.jit.freeze(module)
    except RuntimeError:
        return module


def _is_torchscript(path: Path) -> bool:
    """Return True for an archive with the constants of compiled code; other files hold pickles."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _output_names(result: Any) -> list[str]:
    """Return the names of the outputs for the return type of `forward`; none if only a call can tell."""
    if str(result) == "Tensor":
        return ["output"]
    if str(result).startswith("Tuple["):
        return [f"output_{index}" for index in range(len(result.elements()))]
    return []
