"""TorchScript: a `*.pt` or `*.pth` written by `torch.jit.save`; with `allow_pickle` also one by `torch.save`."""

import re
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.graph.network import Graph
from cluster_serving.job.models.graph.torch.script.nodes import nodes
from cluster_serving.job.models.graph.torch.script.reader import read
from cluster_serving.job.models.graph.value import MOST_ELEMENTS
from cluster_serving.job.models.ports import choose
from cluster_serving.job.models.torch.module import TorchModel, check_whole, with_operators
from cluster_serving.job.models.torch.pickle import PickledModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

_NUMBERS = {"int": "int64", "float": "float64", "number": "float64", "Scalar": "float64", "bool": "bool"}
"""Type of an argument that is no tensor → dtype of the input."""

_TAKEN = {"Tensor", "Optional[Tensor]", *_NUMBERS}


def load(files: ModelFiles, options: ModelOptions) -> Model:
    """Load TorchScript, or a pickle if the options allow it."""
    path = files.paths[0]
    check_whole(path)
    if _is_torchscript(path):
        model: Model = with_operators(lambda: TorchScriptModel(files, options), path)
        return model
    if options.allow_pickle:
        return PickledModel(files, options)
    raise ModelError(
        f"{path} is not TorchScript (a pickled model or a state_dict, perhaps): save the model with torch.jit.save("
        f"torch.jit.trace(model.eval(), example_input), 'model.pt'), or with torch.jit.script instead of trace. "
        f"Loading a pickle runs any code in it, so it needs allowPickle: true"
    )


class TorchScriptModel(TorchModel):
    """The method `forward` of a TorchScript module.

    Inputs have the names of its arguments, which are tensors or plain numbers. TorchScript stores neither shapes nor
    dtypes of tensors. If `ModelOptions.input_shapes` is set, computing zeros finds the dtypes; otherwise both are
    unknown.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        super().__init__(files, options)
        self._loaded = _load(files.paths[0], options.device)
        # Nodes last as long as their graph.
        graph = self._loaded.inlined_graph
        self.writes = any(map(_writes, nodes(graph)))
        self.careful = not all(_ends(loop) for loop in graph.findAllNodes("prim::Loop"))
        self._sets_attributes = bool(graph.findAllNodes("prim::SetAttr"))
        schema = self._loaded.forward.schema
        arguments = schema.arguments[1:]
        possible = [a.name for a in arguments if str(a.type) in _TAKEN]
        required = [a.name for a in arguments if not a.has_default_value()]
        for argument in arguments:
            if argument.name in required and argument.name not in possible:
                raise ModelError(
                    f"argument {argument.name!r} of forward is {argument.type}; it has to be a Tensor or a number"
                )
        self._choose_untyped(options.inputs, possible, required)
        numbers = {a.name: _NUMBERS[str(a.type)] for a in arguments if str(a.type) in _NUMBERS}
        self._numbers = [spec.name in numbers for spec in self.inputs]
        self.inputs = [
            replace(spec, dtype=numbers[spec.name], shape=()) if spec.name in numbers else spec for spec in self.inputs
        ]
        names = _output_names(schema.returns[0].type)
        self.outputs = choose("output", options.outputs if names else (), {n: TensorSpec(n, "", None) for n in names})
        self._buffers = [(buffer, buffer._version) for buffer in self._loaded.buffers()]
        if options.input_shapes:
            self._find_types(options.input_shapes)
            if self.keeps_state:
                # The first record must not meet what these calls have left.
                self._loaded = _load(files.paths[0], options.device)
                self._buffers = [(buffer, buffer._version) for buffer in self._loaded.buffers()]

    @property
    def keeps_state(self) -> bool:
        """See `Model.keeps_state`."""
        return self._sets_attributes or any(buffer._version != version for buffer, version in self._buffers)

    def graph(self) -> Graph | None:
        """See `Model.graph`; neither numbers nor sizes of axes are in the file."""
        try:
            return read(self._loaded, {spec.name: spec.dtype for spec in self.inputs})
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            # A module may have parts of any form.
            return None

    def bounds(self, most: int) -> list[Array]:
        """See `Model.bounds`."""
        graph = self._loaded.inlined_graph
        nodes = [node for name in _COMPARISONS for node in graph.findAllNodes(f"aten::{name}")]
        values = [one.toIValue() for node in nodes for one in node.inputs() if one.node().kind() == "prim::Constant"]
        arrays = [value.numpy(force=True) if isinstance(value, torch.Tensor) else np.array(value) for value in values]
        return [array for array in arrays if 0 < array.size <= MOST_ELEMENTS and array.dtype.kind in "fiu"][:most]

    def _call(self, tensors: list[torch.Tensor]) -> Any:
        given = zip(self.inputs, tensors, self._numbers, strict=True)
        try:
            return self._loaded(**{spec.name: tensor.item() if number else tensor for spec, tensor, number in given})
        except (RuntimeError, torch.jit.Error) as error:
            # Before the reason, which may have several lines, there are up to two stacks of the module's code.
            _, _, stack = str(error).rpartition("Traceback of TorchScript")
            reason = re.search(r"^[\w.]+: .*", stack, re.MULTILINE | re.DOTALL)
            if reason is None:
                raise
            raise RuntimeError(reason[0]) from None


_UNKNOWN = ("prim::CallMethod", "prim::SetAttr", "prim::fork")
"""Operators that may write to any tensor, or keep one."""


def _writes(node: Any) -> bool:
    """Return True if an operator may write to one of its arguments, which its schema marks as in `Tensor(a!)`."""
    return "!" in node.schema() or node.kind() in _UNKNOWN


_MOST_ROUNDS = 1 << 16
_OF_SIZES = frozenset(
    [
        *(f"aten::{name}" for name in ("add", "sub", "mul", "floordiv", "__range_length", "__getitem__", "Int")),
        *(f"prim::{name}" for name in ("min", "max", "NumToTensor", "ListUnpack")),
    ]
)
"""Operators whose results are small if they take sizes of tensors, and small numbers."""

_COMPARISONS = ("gt", "ge", "lt", "le", "eq", "ne", "clamp", "clamp_min", "clamp_max", "bucketize")


def _ends(loop: Any) -> bool:
    """Return True if a loop has no more rounds than sizes of tensors tell, whatever the values are."""
    return _is_of_sizes(next(loop.inputs()))


def _is_of_sizes(value: Any) -> bool:
    kind = value.node().kind()
    if kind == "prim::Constant":
        number = value.toIValue()
        return isinstance(number, int) and abs(number) <= _MOST_ROUNDS
    if kind in ("aten::size", "aten::len"):
        return True
    return kind in _OF_SIZES and all(map(_is_of_sizes, value.node().inputs()))


def _load(path: Path, device: str) -> Any:
    warnings.filterwarnings("ignore", r"`torch\.jit\.(load|freeze)` is deprecated", Warning)
    module = torch.jit.load(str(path), map_location=device).eval()
    if module.inlined_graph.findAllNodes("prim::RaiseException"):
        # PyTorch 2.13 ends the process when a frozen module that has raised an exception is loaded again.
        return module
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
