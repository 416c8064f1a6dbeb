"""Compiled OpenVINO networks: one for batches of any size, and one for single records where that is faster."""

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from cluster_serving.job.models import telemetry
from cluster_serving.job.models.devices import Reported
from cluster_serving.job.models.ports import writable
from cluster_serving.job.options import CPU
from cluster_serving.protocol.inputs import Array

telemetry.forbid()

import openvino  # noqa: E402

__all__ = ["MOST_WEIGHTS", "Compiled", "Record", "Singles", "devices", "openvino", "plugin", "singles"]

MOST_WEIGHTS = 256 << 20
"""Largest model, in bytes, that is compiled twice: each compiled network has weights of its own."""

_KEPT_SIZES = {"CPU_RUNTIME_CACHE_CAPACITY": "64"}
"""Kernels that are kept for sizes of inputs: by default 5,000, and the memory grows with each new size of an image."""

# Operations per record. Most of the time of a smaller network goes to the call, so whole batches are faster.
_HEAVY = 50e6
# Bytes of all started records. When they are exceeded, the next record waits until the first is computed.
_MOST_BYTES = 256 << 20


def devices() -> Reported:
    """Return the devices that OpenVINO reports."""
    remedy = (
        "OpenVINO computes on GPUs (gpu) and NPUs (npu) of Intel whose driver is installed where the TaskManagers run; "
        "for a GPU of NVIDIA, serve the model as ONNX"
    )
    return Reported(f"OpenVINO {openvino.__version__.partition('-')[0]}", tuple(_plugins(openvino.Core())), remedy)


def plugin(core: Any, device: str) -> str:
    """Return OpenVINO's own name of a device."""
    return _plugins(core)[device]


def _plugins(core: Any) -> dict[str, str]:
    # OpenVINO numbers the devices of a kind only if there are several: GPU, or GPU.0 and GPU.1.
    names = {name: name.lower().replace(".", ":") for name in core.available_devices}
    return {short if short == CPU or ":" in short else f"{short}:0": name for name, short in names.items()}


def _compile(core: Any, network: Any, threads: int, streams: int) -> Any:
    properties = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": threads,
        # Pinned, all copies of a process sit on the same first cores: two one-thread copies measured as one.
        "ENABLE_CPU_PINNING": False,
    }
    try:
        return core.compile_model(network, "CPU", properties | _KEPT_SIZES)
    except RuntimeError:
        # No list of supported properties has it, so a release may refuse it.
        return core.compile_model(network, "CPU", properties)


# Operators that may refuse values.
_VALUES = re.compile(
    r"(Gather|Scatter)(Elements|ND).*|ScatterUpdate|TopK|NonMaxSuppression.*|If|Loop|TensorIterator|Bucketize"
)


def _may_fail(network: Any) -> bool:
    """Return True if a call may fail, for its sizes or values, in a network whose batch may be of any size."""
    if any(_VALUES.fullmatch(node.get_type_name()) for node in network.get_ops()):
        return True
    sized = network.clone()
    try:
        for port in sized.inputs:
            if port.partial_shape.rank.is_dynamic or any(size.is_dynamic for size in list(port.partial_shape)[1:]):
                return True
        first = {port: [1 if size.is_dynamic else size for size in port.partial_shape] for port in sized.inputs}
        sized.reshape({port: openvino.PartialShape(sizes) for port, sizes in first.items()})
    except RuntimeError:
        return True
    return any(port.partial_shape.is_dynamic for node in sized.get_ops() for port in node.outputs())


