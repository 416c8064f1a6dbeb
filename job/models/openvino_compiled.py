"""Compiled OpenVINO networks: one of a free batch, and copies of fixed batches where these are faster."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.client.inputs import Array
from cluster_serving.job.models.spec import writable

# Importing OpenVINO forks a child that reports the import over the network, and a TaskManager must not be forked.
# With the telemetry package out of reach OpenVINO uses its own stub.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

__all__ = ["MOST_WEIGHTS", "Compiled", "faster", "openvino"]

MOST_WEIGHTS = 256 << 20
"""Bytes of a model of which copies are made: each has weights of its own."""

_SIZES = (1, 4)
_WORTH_IT = 0.9
# Of a network that takes less, the call is what costs: it is better off with whole batches.
_SMALL = 0.0005
_TRIES = 4


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


def faster(core: Any, network: Any, free: Compiled, threads: int) -> list[tuple[int, Compiled]]:
    """Copies of a network for batches of fixed sizes, the larger first; none unless they are faster than the free one.

    With all sizes known, OpenVINO plans memory and kernels once: a MobileNet takes 20 to 30 % less time.

    Args:
        core: OpenVINO's.
        network: Of a free batch.
        free: The same, compiled.
        threads: That a copy may use.
    """
    shapes = [port.partial_shape for port in network.inputs]
    if any(shape.rank.is_dynamic or any(size.is_dynamic for size in list(shape)[1:]) for shape in shapes):
        return []
    found: list[tuple[int, Compiled]] = []
    try:
        per_record = {size: _seconds(free, size) / size for size in _SIZES}
        if per_record[1] < _SMALL:
            return []
        # Of single records first: without them, what is left of a batch would be computed by the free network, which
        # rounds differently, and an answer would depend on how many came with it.
        for size in _SIZES:
            network.reshape(
                {port: openvino.PartialShape([size, *list(port.partial_shape)[1:]]) for port in network.inputs}
            )
            compiled = Compiled(core, network, threads)
            seconds = _seconds(compiled, size) / size
            if seconds < _WORTH_IT * per_record[size]:
                found.insert(0, (size, compiled))
            elif size == 1:
                return []
    except RuntimeError:
        # It does not take zeros, or fixed sizes; then the free one tells what is wrong.
        return []
    return found


def _seconds(compiled: Compiled, batch: int) -> float:
    """The shortest time that a batch of zeros takes."""
    inputs = []
    for port in compiled.network.inputs:
        sizes = [size.get_length() for size in list(port.partial_shape)[1:]]
        inputs.append(np.zeros((batch, *sizes), port.element_type.to_dtype()))
    times = []
    for _ in range(_TRIES):
        started = time.perf_counter()
        compiled.run(inputs)
        times.append(time.perf_counter() - started)
    return min(times[1:])
