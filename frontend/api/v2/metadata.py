"""Metadata, configuration, index and statistics of models, in the JSON of the v2 protocol."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata as packages
from typing import Any

from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.models.registry import ServedModel
from cluster_serving.protocol.slots import SlotReport, TensorSpec

_EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "statistics"]
_COUNT = re.compile(r"\((\d+)\)")


@dataclass(slots=True)
class Counts:
    """Counts of the requests for one model since the front end started; durations in nanoseconds."""

    successes: int = 0
    success_ns: int = 0
    failures: int = 0
    failure_ns: int = 0
    records: int = 0
    last_ms: int = 0

    def succeeded(self, records: int, duration_ns: int) -> None:
        """Count an answered request."""
        self.successes += 1
        self.success_ns += duration_ns
        self.records += records
        self.last_ms = round(time.time() * 1000)

    def failed(self, duration_ns: int) -> None:
        """Count a failed request."""
        self.failures += 1
        self.failure_ns += duration_ns

    def row(self, name: str, version: str) -> dict[str, Any]:
        """Return the statistics of a model; only the metrics of its job divide a duration into its parts."""
        nothing = {"count": 0, "ns": 0}
        stats = {
            "success": {"count": self.successes, "ns": self.success_ns},
            "fail": {"count": self.failures, "ns": self.failure_ns},
        } | dict.fromkeys(
            ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"), nothing
        )
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_ms,
            "inference_count": self.records,
            "execution_count": self.successes,
            "inference_stats": stats,
            "batch_stats": [],
        }


def server() -> dict[str, Any]:
    """Return the metadata of the server."""
    return {"name": "cluster-serving", "version": packages.version("cluster-serving"), "extensions": _EXTENSIONS}


def metadata(model: ServedModel, versions: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a model: datatypes and shapes of requests and responses, with -1 for any size.

    If the model does not declare them, a datatype is empty, and a shape is the batch dimension alone. No tensors are
    listed until a slot has loaded the model once.
    """
    report = model.described
    return {
        "name": model.name,
        "versions": versions,
        "platform": report.engine if report else "",
        "inputs": [_tensor(spec) for spec in report.inputs] if report else [],
        "outputs": [_tensor(spec) for spec in _outputs(report)] if report else [],
    }


def config(model: ServedModel) -> dict[str, Any]:
    """Return the configuration of a model in the JSON of Triton's `ModelConfig`; sizes omit the batch dimension."""
    report = model.described
    batched = report is not None and not report.already_batched
    made: dict[str, Any] = {
        "name": model.name,
        "platform": report.engine if report else "",
        "backend": "cluster-serving",
        "max_batch_size": report.max_batch_size if report and batched else 0,
        "input": [_config_tensor(spec, batched) for spec in report.inputs] if report else [],
        "output": [_config_tensor(spec, batched) for spec in _outputs(report)] if report else [],
    }
    return made | ({"dynamic_batching": {}} if batched else {})


def index_row(model: ServedModel) -> dict[str, Any]:
    """Return the entry of a model in the repository index."""
    row = {"name": model.name, "version": model.version}
    if model.state == "ready":
        return row | {"state": "READY", "reason": ""}
    if model.state == "stopped":
        return row | {"state": "UNAVAILABLE", "reason": "its job does not run"}
    states = {report.state for report in model.reports}
    reason = next((report.error for report in model.reports if report.error), "")
    return row | {"state": "LOADING" if "loading" in states else "UNAVAILABLE", "reason": reason}


def _outputs(report: SlotReport) -> Sequence[TensorSpec]:
    """Return the outputs after the `postProcessing` of the job."""
    kept = _COUNT.search(report.post_processing)
    if kept is None:
        return report.outputs
    if report.post_processing.strip().startswith(("topN", "top_n")):
        return [TensorSpec(spec.name, "str", (None, int(kept[1]))) for spec in report.outputs]
    return [
        TensorSpec(spec.name, spec.dtype, None if spec.shape is None else (None, None, *spec.shape[-1:]))
        for spec in report.outputs
    ]


def _sizes(shape: Sequence[int | None]) -> list[int]:
    return [-1 if size is None else size for size in shape]


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    # The batch dimension of the model is not used: a request may have any number of records.
    shape = [-1, *_sizes(spec.record_shape or ())]
    return {"name": spec.name, "datatype": datatypes.of_name(spec.dtype), "shape": shape}


def _config_tensor(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    datatype = datatypes.of_name(spec.dtype)
    # TYPE_INVALID stands for dtypes that v2 does not have, such as complex numbers: gRPC refuses other names.
    kind = "STRING" if datatype == datatypes.BYTES else datatype if datatype in datatypes.DTYPES else "INVALID"
    dims = _sizes(spec.record_shape or ())
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": dims if batched else [-1, *dims]}