class Compiled:
    """A network compiled for a device, with one request that may use `threads` threads of the CPU."""

    def __init__(self, core: Any, network: Any, threads: int, device: str = CPU) -> None:
        # With one thread, `infer` of OpenVINO 2026.4 does not tell that a call has failed, and the outputs are those of
        # the call before. Waiting for an asynchronous call takes 75 µs longer.
        self._tells = device != CPU or threads > 1 or not _may_fail(network)
        self._network = (
            _compile(core, network, threads, 1)
            if device == CPU
            else core.compile_model(network, plugin(core, device), {"PERFORMANCE_HINT": "LATENCY"})
        )
        self._request: Any = self._network.create_infer_request()
        self._outputs = range(len(self._network.outputs))
        # What a network remembers from call to call would be that of another client.
        self._has_state = bool(network.get_variables())
        self._failed = False
        self.is_exact = self._network.get_property("INFERENCE_PRECISION_HINT") == openvino.Type.f32
        """True if the network is computed in float32."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute one batch. Inputs and outputs are in the order of the network; outputs are copies."""
        # Setting tensors one by one on the same request takes half as long as `request.infer(inputs)`: 17 instead of 35
        # µs. The request does not keep their memory alive: without `arrays`, another thread could reuse that memory.
        arrays = [writable(array) for array in inputs]
        if self._failed:
            self._forget(arrays)
        try:
            self._infer(arrays)
        except RuntimeError:
            self._failed = True
            raise
        return [self._request.get_output_tensor(index).data.copy() for index in self._outputs]

    def _infer(self, arrays: Sequence[Array]) -> None:
        for index, array in enumerate(arrays):
            self._request.set_input_tensor(index, openvino.Tensor(array, shared_memory=True))
        if self._has_state:
            self._request.reset_state()
        if self._tells:
            self._request.infer(share_outputs=True)
        else:
            self._request.start_async()
            self._request.wait()

    def _forget(self, arrays: Sequence[Array]) -> None:
        """Compute more rows than the next call has: nodes behind a failure keep the sizes of the last call for new."""
        self._failed = False
        more = []
        for port, array in zip(self._network.inputs, arrays, strict=True):
            free = [axis for axis, size in enumerate(port.partial_shape) if size.is_dynamic]
            more.append(np.concatenate([array, array, array], free[0]) if free else array)
        # If these fail too, so will the call.
        with suppress(RuntimeError):
            self._infer(more)


class Record:
    """A record that a thread of a network computes, in the memory of its request.

    The inputs are of the network's dtypes, or of some whose values fit them. `release` gets the request back.
    """

    def __init__(self, request: Any, inputs: Sequence[Array], release: Callable[[Any], None]) -> None:
        self._request = request
        self._release = release
        self._outputs: list[Array] | None = None
        self._error: RuntimeError | None = None
        for index, array in enumerate(inputs):
            memory = request.get_input_tensor(index).data[0]
            if array.shape != memory.shape:
                raise RuntimeError(f"input {index} has shape {list(array.shape)}, not {list(memory.shape)}")
            np.copyto(memory, array, casting="safe")
        request.start_async()

    @property
    def finished(self) -> bool:
        """True after `finish` was called."""
        return self._request is None

    def wait(self, seconds: float) -> bool:
        """Wait at most the given seconds. Return True if the computation has ended, successfully or not."""
        try:
            return self.finished or bool(self._request.wait_for(math.ceil(seconds * 1000)))
        except RuntimeError:
            # `outputs` raises the error.
            return True

    def finish(self) -> None:
        """Wait until the record is computed, and keep its outputs."""
        if self.finished:
            return
        request, self._request = self._request, None
        try:
            request.wait()
            count = len(request.model_outputs)
            self._outputs = [request.get_output_tensor(index).data[0].copy() for index in range(count)]
        except RuntimeError as error:
            self._error = error
        self._release(request)

    def outputs(self) -> list[Array]:
        """Wait for the outputs, which have no batch dimension, or raise the error of OpenVINO."""
        self.finish()
        if self._outputs is None:
            raise self._error or RuntimeError("not computed")
        return self._outputs


