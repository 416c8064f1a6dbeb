"""Metrics of the front end, for Prometheus and in the JSON of the original."""

import math
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from cluster_serving.frontend.server import totals

_PREFIXES = ("bigdl.serving.", "zoo.serving.")
"""Prefixes of the original's names: from 2.0 on, and before."""

_STEPS = ("put", "get", "wait")
"""Steps of a request through Redis."""

_TIMERS = ("request.overall", "request.predict", "request.metrics", *(f"redis.{step}" for step in _STEPS))
_TIMES_KEPT = 1028
_PERCENTILES = {"_75th": 0.75, "_95th": 0.95, "_98th": 0.98, "_99th": 0.99, "_999th": 0.999}

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_INSTANCES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

# Prometheus has a label `job` of its own.
_JOB = ("model", "version", "serving_job")

JobLabels = tuple[str, str, str]
"""Name of a model, its version, and the job that serves it."""

Part = dict[str, Any]
"""Metrics of a process as values of JSON: `families`, see `totals.Families`, and `timers`, see `Timer.part`."""


class Metrics:
    """Counters of one front end.

    Attributes:
        open_requests: Number of HTTP requests being answered.
    """

    def __init__(self) -> None:
        self.open_requests = 0
        self._registry = registry = CollectorRegistry()
        self._timers = {name: Timer() for name in _TIMERS}

        def histogram(name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
            return Histogram(f"cluster_serving_http_{name}", text, labels, buckets=buckets, registry=registry)

        requests = Counter(
            "cluster_serving_http_requests",
            "Requests answered.",
            ("model", "version", "protocol", "status"),
            registry=registry,
        )
        seconds = histogram(
            "request_seconds",
            "Seconds from the headers of a request to its answer.",
            ("model", "version", "protocol"),
            _SECONDS,
        )
        instances = histogram("instances", "Instances in a request.", ("model", "protocol"), _INSTANCES)
        redis = histogram(
            "redis_seconds",
            "Seconds for sending requests (put), for reading results (get), and from the one to the other (wait).",
            ("step",),
            _SECONDS,
        )
        # Looking a label up takes as long as parsing a small request.
        self._requests, self._seconds = cache(requests.labels), cache(seconds.labels)
        self._instances, self._redis = cache(instances.labels), cache(redis.labels)
        # Series begin at 0: `increase` of Prometheus does not see the first event of a new one.
        for step in _STEPS:
            self._redis(step)
        self._gauges = {
            name: Gauge(f"cluster_serving_http_{name}", text, registry=registry)
            for name, text in (
                ("in_flight", "Instances that were sent to a job and are not answered."),
                ("waiting", "Instances that wait for a place in flight (parallelism)."),
                ("open_requests", "Requests that are being answered."),
            )
        }

    def answered(self, protocol: str, model: str, status: int, seconds: float, version: str = "") -> None:
        """Count an answered request to the API `protocol`.

        `model` is empty for a request that concerns no model, and `version` for one that no version of it answered.
        """
        self._requests(model, version, protocol, str(status)).inc()
        self._timers["request.overall"].update(seconds)
        if protocol == "metrics":
            self._timers["request.metrics"].update(seconds)
        if model:
            self._seconds(model, version, protocol).observe(seconds)
            self._timers["request.predict"].update(seconds)

    def asked(self, protocol: str, model: str, instances: int) -> None:
        """Count the instances of a request."""
        self._instances(model, protocol).observe(instances)

    def redis(self, step: str, seconds: float) -> None:
        """Count a step of the dispatcher; see `observe` of `client.dispatching.dispatcher.Dispatcher`."""
        self._timers[f"redis.{step}"].update(seconds)
        self._redis(step).observe(seconds)

    def part(self, in_flight: int, waiting: int) -> Part:
        """Return the metrics of this process."""
        self._gauges["in_flight"].set(in_flight)
        self._gauges["waiting"].set(waiting)
        self._gauges["open_requests"].set(self.open_requests)
        return {
            "families": totals.families(self._registry),
            "timers": {name: timer.part() for name, timer in self._timers.items()},
        }


def total(parts: Sequence[Part]) -> Part:
    """Return the metrics of several processes together."""
    return {
        "families": totals.total(part["families"] for part in parts),
        "timers": {name: _joined([part["timers"][name] for part in parts]) for name in _TIMERS},
    }


def counted(part: Part) -> Part:
    """Return the metrics of a process that has ended: its counts, without its latest durations."""
    timers = {name: [count, began, []] for name, (count, began, _) in part["timers"].items()}
    return {"families": totals.counted(part["families"]), "timers": timers}


def as_text(part: Part, ready: Mapping[JobLabels, bool]) -> bytes:
    """Return metrics in the text format of Prometheus.

    Args:
        part: Metrics of all processes of the front end.
        ready: True for each job that answers.
    """
    registry = CollectorRegistry()
    gauge = Gauge("cluster_serving_ready", "1 if the job answers, else 0.", _JOB, registry=registry)
    for labels, value in ready.items():
        gauge.labels(*labels).set(value)
    return totals.as_text(part["families"] | totals.families(registry))


def as_json(part: Part) -> list[dict[str, Any]]:
    """Return the list of the original, under the names of all its versions."""
    return [timer_json(f"{prefix}{name}", timer) for prefix in _PREFIXES for name, timer in part["timers"].items()]


class Timer:
    """Durations of one kind, as the original's `/metrics` shows them."""

    def __init__(self) -> None:
        self._count = 0
        self._began = time.monotonic()
        self._latest: deque[float] = deque(maxlen=_TIMES_KEPT)

    def update(self, seconds: float) -> None:
        """Add a duration."""
        self._count += 1
        self._latest.append(seconds)

    def part(self) -> list[Any]:
        """Return the number of durations, the time when they began to be counted, and the latest, in seconds."""
        return [self._count, self._began, list(self._latest)]


def _joined(timers: Sequence[list[Any]]) -> list[Any]:
    counts, began, latest = zip(*timers, strict=True)
    return [sum(counts), min(began), [seconds for part in latest for seconds in part]]


def timer_json(name: str, timer: list[Any]) -> dict[str, str | float]:
    """Return the original's fields: milliseconds, of the latest durations; `meanRate` is per second since start.

    As there, `min` and `max` are whole milliseconds, rounded down.
    """
    count, began, latest = timer
    values = sorted(1000 * seconds for seconds in latest) or [0.0]
    return {
        "name": name,
        "count": count,
        "meanRate": count / max(time.monotonic() - began, 1e-9),
        "min": int(values[0]),
        "max": int(values[-1]),
        "mean": statistics.fmean(values),
        "median": _percentile(values, 0.5),
        "stdDev": statistics.pstdev(values),
        **{f"{name}Percentile": _percentile(values, share) for name, share in _PERCENTILES.items()},
    }


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the ascending values that this share of them, from 0 to 1, does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
