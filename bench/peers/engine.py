"""The work itself, the same in every server: decode a JPEG, run the model with OpenVINO, find the best class.

Every peer and the bare loop import this module, from environments that have openvino, numpy and OpenCV. Environment
variables configure it: `BENCH_MODEL` (folder of the IR), `BENCH_KIND` (`jpeg`, `tensor` or `vector`), `BENCH_WORKERS`
and `BENCH_THREADS` (threads of each worker's model). `BENCH_SINGLE=1` compiles the model for batches of one record.
`BENCH_PRECISION=float32` computes in float32 on any CPU. With `BENCH_JSON=1` requests are JSON, also those of images.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Importing OpenVINO forks a child that reports the import over the network.
sys.modules.setdefault("openvino_telemetry", None)

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import openvino  # noqa: E402

cv2.setNumThreads(1)

MODEL = os.environ.get("BENCH_MODEL", "")
KIND = os.environ.get("BENCH_KIND", "vector")
PORT = int(os.environ.get("BENCH_PORT", "8000"))
# Further ports, for servers that listen on several.
PORTS = [int(port) for port in os.environ.get("BENCH_PORTS", "8001,8002,8003,8004").split(",")]
WORKERS = int(os.environ.get("BENCH_WORKERS", "1"))
THREADS = int(os.environ.get("BENCH_THREADS", "1"))
SINGLE = os.environ.get("BENCH_SINGLE") == "1"
# Records of a request.
ROWS = int(os.environ.get("BENCH_ROWS", "1"))
JSON = KIND == "vector" or os.environ.get("BENCH_JSON") == "1"
PRECISION = os.environ.get("BENCH_PRECISION", "")
BATCH = max(32, ROWS)
WAIT_MS = 5
SHAPE = {"jpeg": (224, 224, 3), "tensor": (224, 224, 3), "vector": (64,)}[KIND]


class Engine:
    """A compiled model, with the options of Cluster Serving."""

    def __init__(self, model: str = MODEL) -> None:
        core = openvino.Core()
        if PRECISION == "float32":
            core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        (path,) = Path(model).glob("*.xml")
        network = core.read_model(path)
        if SINGLE:
            network.reshape([1, *SHAPE])
        self._request = core.compile_model(
            network,
            "CPU",
            {
                "PERFORMANCE_HINT": "LATENCY",
                "NUM_STREAMS": 1,
                "INFERENCE_NUM_THREADS": THREADS,
                "ENABLE_CPU_PINNING": False,
            },
        ).create_infer_request()
        self.infer(np.zeros((1, *SHAPE), np.float32))

    def infer(self, batch: np.ndarray) -> np.ndarray:
        """Compute a batch: float32 (n, ...) → float32 (n, classes)."""
        self._request.set_input_tensor(0, openvino.Tensor(batch, shared_memory=True))
        self._request.infer(share_outputs=True)
        return self._request.get_output_tensor(0).data.copy()

    def answer(self, inputs: Sequence[np.ndarray]) -> list[list[float]]:
        """Compute what `decode` or `read` returned; answer each: [class, value] of an image, else all numbers."""
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


def read(raw: bytes) -> np.ndarray:
    """Decode the body of a request as `decode` does: JSON, or the bytes of an image or a tensor."""
    if ROWS > 1:
        return np.asarray(json.loads(raw)["instances"], np.float32)
    return decode_instance(json.loads(raw)["instances"][0]) if JSON else decode(raw)
