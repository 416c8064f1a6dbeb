"""Compiled OpenVINO networks: one of a free batch, and one of single records where that is faster."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from cluster_serving.client.inputs import Array
from cluster_serving.job.models.spec import writable

# Importing OpenVINO forks a child that reports the import over the network, and a TaskManager must not be forked.
# With the telemetry package out of reach OpenVINO uses its own stub.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

__all__ = ["MOST_WEIGHTS", "Compiled", "Run", "Singles", "openvino", "singles"]

MOST_WEIGHTS = 256 << 20
"""Bytes of a model of which copies are made: each has weights of its own."""

# Of a network that computes less, the call is what costs: it is better off with whole batches.
_HEAVY = 50e6


def _compile(core: Any, network: Any, threads: int, streams: int) -> Any:
    return core.compile_model(
        network,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": threads,
            # Pinned, all copies of a process sit on the same first cores: two one-thread copies measured as one.
            "ENABLE_CPU_PINNING": False,
        },
    )


class Compiled:
    """A network compiled for the CPU, with the one request that its thread runs.

    Args:
        core: OpenVINO's.
        network: To compile.
        threads: That it may use.
    """

    def __init__(self, core: Any, network: Any, threads: int) -> None:
        self.network = _compile(core, network, threads, 1)
        self._request: Any = self.network.create_infer_request()
        self._outputs = range(len(self.network.outputs))

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute one batch; inputs and outputs are in the order of the network, and outputs are copies."""
        # Tensors set one by one on the same request cost half of what `request.infer(inputs)` costs (17 against 35 µs).
        # The request does not keep their memory alive: without `arrays`, another thread would write into it meanwhile.
        arrays = [writable(array) for array in inputs]
        for index, array in enumerate(arrays):
            self._request.set_input_tensor(index, openvino.Tensor(array, shared_memory=True))
        self._request.infer(share_outputs=True)
        return [self._request.get_output_tensor(index).data.copy() for index in self._outputs]

    def close(self) -> None:
        """Free the memory."""
        self._request = self.network = None


class Run:
    """Records that the threads of a network compute, each by one of them.

    Args:
        requests: One per record; not in use.
        inputs: Those of the records, one array per input; must be writable in place.
        outputs: Where the outputs are to go, one array per output.
        release: Told when the requests are not in use any more.
    """

    def __init__(
        self,
        requests: Sequence[Any],
        inputs: Sequence[Array],
        outputs: list[Array],
        release: Callable[[Sequence[Any]], None],
    ) -> None:
        # The requests do not keep this memory alive.
        self._memory = (inputs, outputs)
        self._requests = requests
        self._release = release
        self._started: list[Any] = []
        for row, request in enumerate(requests):
            for index, array in enumerate(inputs):
                request.set_input_tensor(index, openvino.Tensor(array[row : row + 1], shared_memory=True))
            for index, array in enumerate(outputs):
                request.set_output_tensor(index, openvino.Tensor(array[row : row + 1], shared_memory=True))
            request.start_async(share_inputs=True)
            self._started.append(request)

    def __del__(self) -> None:
        with suppress(RuntimeError):
            self._finish()

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds at most; says whether all records are computed."""
        milliseconds = math.ceil(seconds * 1000)
        return all(request.wait_for(milliseconds) for request in reversed(self._started))

    def outputs(self) -> list[Array]:
        """Wait for the outputs.

        Raises:
            RuntimeError: OpenVINO failed.
        """
        self._finish()
        self._release(self._requests)
        return self._memory[1]

    def _finish(self) -> None:
        # All are waited for, whatever fails. The last one first: this thread then wakes once, instead of interrupting
        # the next record after each.
        with ExitStack() as waits:
            for request in self._started:
                waits.callback(request.wait)
            self._started = []


class Singles:
    """A network that computes records one by one: several at once on a thread each, a single one on all threads.

    Args:
        core: OpenVINO's.
        network: To compile; its batch is fixed to 1.
        threads: That it may use.
    """

    def __init__(self, core: Any, network: Any, threads: int) -> None:
        self._single = Compiled(core, network, threads)
        self._streams = _compile(core, network, threads, threads) if threads > 1 else None
        self._idle: list[Any] = []
        self._outputs = [(list(port.shape)[1:], port.element_type.to_dtype()) for port in network.outputs]

    @property
    def overlaps(self) -> bool:
        """Whether `start` can be used."""
        return self._streams is not None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """As `Compiled.run`."""
        count = len(inputs[0])
        if count > 1 and self.overlaps:
            return self.start(inputs).outputs()
        parts = [self._single.run([array[index : index + 1] for array in inputs]) for index in range(count)]
        return parts[0] if count == 1 else [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def start(self, inputs: Sequence[Array]) -> Run:
        """Start to compute a batch, after those that were started before; not for one thread."""
        count = len(inputs[0])
        requests = [self._idle.pop() if self._idle else self._new_request() for _ in range(count)]
        outputs = [np.empty((count, *shape), dtype) for shape, dtype in self._outputs]
        return Run(requests, [writable(array) for array in inputs], outputs, self._idle.extend)

    def close(self) -> None:
        """Free the memory."""
        self._single.close()
        self._idle, self._streams = [], None

    def _new_request(self) -> Any:
        if self._streams is None:
            raise RuntimeError("the model is closed, or has one thread")
        return self._streams.create_infer_request()


def singles(core: Any, network: Any, threads: int) -> Singles | None:
    """Compile a network for single records, if that is faster; None if the free one does as well.

    With all sizes known, OpenVINO plans memory and kernels once: a MobileNet takes 20 to 30 % less time. It does so for
    convolutions, which compute each record on its own; products of matrices gain more from whole batches. One thread
    takes as long for four records at once as for four in turn, and two threads take a third longer for one record
    together than for one each. The network decides and not a measurement, since a copy rounds differently: all slots
    have to answer alike, and no answer may depend on how many came with it.

    Args:
        core: OpenVINO's.
        network: Of a free batch; its shape is changed.
        threads: That a copy may use.
    """
    if any(port.partial_shape.rank.is_dynamic for port in network.inputs):
        return None
    shapes = {port: list(port.partial_shape)[1:] for port in network.inputs}
    if any(size.is_dynamic for sizes in shapes.values() for size in sizes):
        return None
    try:
        network.reshape({port: openvino.PartialShape([1, *sizes]) for port, sizes in shapes.items()})
        if _convolution_work(network) < _HEAVY or any(port.partial_shape.is_dynamic for port in network.outputs):
            return None
        return Singles(core, network, threads)
    except RuntimeError:
        # It does not take fixed sizes; then the free one tells what is wrong.
        return None


def _convolution_work(network: Any) -> float:
    """Multiplications and additions in the convolutions of a network whose shapes are fixed."""
    kernels = {"Convolution": 1, "GroupConvolution": 2}  # axes of the weights that are output channels
    work: float = sum(
        2.0 * math.prod(node.get_output_shape(0)) * math.prod(node.get_input_shape(1)[kernels[node.get_type_name()] :])
        for node in network.get_ops()
        if node.get_type_name() in kernels
    )
    return work
