"""OpenVINO IR: `*.xml` and `*.bin`, of any precision, quantized IR included."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cluster_serving.job.models.base import ROUGH, Model, StartedRecord, TensorSpec
from cluster_serving.job.models.batched.axes import InputReading, Reading
from cluster_serving.job.models.batched.influence import Calls, Influence
from cluster_serving.job.models.batched.records import SMALL, generated
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.graph.network import Graph
from cluster_serving.job.models.graph.openvino.reader import read
from cluster_serving.job.models.openvino.compiled import (
    MOST_WEIGHTS,
    Compiled,
    Record,
    Singles,
    openvino,
    plugin,
    singles,
)
from cluster_serving.job.models.openvino.places import Places
from cluster_serving.job.models.operators import Package, load_with
from cluster_serving.job.models.ports import choose
from cluster_serving.job.options import CPU, ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

_DTYPES = {
    "boolean": "bool",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
"""OpenVINO element type → numpy name. A type that is missing here cannot be sent."""

_COMPUTED_ON_CPU = {"int64": "int32", "uint64": "int32", "float64": "float32"}
"""Dtype of an input → dtype in which OpenVINO computes it on a CPU; values beyond it are clipped or cut, silently."""

_LOOKED_S = 0.5
"""Seconds for which rows are compared, after those that have to be."""

_MISSING = r"[Cc]annot create (\w+) layer|unsupported operation.*?(\w+)"
_PACKAGES = (Package("openvino_tokenizers", "openvino-tokenizers"),)


class OpenVINOModel(Model):
    """A compiled IR. A fixed batch dimension is freed if the network allows it.

    NPUs compile fixed shapes only, so the batch is 1 there.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        core = openvino.Core()
        # If weights were mapped, overwriting the file in place would end the process (SIGBUS, seen with an embedding).
        core.set_property({"ENABLE_MMAP": False})
        if options.inference_precision:
            # The only one that can be asked for is float32.
            core.set_property(plugin(core, options.device), {"INFERENCE_PRECISION_HINT": "f32"})
        network, freed = load_with(
            lambda: _read(core, files), _MISSING, _PACKAGES, files.paths[0], f"OpenVINO {openvino.__version__}"
        )
        if options.device.startswith("npu"):
            network.reshape({port: _with_batch(port.partial_shape, 1) for port in network.inputs})
        indexes, self.inputs = _pick("input", options.inputs, network.inputs)
        if options.device == CPU:
            self.inputs = [replace(spec, computed=_COMPUTED_ON_CPU.get(spec.dtype, "")) for spec in self.inputs]
        if freed:
            # A first dimension of one size is a batch by convention.
            self.symbols = {spec.name: ["batch", *("" for _ in spec.record_shape or ())] for spec in self.inputs}
        if sorted(indexes) != list(range(len(network.inputs))):
            needed = ", ".join(str(spec) for spec in _pick("input", (), network.inputs)[1])
            raise ModelError(f"the model needs every one of its inputs, once: {needed}")
        self._positions = [indexes.index(index) for index in range(len(indexes))]
        self._output_indexes, self.outputs = _pick("output", options.outputs, network.outputs)
        self._places = Places(core, network, [self.inputs[position] for position in self._positions])
        self.careful = not self._places.takes_any
        # Compiled networks share the weights of this one.
        self._network = network
        small = sum(path.stat().st_size for path in files.paths) <= MOST_WEIGHTS
        compiled = singles(core, network.clone(), options.thread_per_model) if small and options.device == CPU else None
        self._loaded: Compiled | Singles = compiled or Compiled(core, network, options.thread_per_model, options.device)
        if len(network.inputs) > 1:
            # Kernels of recurrent layers read beyond a tensor that is too small.
            self.fits = partial(self._fit, network)
        self.overlaps = isinstance(self._loaded, Singles) and self._loaded.overlaps
        if options.device == CPU and not self._loaded.is_exact:
            self.tolerance = ROUGH

    def start(self, record: Sequence[Array]) -> StartedRecord:
        """See `Model.start`."""
        if not isinstance(self._loaded, Singles):
            return super().start(record)
        ordered = [record[position] for position in self._positions]
        with self._failing():
            self._places.check([array[np.newaxis] for array in ordered])
            started = self._loaded.start(ordered)
        return StartedRecord(partial(self._outputs_of, started), started.wait)

    def graph(self) -> Graph | None:
        """See `Model.graph`."""
        network = self._network
        ports = zip(self._positions, network.inputs, strict=True)
        named = zip(self.outputs, self._output_indexes, strict=True)
        return read(
            network,
            {self.inputs[position].name: port for position, port in ports},
            {spec.name: network.outputs[index] for spec, index in named},
            self._places.checked(network),
        )

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        ordered = [inputs[position] for position in self._positions]
        self._places.check(ordered)
        outputs = self._loaded.run(ordered)
        return [outputs[index] for index in self._output_indexes]

    def _fit(self, network: Any, inputs: Sequence[Array]) -> bool:
        """Return True if the network can have inputs of these shapes."""
        sized = network.clone()
        ports = zip(sized.inputs, self._positions, strict=True)
        try:
            sized.reshape({port: openvino.PartialShape(list(inputs[position].shape)) for port, position in ports})
        except RuntimeError:
            return False
        return True

    def _outputs_of(self, record: Record) -> list[Array]:
        with self._failing():
            outputs = record.outputs()
        return [outputs[index] for index in self._output_indexes]


