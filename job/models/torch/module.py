"""The common part of the PyTorch formats: a callable of tensors, its outputs by name, and threads of its own."""

import itertools
import logging
import os
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch

from cluster_serving.job.models.base import TRIAL_ERRORS, Model, TensorSpec, cause
from cluster_serving.job.models.batched.axes import readings
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.devices import NO_GPU, Reported, cuda_names
from cluster_serving.job.models.operators import Package, load_with
from cluster_serving.job.models.ports import batch_shape, choose, writable
from cluster_serving.job.options import CPU, ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
from cluster_serving.protocol.inputs import Array

log = logging.getLogger(__name__)

T = TypeVar("T")

_MISSING_OPERATOR = (
    r"(?:Unknown builtin op: |Unknown custom op |operator |No such operator |torch\.ops\.)(\w+(?:::|\.)\w+)"
)
"""Pattern of PyTorch's errors about an operator that nothing has registered."""

_PACKAGES = (Package("torchvision", "torchvision", "torchvision"), Package("torchaudio", "torchaudio", "torchaudio"))
"""Packages with operators for PyTorch."""

_MAX_PROBED_INPUTS = 4


def devices() -> Reported:
    """Return the devices that PyTorch reports; it calls AMD's GPUs CUDA's, too."""
    if torch.version.cuda or torch.version.hip:
        remedy = NO_GPU
    else:
        version = torch.__version__.partition("+")[0]
        remedy = (
            "this build of PyTorch has no CUDA, so run pip install --force-reinstall "
            f"torch=={version} --index-url https://pypi.org/simple where the TaskManagers run"
        )
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Reported(f"PyTorch {torch.__version__}", (CPU, *cuda_names(count)), remedy)


class TorchModel(Model):
    """A callable of tensors that returns one tensor, or a list, tuple or dict of tensors.

    A dict or named tuple gives the outputs their names. Other outputs are `output`, or `output_0`, `output_1` etc.

    Attributes:
        writes: The callable may write to the tensors that it is given, or keep them. It gets copies then, since the
            inputs are read again: by trials, by the watch, and where a batch has failed.
    """

    writes = True

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        self._threads = options.thread_per_model
        self.has_pool = self._threads > 1
        self._place = torch.device(options.device)
        self._wanted = options.outputs

    @abstractmethod
    def _call(self, tensors: list[torch.Tensor]) -> Any:
        """Return the result of the module for tensors in the order of `self.inputs`."""

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        # The number is kept per calling thread, so copies do not disturb one another; setting it costs 0.2 µs.
        torch.set_num_threads(self._threads)
        self._refuse_texts(inputs)
        try:
            own = [array.copy() if self.writes else writable(array) for array in inputs]
            tensors = [torch.from_numpy(array).to(self._place) for array in own]
            with torch.inference_mode():
                named = _named(self._call(tensors))
            arrays = [_to_numpy(tensor) for tensor in choose("output", self._wanted, named)]
        except RuntimeError as error:
            if self._place.type != CPU and _is_lost(self._place):
                _end_process(self._place, error)
            raise
        names = list(self._wanted or named)
        if not self.outputs or not self.outputs[0].dtype:
            self.outputs = [TensorSpec(name, array.dtype.name, None) for name, array in zip(names, arrays, strict=True)]
        elif names != [spec.name for spec in self.outputs]:
            known = [spec.name for spec in self.outputs]
            raise ValueError(f"forward returned the outputs {names}, and at its first call {known}")
        return arrays

    def _refuse_texts(self, inputs: Sequence[Array]) -> None:
        # Inputs of unknown dtype let them pass.
        for spec, array in zip(self.inputs, inputs, strict=True):
            if array.dtype.kind == "O":
                first = str(next(array.flat, ""))[:64]
                raise InvalidInput(
                    f"input {spec.name!r} is a text, {first!r}; the model takes numbers, and images as base64 of their "
                    "files"
                )

    def _choose_untyped(self, wanted: Sequence[str], possible: Sequence[str], required: Sequence[str]) -> None:
        """Set inputs of unknown dtype and shape: the wanted arguments of `forward`, or the required ones if none is."""
        self.inputs = choose("input", wanted or required, {name: TensorSpec(name, "", None) for name in possible})
        missing = [name for name in required if name not in {spec.name for spec in self.inputs}]
        if missing:
            raise ModelError(f"the model also needs the input {missing[0]!r}")

    def _find_types(self, shapes: Sequence[Sequence[int]]) -> None:
        """Set dtypes and shapes of the inputs, batch first: float32, or int64 if the model refuses float32."""
        if len(shapes) != len(self.inputs):
            raise ModelError(f"there are {len(shapes)} input shapes; {self.describe()}")
        likely = [[spec.dtype] if spec.dtype else ["float32", "int64"] for spec in self.inputs]
        if len(shapes) <= _MAX_PROBED_INPUTS:
            candidates = list(itertools.product(*likely))
        else:
            candidates = [tuple(dtypes[place % len(dtypes)] for dtypes in likely) for place in range(2)]
        names = [spec.name for spec in self.inputs]
        sizes = {name: batch_shape(shape)[1:] for name, shape in zip(names, shapes, strict=True)}
        # Shapes of records do not tell where the module has the batch; plain numbers have no batch.
        self.anywhere = frozenset(spec.name for spec in self.inputs if spec.shape is None)
        options = readings(self.inputs, {}, {name: sizes[name] for name in self.anywhere})
        failures = []
        for reading, dtypes, value in itertools.product(options, candidates, (0, 1)):
            self.inputs = [replace(spec, dtype=dtype) for spec, dtype in zip(self.inputs, dtypes, strict=True)]
            record = [
                np.full([size or 1 for size in sizes[name]], value, dtype)
                for name, dtype in zip(names, dtypes, strict=True)
            ]
            try:
                self.predict(reading.join([record]))
            except TRIAL_ERRORS as error:
                failures.append(error)
            else:
                self.inputs = self._sized(sizes)
                return
        raise ModelError(f"the model does not take inputs of the configured shapes: {failures[0]}")

    def _sized(self, sizes: Mapping[str, Sequence[int | None]]) -> list[TensorSpec]:
        return [
            replace(spec, shape=(None, *sizes[spec.name])) if spec.name in self.anywhere else spec
            for spec in self.inputs
        ]


