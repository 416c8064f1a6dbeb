"""Compiled OpenVINO networks: one of a free batch, and copies of fixed batches where these are faster."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from cluster_serving.client.inputs import Array
from cluster_serving.job.models.spec import writable

# Importing OpenVINO forks a child that reports the import over the network, and a TaskManager must not be forked.
# With the telemetry package out of reach OpenVINO uses its own stub.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

__all__ = ["MOST_WEIGHTS", "Compiled", "fixed", "openvino"]

MOST_WEIGHTS = 256 << 20
"""Bytes of a model of which copies are made: each has weights of its own."""

# By the threads of a copy. One thread takes as long for four records at once as for four in turn, and a second network
# drives the weights of the first out of the cache; many threads are kept busy by whole batches only.
_SIZES = {1: (1,), 2: (4, 1), 3: (4, 1), 4: (4, 1)}
# Of a network that computes less, the call is what costs: it is better off with whole batches.
_HEAVY = 50e6


class Compiled:
    """A network compiled for the CPU, with the one request that its thread runs.

    Args:
        core: OpenVINO's.
        network: To compile.
        threads: That it may use.
    """

    def __init__(self, core: Any, network: Any, threads: int) -> None:
        self.network = core.compile_model(
            network,
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                "NUM_STREAMS": 1,
                "INFERENCE_NUM_THREADS": threads,
                # Pinned, all copies of a process sit on the same first cores: two one-thread copies measured as one.
                "ENABLE_CPU_PINNING": False,
            },
        )
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


def fixed(core: Any, network: Any, threads: int) -> list[tuple[int, Compiled]]:
    """Copies of a network for batches of fixed sizes, the last of one record; none if the free one does as well.

    With all sizes known, OpenVINO plans memory and kernels once: a MobileNet takes 20 to 30 % less time. It does so for
    convolutions, which compute each record on its own; products of matrices gain more from whole batches. The network
    decides and not a measurement, since a copy rounds differently: all slots have to answer alike. For the same reason
    there is one of single records, so that no answer depends on how many came with it.

    Args:
        core: OpenVINO's.
        network: Of a free batch; its shape is changed.
        threads: That a copy may use.
    """
    found: list[tuple[int, Compiled]] = []
    if any(port.partial_shape.rank.is_dynamic for port in network.inputs):
        return []
    shapes = {port: list(port.partial_shape)[1:] for port in network.inputs}
    if any(size.is_dynamic for sizes in shapes.values() for size in sizes):
        return []
    try:
        for size in reversed(_SIZES.get(threads, ())):
            network.reshape({port: openvino.PartialShape([size, *sizes]) for port, sizes in shapes.items()})
            if size == 1 and _convolution_work(network) < _HEAVY:
                return []
            found.insert(0, (size, Compiled(core, network, threads)))
    except RuntimeError:
        # It does not take fixed sizes; then the free one tells what is wrong.
        return []
    return found


def _convolution_work(network: Any) -> float:
    """Multiplications and additions in the convolutions of a network whose shapes are fixed."""
    kernels = {"Convolution": 1, "GroupConvolution": 2}  # axes of the weights that are output channels
    work: float = sum(
        2.0 * math.prod(node.get_output_shape(0)) * math.prod(node.get_input_shape(1)[kernels[node.get_type_name()] :])
        for node in network.get_ops()
        if node.get_type_name() in kernels
    )
    return work
