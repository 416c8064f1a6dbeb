"""The work itself, the same in every server: decode a JPEG, run the model with OpenVINO, find the best class.

Every peer and the bare loop import this module, from environments that have openvino, numpy and OpenCV. The environment
variable `BENCH_WORK` has the fields of `Work` in bench/suite/peers.py, as JSON.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

# Importing OpenVINO forks a child that reports the import over the network.
sys.modules.setdefault("openvino_telemetry", None)

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import openvino  # noqa: E402

cv2.setNumThreads(1)

WORK = json.loads(os.environ["BENCH_WORK"])
KIND, ROWS, WORKERS = WORK["kind"], WORK["rows"], WORK["workers"]
# Ports of the peer; the first one takes the requests over HTTP, the second one those over gRPC.
PORT, *PORTS = WORK["ports"]
BATCH = max(32, ROWS)
WAIT_MS = 5
SHAPE = (64,) if KIND == "vector" else (224, 224, 3)


def chosen(**options: Any) -> dict[str, Any]:
    """Return the options of a server or of the engine; none if it is measured with its own defaults."""
    return {} if WORK["defaults"] else options


class Engine:
    """A compiled model, with the options of Cluster Serving."""

    def __init__(self, model: str = WORK["model"]) -> None:
        core = openvino.Core()
        if WORK["precision"] == "float32":
            core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        (path,) = Path(model).glob("*.xml")
        network = core.read_model(path)
        if WORK["single"]:
            network.reshape([1, *SHAPE])
        options = chosen(
            PERFORMANCE_HINT="LATENCY",
            NUM_STREAMS=1,
            INFERENCE_NUM_THREADS=WORK["threads"],
            ENABLE_CPU_PINNING=False,
        )
        self._request = core.compile_model(network, "CPU", options).create_infer_request()
        self.infer(np.zeros((1, *SHAPE), np.float32))

    def infer(self, batch: np.ndarray) -> np.ndarray:
        """Compute a batch: float32 (n, ...) → float32 (n, classes)."""
        self._request.set_input_tensor(0, openvino.Tensor(batch, shared_memory=True))
        self._request.infer(share_outputs=True)
        return self._request.get_output_tensor(0).data.copy()

    def answer(self, inputs: list[np.ndarray] | np.ndarray) -> list:
        """Compute what `decode` or `read` returned; answer each: [class, value] of an image, else all numbers.

        One of them alone, as servers without batches give it, has one answer.
        """
        if not isinstance(inputs, list):
            return self.answer([inputs])[0]
        if inputs[0].ndim > len(SHAPE):
            ends = np.cumsum([len(rows) for rows in inputs])
            return [part.tolist() for part in np.split(self.infer(np.concatenate(inputs)), ends[:-1])]
        outputs = self.infer(np.stack(inputs))
        if KIND == "vector":
            return outputs.tolist()
        return [[int(best), float(row[best])] for row, best in zip(outputs, outputs.argmax(axis=1), strict=True)]


def decode(raw: bytes) -> np.ndarray:
    """Decode the bytes of a request to one record, float32, as Cluster Serving does: colours in OpenCV's order.

    If requests have several records, these are the rows of the result.
    """
    if KIND == "jpeg":
        return cv2.imdecode(np.frombuffer(raw, np.uint8), cv2.IMREAD_COLOR).astype(np.float32)
    return np.frombuffer(raw, np.float32).reshape(SHAPE if ROWS == 1 else (-1, *SHAPE))


def decode_instance(instance: dict[str, str] | list[float]) -> np.ndarray:
    """Decode an element of the list `instances`: numbers, or `{"b64": bytes of a request as base64}`."""
    if isinstance(instance, dict):
        return decode(base64.b64decode(instance["b64"]))
    return np.asarray(instance, np.float32)


def decode_request(request: dict) -> np.ndarray:
    """Decode the JSON of a request as `decode` does."""
    instances = request["instances"]
    return np.asarray(instances, np.float32) if ROWS > 1 else decode_instance(instances[0])


def read(raw: bytes) -> np.ndarray:
    """Decode the body of a request as `decode` does: JSON, or the bytes of an image or a tensor."""
    return decode_request(json.loads(raw)) if KIND == "vector" or WORK["json"] else decode(raw)
