"""Metadata, configuration, index and statistics of models, in the JSON of the v2 protocol."""

import re
from collections import Counter
from collections.abc import Sequence
from importlib import metadata as packages
from typing import Any

from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.models.registry import PublishedModel
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.hosting.control import UNLOADED
from cluster_serving.protocol.slots import SlotReport, TensorSpec

_EXTENSIONS = ["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"]
_STOPPED = {"stopped": "its job does not run", UNLOADED: "unloaded"}
_KEPT = re.compile(r"(topN|top_n|pickTopN)\((\d+)\)")


def server() -> dict[str, Any]:
    """Return the metadata of the server."""
    return {"name": "cluster-serving", "version": packages.version("cluster-serving"), "extensions": _EXTENSIONS}


def metadata(model: PublishedModel, versions: Sequence[str]) -> dict[str, Any]:
    """Return the metadata of a model: datatypes and shapes of requests and responses, with -1 for any size.

    If the model does not declare them, a datatype is empty, and a shape is the batch dimension alone. No tensors are
    listed until a slot has loaded the model once. A single value is an input of [-1, 1], as Triton describes it; it is
    taken as [-1], too.
    """
    report = model.described
    return {
        "name": model.name,
        "versions": versions,
        "platform": report.engine if report else "",
        "inputs": [_tensor(spec, _of_input(spec)) for spec in report.inputs] if report else [],
        "outputs": [_tensor(spec, spec.record_shape) for spec in outputs(report)] if report else [],
    }


def config(model: PublishedModel) -> dict[str, Any]:
    """Return the configuration of a model in the JSON of Triton's `ModelConfig`; sizes omit the batch dimension."""
    report = model.described
    batched = report is not None and not report.already_batched
    made: dict[str, Any] = {
        "name": model.name,
        "platform": report.engine if report else "",
        "backend": "cluster-serving",
        "max_batch_size": report.max_batch_size if report and batched else 0,
        "input": [_config_tensor(spec, _of_input(spec), batched) for spec in report.inputs] if report else [],
        "output": [_config_tensor(spec, spec.record_shape, batched) for spec in outputs(report)] if report else [],
        "instance_group": _instances(model.reports),
    }
    if report is not None and report.in_pieces:
        made["model_transaction_policy"] = {"decoupled": True}
    return made | ({"dynamic_batching": {}} if batched else {})


def statistics(model: PublishedModel, totals: JobStats) -> dict[str, Any]:
    """Return the statistics of a model, from the totals of its job: of all clients, each record a request.

    The job counts the preparation of inputs as a part of its computation.
    """

    def part(count: int, us: int) -> dict[str, int]:
        return {"count": count, "ns": 1000 * us}

    requests, failures = totals.requests, totals.failures
    waited, computed = totals.request_wait_us, totals.request_compute_us
    stats = {
        "success": part(requests - failures, totals.request_us - totals.failure_us),
        "fail": part(failures, totals.failure_us),
        "queue": part(requests, waited),
        # Triton's perf_analyzer ends with an error if the counts of the three differ.
        "compute_input": part(requests, 0),
        "compute_infer": part(requests, computed),
        "compute_output": part(requests, totals.request_us - waited - computed),
    } | dict.fromkeys(("cache_hit", "cache_miss"), part(0, 0))
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": totals.answered_ms,
        "inference_count": requests - failures,
        "execution_count": totals.batches,
        "inference_stats": stats,
        "batch_stats": [],
    }


def is_ranked(report: SlotReport) -> bool:
    """Return True if the job answers with the best classes of each output, and not with the output."""
    kept = _KEPT.fullmatch(_last_filter(report))
    return kept is not None and kept[1] != "pickTopN"


def outputs(report: SlotReport) -> Sequence[TensorSpec]:
    """Return the outputs after the `postProcessing` of the job; those of `topN` are texts."""
    if not report.post_processing:
        return report.outputs
    kept = _KEPT.fullmatch(_last_filter(report))
    if kept is None:
        # Most filters change dtype and shape.
        return report.sent or [TensorSpec(spec.name, "", None) for spec in report.outputs]
    if is_ranked(report):
        return [TensorSpec(spec.name, "str", (None, int(kept[2]))) for spec in report.outputs]
    return [
        TensorSpec(spec.name, spec.dtype, None if spec.shape is None else (None, None, *spec.shape[-1:]))
        for spec in report.outputs
    ]


def index_row(model: PublishedModel) -> dict[str, Any]:
    """Return the entry of a model in the repository index."""
    row = {"name": model.name, "version": model.version}
    if model.state == "ready":
        return row | {"state": "READY", "reason": ""}
    if model.state in _STOPPED:
        return row | {"state": "UNAVAILABLE", "reason": _STOPPED[model.state]}
    states = {report.state for report in model.reports}
    reason = next((report.error for report in model.reports if report.error), "")
    return row | {"state": "LOADING" if "loading" in states else "UNAVAILABLE", "reason": reason}


def _last_filter(report: SlotReport) -> str:
    return report.post_processing.rpartition("|")[2].strip()


def _instances(reports: Sequence[SlotReport]) -> list[dict[str, Any]]:
    """Return the number of slots on each device."""
    counts = Counter(report.device for report in reports if report.state == "ready" and report.device)
    groups: list[dict[str, Any]] = []
    for device, count in sorted(counts.items()):
        kind, _, number = device.partition(":")
        group = {"name": device, "count": count}
        if kind in ("cuda", "gpu") and number.isdecimal():
            groups.append(group | {"kind": "KIND_GPU", "gpus": [int(number)]})
        else:
            # Triton has no kind for an NPU, or for a handler with models on several devices.
            groups.append(group | {"kind": "KIND_CPU" if device == "cpu" else "KIND_MODEL"})
    return groups


def _sizes(shape: Sequence[int | None]) -> list[int]:
    return [-1 if size is None else size for size in shape]


def _of_input(spec: TensorSpec) -> tuple[int | None, ...] | None:
    """Return the shape of a record of an input; perf_analyzer sends no inputs without dimensions."""
    return (1,) if spec.record_shape == () else spec.record_shape


def _tensor(spec: TensorSpec, record: Sequence[int | None] | None) -> dict[str, Any]:
    # The batch dimension of the model is not used: a request may have any number of records.
    shape = [-1, *_sizes(record or ())]
    return {"name": spec.name, "datatype": datatypes.of_name(spec.dtype), "shape": shape}


def _config_tensor(spec: TensorSpec, record: Sequence[int | None] | None, batched: bool) -> dict[str, Any]:
    datatype = datatypes.of_name(spec.dtype)
    # TYPE_INVALID stands for dtypes that v2 does not have, such as complex numbers: gRPC refuses other names.
    kind = "STRING" if datatype == datatypes.BYTES else datatype if datatype in datatypes.DTYPES else "INVALID"
    dims = _sizes(record or ())
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": dims if batched else [-1, *dims]}
