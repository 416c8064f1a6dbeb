"""`torch.export`: a `*.pt2` written by `torch.export.save`."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch.export.passes import move_to_device_pass
from torch.torch_version import TorchVersion
from torch.utils import _pytree as pytree

from cluster_serving.job.models.base import TensorSpec, cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.graph.network import Graph, Sizes
from cluster_serving.job.models.graph.torch.reader import read
from cluster_serving.job.models.ports import choose, choose_inputs
from cluster_serving.job.models.torch.module import TorchModel, check_whole, with_operators
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_TRAINING = 5
"""Position of the argument of a batch normalization that says that it computes as in training."""


class ExportedProgram(TorchModel):
    """An exported program, with the names, dtypes, shapes and symbols of the export."""

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        super().__init__(files, options)
        path = files.paths[0]
        program = with_operators(lambda: _load(path, options.allow_pickle), path)
        examples = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
        names = [str(name) for name in program.graph_signature.user_inputs]
        for name in names:
            if not isinstance(examples.get(name), torch.Tensor):
                raise ModelError(
                    f"an input of the exported program is {name} and not a Tensor; only Tensors can be served"
                )
        self.inputs = choose_inputs(options.inputs, {name: _spec(name, examples[name]) for name in names})
        self._dtypes = [examples[name].dtype for name in names]
        self._order = [[spec.name for spec in self.inputs].index(name) for name in names]
        self._structure = program.call_spec.in_spec
        self.symbols = {
            name: ["" if isinstance(size, int) else str(size) for size in examples[name].shape] for name in names
        }
        outputs = _outputs(program)
        self.outputs = choose("output", options.outputs, outputs)
        self._names = names
        self._output_names = [*outputs]
        # The device of the export is written into the program.
        self._keeps_state = bool(program.graph_signature.buffers_to_mutate)
        self.writes = any("!" in str(getattr(node.target, "_schema", "")) for node in program.graph.nodes)
        self.careful = any("while_loop" in str(node.target) for node in program.graph.nodes)
        self._loaded = move_to_device_pass(program, options.device).module()

    @property
    def keeps_state(self) -> bool:
        """See `Model.keeps_state`."""
        return self._keeps_state

    def training_layer(self) -> str:
        """See `Model.training_layer`."""
        for node in self._loaded.graph.nodes:
            if "batch_norm" in str(node.target) and len(node.args) > _TRAINING and node.args[_TRAINING] is True:
                modules = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
                return str(modules[-1] if modules else node.name)
        return ""

    def graph(self) -> Graph | None:
        """See `Model.graph`."""
        specs = {spec.name: spec for spec in self.inputs}
        inputs = {name: self._sizes(specs[name]) for name in self._names}
        try:
            return read(self._loaded, inputs, self._output_names)
        except (AttributeError, LookupError, TypeError, ValueError):
            # A program may have parts of any form.
            return None

    def _sizes(self, spec: TensorSpec) -> Sizes | None:
        symbols = self.symbols[spec.name]
        # A sum or a product of symbols has no name of its own.
        if spec.shape is None or any(symbol and not symbol.isidentifier() for symbol in symbols):
            return None
        return [symbol if size is None else size for size, symbol in zip(spec.shape, symbols, strict=True)]

    def _call(self, tensors: list[torch.Tensor]) -> Any:
        # numpy has no bfloat16: its inputs come as float32.
        given = [tensors[index].to(dtype) for index, dtype in zip(self._order, self._dtypes, strict=True)]
        arguments, keywords = pytree.tree_unflatten(given, self._structure)
        return self._loaded(*arguments, **keywords)


def _outputs(program: Any) -> dict[str, TensorSpec]:
    """Return the outputs by name; `TorchModel` gives them the same names."""
    structure = program.call_spec.out_spec
    nodes = {node.name: node.meta.get("val") for node in program.graph.nodes}
    tensors = [nodes.get(str(name)) for name in program.graph_signature.user_outputs]
    if structure.type is dict:
        names = [str(key) for key in structure.context]
    elif structure.is_leaf():
        names = ["output"]
    else:
        fields = getattr(structure.context, "_fields", None)  # of a named tuple
        names = list(fields or [f"output_{index}" for index in range(len(tensors))])
    if len(names) != len(tensors) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise ModelError("the exported program has to return a Tensor, or a list, tuple or dict of Tensors")
    return {name: _spec(name, tensor) for name, tensor in zip(names, tensors, strict=True)}


def _spec(name: str, example: torch.Tensor) -> TensorSpec:
    dtype = "float32" if example.dtype == torch.bfloat16 else str(example.dtype).removeprefix("torch.")
    return TensorSpec(name, dtype, tuple(size if isinstance(size, int) else None for size in example.shape))


def _load(path: Path, allow_pickle: bool) -> Any:
    check_whole(path)
    content = path.read_bytes()
    if not zipfile.is_zipfile(path):
        raise ModelError(f"{path} is not an exported program: write it with torch.export.save")
    if not allow_pickle and (pickle := _find_pickle(content)):
        raise ModelError(
            f"{path} holds the pickle {pickle}. Loading a pickle runs any code in it, so it needs allowPickle: true. "
            f"torch.export.save of PyTorch {torch.__version__} writes no pickle for a program of plain tensors"
        )
    try:
        # From memory: weights that are mapped would change with the file.
        return torch.export.load(io.BytesIO(content))
    except Exception as error:
        if (written := _release(_written_by(content))) > _release(torch.__version__):
            raise ModelError(
                f"{path} is written by PyTorch {written}, and PyTorch {torch.__version__} cannot read it: run "
                f"pip install 'torch>={written}' where the TaskManagers run, or export with it: {cause(error)}"
            ) from error
        raise


def _written_by(content: bytes) -> str:
    """Return the version of PyTorch that has written a program; "0" before 2.9, which does not tell it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if name.endswith("/models/model.json"):
                return str(json.loads(archive.read(name)).get("torch_version", "0"))
    return "0"


def _release(version: str) -> TorchVersion:
    """Return a version without its build, such as 2.13.0 of 2.13.0+cpu."""
    return TorchVersion(version.partition("+")[0])


def _find_pickle(content: bytes) -> str | None:
    """Return the name of a member that `torch.export.load` would unpickle without restrictions, or None."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise ModelError("the exported program has two members of one name")
        for name in names:
            if name.startswith("serialized_"):  # the layout up to PyTorch 2.7, to which it falls back
                return name
            # Where the restricted unpickler fails, PyTorch falls back to the other.
            if name.endswith(".pt") and not _is_plain(archive.read(name)):
                return name
            if name.endswith("_config.json"):
                entries = json.loads(archive.read(name))["config"].values()
                objects = "/constants/" in name
                for path, pickled in ((entry["path_name"], entry["use_pickle"]) for entry in entries):
                    if pickled or (objects and not path.startswith("tensor_")):
                        return str(path)
    return None


def _is_plain(content: bytes) -> bool:
    try:
        if content:
            torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:
        return False
    return True