def _read(core: Any, files: ModelFiles) -> tuple[Any, bool]:
    """Read the network, and free its first dimensions if all of them are of one size, or free already.

    The second result is True if they were freed.

    A first dimension of 1 is a batch, and a larger one if the rows do not depend on each other.
    """
    network = core.read_model(*files.paths)
    limits = {_limit(port) for port in network.inputs}
    size = max((limit or -1 for limit in limits), default=-1)
    if None in limits or limits - {size} - ({-1} if size == 1 else set()) or size < 1:
        return network, False
    if size > 1 and not _is_batch(core, network.clone(), size):
        return network, False
    try:
        # A network may take another shape although its batch is fixed inside. Then its outputs do not follow the batch.
        for batch in (2, 3, -1):
            network.reshape({port: _with_batch(port.partial_shape, batch) for port in network.inputs})
            if any(port.partial_shape[0] != openvino.Dimension(batch) for port in network.outputs):
                raise ValueError("an output does not follow the batch")
    except (RuntimeError, ValueError, IndexError):
        network = core.read_model(*files.paths)
        if -1 not in limits:
            network.reshape({port: _with_batch(port.partial_shape, size) for port in network.inputs})
        return network, False
    return network, True


def _is_batch(core: Any, network: Any, size: int) -> bool:
    """Return True if the first dimension of a network, of a size above 1, is that of its outputs, row by row."""
    network.reshape({port: _with_batch(port.partial_shape, size) for port in network.inputs})
    specs = [_spec(str(index), port) for index, port in enumerate(network.inputs)]
    reading = Reading(tuple(InputReading(0, spec.record_shape or ()) for spec in specs), fixed=size)
    try:
        compiled = Compiled(core, network, 1)
        call = Calls(compiled.run, reading, [0] * len(network.outputs), frozenset())
        tolerance = Model.tolerance if compiled.is_exact else ROUGH
        search = Influence(call, generated(reading, specs, 8, SMALL), [size], tolerance, careful=True)
        end = time.monotonic() + _LOOKED_S
        return search.find(lambda: time.monotonic() < end) is None
    except RuntimeError:
        return True


def _limit(port: Any) -> int | None:
    """Return the largest size of the first dimension, -1 without a limit; None without a known first dimension."""
    shape = port.partial_shape
    return None if shape.rank.is_dynamic or not len(shape) else int(shape[0].get_max_length())


def _with_batch(shape: Any, batch: int) -> Any:
    return openvino.PartialShape([openvino.Dimension(batch), *list(shape)[1:]])


def _pick(kind: str, wanted: Sequence[str], ports: Sequence[Any]) -> tuple[list[int], list[TensorSpec]]:
    """Return positions and specs of the wanted inputs or outputs, by any of their names; of all if none is named.

    A port without a name has that of its position. Its node's name, which earlier versions used, is taken, too.
    """
    names = [
        sorted(_given(port), key=lambda name: (len(name), name))
        or [kind if len(ports) == 1 else f"{kind}_{index}", f"{kind}_{index}", port.node.friendly_name]
        for index, port in enumerate(ports)
    ]
    positions: dict[str, int] = {}
    for index, aliases in enumerate(names):
        for name in aliases:
            positions.setdefault(name, index)
    wanted = wanted or [aliases[0] for aliases in names]
    indexes = choose(kind, wanted, positions)
    return indexes, [_spec(name, ports[index]) for name, index in zip(wanted, indexes, strict=True)]


def _given(port: Any) -> set[str]:
    """Return the names of a port, except one that OpenVINO made of the kind and number of its node."""
    return {name for name in port.get_names() if not re.fullmatch(rf"{port.node.get_type_name()}_\d+", name)}


def _spec(name: str, port: Any) -> TensorSpec:
    element = port.element_type.get_type_name()
    dtype, shape = _DTYPES.get(element, element), port.partial_shape
    if shape.rank.is_dynamic:
        return TensorSpec(name, dtype, None)
    return TensorSpec(name, dtype, tuple(None if size.is_dynamic else size.get_length() for size in shape))