def with_operators(load: Callable[[], T], path: Path) -> T:
    """Load a model, with the packages that have its operators; see `operators.load_with`."""
    return load_with(load, _MISSING_OPERATOR, _PACKAGES, path, f"PyTorch {torch.__version__}")


def check_whole(path: Path) -> None:
    """Check that a file which begins as an archive is one.

    Raises:
        ModelError: If its end is missing.
    """
    with path.open("rb") as file:
        begins = file.read(4) == b"PK\x03\x04"
    if begins and not zipfile.is_zipfile(path):
        raise ModelError(f"{path} is cut off: copy it again, or save the model again")


def _is_lost(place: torch.device) -> bool:
    """Return True if CUDA refuses every further call of this process.

    It does so once a kernel has read or written outside of its memory, as with an index that is too large.
    """
    try:
        torch.cuda.synchronize(place)
    except RuntimeError:
        return True
    return False


def _end_process(place: torch.device, error: RuntimeError) -> NoReturn:
    """End this process as a crash in native code would: the job then finds the request that has caused it."""
    log.critical("PyTorch can use %s no more: ending this process (%d): %s", place, os.getpid(), cause(error))
    logging.shutdown()
    os._exit(1)


def _named(result: Any) -> dict[str, torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return {"output": result}
    if isinstance(result, dict):
        named = result
    elif isinstance(result, (tuple, list)):
        names = getattr(result, "_fields", [f"output_{index}" for index in range(len(result))])
        named = dict(zip(names, result, strict=True))
    else:
        named = {}
    if not named or not all(isinstance(tensor, torch.Tensor) for tensor in named.values()):
        raise TypeError("forward has to return a Tensor, or a list, tuple or dict of Tensors")
    return named


def _to_numpy(tensor: torch.Tensor) -> Array:
    # numpy has no bfloat16, and no numbers that are conjugated or negated when they are read.
    plain = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).resolve_conj().resolve_neg()
    array: Array = plain.cpu().numpy()
    # Memory of the CPU is copied, as the tensor may be an input, or a buffer of the module.
    return array.copy() if plain.device.type == CPU else array
