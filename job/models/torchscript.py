"""TorchScript: a `*.pt` or `*.pth` written by `torch.jit.save`."""

from __future__ import annotations

import itertools
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cluster_serving.client.errors import InferenceFailed, ModelError
from cluster_serving.client.inputs import Array
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.spec import Model, TensorSpec, choose, dummy_inputs, writable
from cluster_serving.job.options import ModelOptions

_MAX_PROBED_INPUTS = 4


def load(files: ModelFiles, options: ModelOptions) -> Model:
    """Load TorchScript; see `cluster_serving.job.models.load_model`."""
    return TorchScriptModel(files, options)


class TorchScriptModel(Model):
    """The method `forward` of a TorchScript module.

    Inputs have the names of its arguments. Neither their shapes nor their dtypes are part of TorchScript: given
    `ModelOptions.input_shapes`, the dtypes are found out by computing zeros; without it both are unknown. A dict or
    named tuple gives the outputs their names; otherwise they are `output`, or `output_0`, `output_1` and so on.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        self._threads = options.threads
        self._wanted = options.outputs
        self._module: Any = _load(files.paths[0])
        schema = self._module.forward.schema
        arguments = schema.arguments[1:]
        available = {
            a.name: TensorSpec(a.name, "", None) for a in arguments if str(a.type) in ("Tensor", "Optional[Tensor]")
        }
        required = [a.name for a in arguments if not a.has_default_value()]
        for argument in arguments:
            if argument.name in required and argument.name not in available:
                raise ModelError(f"argument {argument.name!r} of forward is {argument.type}; it has to be a Tensor")
        self.inputs = choose("input", options.inputs or required, available)
        missing = [name for name in required if name not in {spec.name for spec in self.inputs}]
        if missing:
            raise ModelError(f"the model also needs the input {missing[0]!r}")
        names = _output_names(schema.returns[0].type)
        self.outputs = choose("output", options.outputs if names else (), {n: TensorSpec(n, "", None) for n in names})
        if options.input_shapes:
            self._find_types(options.input_shapes)

    def close(self) -> None:
        """Free the module."""
        self._module = None

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        # The number is kept per calling thread, so copies do not disturb one another; setting it costs 0.2 µs.
        torch.set_num_threads(self._threads)
        tensors = {spec.name: torch.from_numpy(writable(a)) for spec, a in zip(self.inputs, inputs, strict=True)}
        with torch.inference_mode():
            named = _named(self._module(**tensors))
        arrays = [_to_numpy(tensor) for tensor in choose("output", self._wanted, named)]
        if not self.outputs or not self.outputs[0].dtype:
            names = self._wanted or list(named)
            self.outputs = [TensorSpec(name, array.dtype.name, None) for name, array in zip(names, arrays, strict=True)]
        return arrays

    def _find_types(self, shapes: Sequence[Sequence[int]]) -> None:
        """Set dtypes and shapes of the inputs: float32, or int64 where the model refuses that."""
        if len(shapes) != len(self.inputs):
            raise ModelError(f"there are {len(shapes)} input shapes; {self.describe()}")
        if len(shapes) <= _MAX_PROBED_INPUTS:
            candidates = list(itertools.product(("float32", "int64"), repeat=len(shapes)))
        else:
            candidates = [("float32",) * len(shapes), ("int64",) * len(shapes)]
        names = [spec.name for spec in self.inputs]
        failures = []
        for dtypes in candidates:
            self.inputs = [
                TensorSpec(name, dtype, (None, *(None if size < 0 else size for size in shape)))
                for name, dtype, shape in zip(names, dtypes, shapes, strict=True)
            ]
            try:
                self.predict(dummy_inputs(self.inputs, batch=1) or [])
                return
            except InferenceFailed as error:
                failures.append(error)
        raise ModelError(f"the model does not take inputs of the configured shapes: {failures[0]}")


def _load(path: Path) -> Any:
    if not _is_torchscript(path):
        raise ModelError(
            f"{path} is not TorchScript (a pickled model or a state_dict, perhaps): save the model with torch.jit.save("
            f"torch.jit.trace(model.eval(), example_input), 'model.pt'), or with torch.jit.script instead of trace"
        )
    warnings.filterwarnings("ignore", r"`torch\.jit\.(load|freeze)` is deprecated", DeprecationWarning)
    module = torch.jit.load(str(path), map_location="cpu").eval()
    try:
        # Folding batch normalization and constants made a network of 20 convolutions 1.4 times as fast.
        return torch.jit.freeze(module)
    except RuntimeError:
        return module


def _is_torchscript(path: Path) -> bool:
    """Whether it is an archive that has the constants of compiled code; others hold pickles, which are never loaded."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _output_names(result: Any) -> list[str]:
    """Names of the outputs, from the type that forward returns; none if only an answer can tell."""
    if str(result) == "Tensor":
        return ["output"]
    if str(result).startswith("Tuple["):
        return [f"output_{index}" for index in range(len(result.elements()))]
    return []


def _named(result: Any) -> dict[str, torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return {"output": result}
    if isinstance(result, dict):
        named = result
    elif isinstance(result, tuple | list):
        names = getattr(result, "_fields", [f"output_{index}" for index in range(len(result))])
        named = dict(zip(names, result, strict=True))
    else:
        named = {}
    if not named or not all(isinstance(tensor, torch.Tensor) for tensor in named.values()):
        raise TypeError("forward has to return a Tensor, or a list, tuple or dict of Tensors")
    return named


def _to_numpy(tensor: torch.Tensor) -> Array:
    # numpy has no bfloat16. Copied, as the tensor may be an input, or a buffer of the module.
    array: Array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array.copy()