class Singles:
    """A network that computes records one by one: several at once on a thread each, a single record on all threads.

    `threads` is the number of threads in all. The network has a fixed batch of 1.
    """

    def __init__(self, core: Any, network: Any, threads: int) -> None:
        self._single = Compiled(core, network, threads)
        self._streams = _compile(core, network, threads, threads) if threads > 1 else None
        self._idle: list[Any] = []
        self._started: deque[Record] = deque()
        self.is_exact = self._single.is_exact
        size = sum(port.element_type.size * math.prod(port.shape) for port in (*network.inputs, *network.outputs))
        self._most_started = max(4 * threads, _MOST_BYTES // max(1, size))

    @property
    def overlaps(self) -> bool:
        """True if `start` can be used."""
        return self._streams is not None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute one batch; see `Compiled.run`."""
        count = len(inputs[0])
        if count == 1:
            return self._single.run(inputs)
        if self.overlaps:
            records = [self.start([array[index] for array in inputs]) for index in range(count)]
            return [np.stack(arrays) for arrays in zip(*(record.outputs() for record in records), strict=True)]
        parts = [self._single.run([array[index : index + 1] for array in inputs]) for index in range(count)]
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def start(self, inputs: Sequence[Array]) -> Record:
        """Start to compute a record, after those that were started before. Only if the network `overlaps`.

        The inputs are those of `Record`, without a batch dimension.
        """
        if self._streams is None:
            raise RuntimeError("the model has one thread")
        while self._started and (self._started[0].finished or len(self._started) >= self._most_started):
            self._started.popleft().finish()
        request = self._idle.pop() if self._idle else self._streams.create_infer_request()
        record = Record(request, inputs, self._idle.append)
        self._started.append(record)
        return record


def singles(core: Any, network: Any, threads: int) -> Singles | None:
    """Compile a network for single records if that is faster; return None otherwise.

    With all sizes known, OpenVINO plans memory and kernels once: a MobileNet takes 20 to 30 % less time. This holds for
    convolutions, which compute each record on its own; products of matrices gain more from whole batches. One thread
    takes as long for four records at once as for four in turn. Two threads take a third longer if they compute
    each record together than if each computes a record of its own. The decision depends on the network alone and not
    on a measurement, because the two forms round differently: all slots have to answer alike, whatever the batch size.

    The network has a free batch, and its shape is changed.
    """
    if any(port.partial_shape.rank.is_dynamic or not len(port.partial_shape) for port in network.inputs):
        return None
    if network.get_variables():
        return None
    shapes = {port: list(port.partial_shape) for port in network.inputs}
    if any(not batch.is_dynamic or any(size.is_dynamic for size in sizes) for batch, *sizes in shapes.values()):
        return None
    try:
        network.reshape({port: openvino.PartialShape([1, *sizes]) for port, (_, *sizes) in shapes.items()})
        if any(port.partial_shape.is_dynamic for port in network.outputs):
            return None
        if _convolution_work(network) < _HEAVY or not _follow_batch(network):
            return None
        return Singles(core, network, threads)
    except RuntimeError:
        # The network does not take fixed sizes. Compiling it with a free batch will raise the error.
        return None


def _follow_batch(network: Any) -> bool:
    """Return True if the first dimension of each output is the batch, in a network whose batch is fixed at 1."""
    if any(list(port.get_shape())[:1] != [1] for port in network.outputs):
        return False
    twice = network.clone()
    try:
        twice.reshape({port: openvino.PartialShape([2, *list(port.partial_shape)[1:]]) for port in twice.inputs})
    except RuntimeError:
        # The network takes single records only.
        return True
    ports = zip(network.outputs, twice.outputs, strict=True)
    return all([2, *list(one.get_shape())[1:]] == list(two.partial_shape) for one, two in ports)


def _convolution_work(network: Any) -> float:
    """Return the number of multiplications and additions in the convolutions of a network with fixed shapes."""
    kernels = {"Convolution": 1, "GroupConvolution": 2}  # axes of the weights that are output channels
    work: float = sum(
        2.0 * math.prod(node.get_output_shape(0)) * math.prod(node.get_input_shape(1)[kernels[node.get_type_name()] :])
        for node in network.get_ops()
        if node.get_type_name() in kernels
    )
    return work
