"""What Flink's REST API says about a running job: where its TaskManagers are, and the metrics of its slots."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

METRICS = ("queueWaitMs", "inferenceTimeMs", "batchSize")
"""Metrics of the inference operator; Flink shows each slot's latest batch."""

_TIMEOUT_S = 10


@dataclass(slots=True)
class Samples:
    """Values seen of the job's metrics; Flink refreshes them every two seconds, so most batches are not seen.

    Attributes:
        seen: Metric → how often each value was seen.
    """

    seen: dict[str, Counter[int]] = field(default_factory=lambda: {name: Counter() for name in METRICS})

    def summary(self) -> dict[str, Any]:
        """Number of samples, and mean of each metric; batch sizes as a histogram."""
        result: dict[str, Any] = {"samples": self.seen["batchSize"].total()}
        for name, counts in self.seen.items():
            total = counts.total()
            result[name] = round(sum(value * n for value, n in counts.items()) / total, 3) if total else None
        result["batchSizes"] = {str(size): count for size, count in sorted(self.seen["batchSize"].items())}
        return result


def taskmanager_ports(url: str) -> list[int]:
    """Ports that the TaskManagers of a Flink cluster listen on.

    Args:
        url: `http://host:port` of Flink's REST API.

    Raises:
        httpx.HTTPError: Flink does not answer.
    """
    found = httpx.get(f"{_address(url)}/taskmanagers", timeout=_TIMEOUT_S, trust_env=False).raise_for_status().json()
    # Such as pekko.tcp://flink@localhost:41871/user/rpc/taskmanager_0
    paths = [manager["path"] for manager in found["taskmanagers"]]
    return [int(path.partition("@")[2].partition("/")[0].rpartition(":")[2]) for path in paths]


class FlinkJob:
    """A running job; use it in a `with` statement.

    Args:
        url: `http://host:port` of Flink's REST API.
        name: `jobName`.

    Raises:
        LookupError: Flink runs no such job.
        httpx.HTTPError: Flink does not answer.
    """

    def __init__(self, url: str, name: str) -> None:
        address = _address(url)
        self._http = httpx.Client(base_url=address, timeout=_TIMEOUT_S, trust_env=False)
        jobs = [job for job in self._get("/jobs/overview")["jobs"] if job["name"] == name and job["state"] == "RUNNING"]
        if not jobs:
            raise LookupError(f"no job {name!r} is running on {address}")
        self._id = max(jobs, key=lambda job: job["start-time"])["jid"]
        vertices = self._get(f"/jobs/{self._id}")["vertices"]
        self.slots: int = max(vertex["parallelism"] for vertex in vertices)
        self._metrics = f"/jobs/{self._id}/vertices/{vertices[-1]['id']}/metrics"
        self._names: list[str] = []

    def __enter__(self) -> FlinkJob:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def sample(self, into: Samples) -> None:
        """Add the metrics' present values, one per slot; values that Flink does not have yet are left out."""
        if not self._names:
            self._names = [m["id"] for m in self._get(self._metrics) if m["id"].rpartition(".")[2] in METRICS]
        for start in range(0, len(self._names), 60):
            names = ",".join(self._names[start : start + 60])
            for metric in self._get(self._metrics, get=names):
                into.seen[metric["id"].rpartition(".")[2]][round(float(metric["value"]))] += 1

    def _get(self, path: str, **query: str) -> Any:
        return self._http.get(path, params=query).raise_for_status().json()


def _address(url: str) -> str:
    return url if "://" in url else f"http://{url}"
