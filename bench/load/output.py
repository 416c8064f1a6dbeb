"""Results as a table for the terminal, and as JSON."""

import json
import os
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from cluster_serving.bench.load.result import LoadResult
from cluster_serving.protocol.host import cgroup

HEADS = (
    *("mode", "client", "in flight", "offered/s", "answered/s", "p50 ms", "p95 ms", "p99 ms", "max ms"),
    *("errors", "lost", "wrong", "stable"),
)
"""Columns of the results."""

PACKAGES = ("cluster-serving", "apache-flink", "openvino", "numpy", "redis", "pyarrow")


def machine() -> dict[str, Any]:
    """Return facts about the machine and the installed packages."""
    return {
        "cpu": _cpu_model(),
        "cores": cgroup.cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: package.version for name in PACKAGES for package in distributions(name=name)},
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _cpu_model() -> str:
    """Return the name of the processor, as the kernel gives it."""
    lines = Path("/proc/cpuinfo").read_text("utf8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def cells(result: LoadResult) -> list[str]:
    """Return the cells of a result in the columns `HEADS`."""
    latency, tally = result.latency_ms, result.tally
    return [
        result.mode,
        result.client,
        "" if result.mode == "open" else str(result.concurrency),
        f"{result.offered:,.1f}",
        f"{result.achieved:,.1f}",
        *(f"{ms:,.2f}" for ms in (latency.p50, latency.p95, latency.p99, latency.max)),
        str(tally.errors.total()),
        str(tally.lost),
        f"{tally.wrong} of {tally.checked}" if result.can_check else "unknown",
        {True: "yes", False: "no", None: ""}[result.stable],
    ]


def table(results: Sequence[LoadResult]) -> RenderableType:
    """Return the results as a table for the terminal."""
    roles = sorted({role for result in results for role in result.cpu_seconds_per_1000})
    costs = ([label(result), *(_cost(result, role) for role in roles)] for result in results)
    parts: list[RenderableType] = [_table(HEADS, map(cells, results)), ""]
    parts.append(_table(["CPU s per 1,000 (peak MiB)", *roles], costs))
    if errors := sum((result.tally.errors for result in results), Counter[str]()):
        parts += ["", f"Errors: {', '.join(f'{code} ({count})' for code, count in errors.items())}"]
    if jobs := [(label(result), result.job) for result in results if result.job]:
        heads = ("inside the job, per batch", "batches", "queue wait ms", "inference ms", "write ms", "size")
        parts += ["", _table((*heads, "sizes up to"), (_job_cells(name, job) for name, job in jobs))]
    return Group(*parts)


def to_json(results: Sequence[LoadResult], facts: Mapping[str, Any]) -> str:
    """Return the results as JSON, with facts about the machine, and those about the measurement as `what`."""
    document = {"what": facts, "machine": machine(), "results": [result.to_dict() for result in results]}
    return json.dumps(document, indent=1, allow_nan=False)


def label(result: LoadResult) -> str:
    """Return the name of a result: mode, client and load."""
    load = f"{result.offered:g} requests/s" if result.mode == "open" else f"{result.concurrency} in flight"
    return f"{result.mode}, {result.client} client, {load}"


def _cost(result: LoadResult, role: str) -> str:
    if role not in result.cpu_seconds_per_1000:
        return ""
    return f"{result.cpu_seconds_per_1000[role]:.3f} ({result.peak_memory_mb.get(role, 0):,.0f})"


def _job_cells(name: str, job: Mapping[str, Any]) -> list[str]:
    times = (f"{job[time]:,.2f}" for time in ("queueWaitMs", "inferenceMs", "writeMs"))
    sizes = ", ".join(f"{bound}: {count}" for bound, count in job["batchSizes"].items())
    return [name, f"{job['batches']:,}", *times, f"{job['batchSize']:,.1f}", sizes]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(*heads, box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    return table
