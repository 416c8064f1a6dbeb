"""Figures of a job, as the page `/ui` gets them: totals, from whose differences it makes rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster_serving.protocol.exposition import Reading
from cluster_serving.protocol.metrics import COMPUTE, CPU_TIME, DEAD, OLDEST, PROCESS_MEMORY, QUEUE
from cluster_serving.protocol.stats import JobStats


def of_job(reading: Reading) -> dict[str, Any]:
    """Return queue and dead letters of a job, and the totals of each version; the time is in milliseconds."""
    return {
        "time": round(1000 * reading.time),
        "queue": reading.of_job[QUEUE.name],
        "oldest": reading.of_job[OLDEST.name] / 1e6,
        "dead": reading.of_job[DEAD.name],
        "versions": {version: _of_version(totals) for version, totals in reading.totals().items()},
    }


def of_slot(values: Mapping[str, int]) -> dict[str, int]:
    """Return time with the model, and CPU time and memory of the process of a slot, from its fields in Redis."""
    return {
        "computeUs": values.get(COMPUTE.sum, 0),
        "cpuUs": values.get(CPU_TIME.name, 0),
        "memory": values.get(PROCESS_MEMORY.name, 0),
    }


def _of_version(totals: JobStats) -> dict[str, Any]:
    return {
        "requests": totals.requests,
        "failures": totals.failures,
        "codes": totals.codes,
        "batches": totals.batches,
        "latency": totals.latency_ms,
    }
