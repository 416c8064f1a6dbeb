"""Metrics of the front end, for Prometheus and in the JSON of the original."""

import math
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

_PREFIXES = ("bigdl.serving.", "zoo.serving.")
"""Prefixes of the original's names: from 2.0 on, and before."""

_TIMERS = ("request.overall", "request.predict", "request.metrics", "redis.put", "redis.get", "redis.wait")
_TIMES_KEPT = 1028
_PERCENTILES = {"_75th": 0.75, "_95th": 0.95, "_98th": 0.98, "_99th": 0.99, "_999th": 0.999}

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_INSTANCES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

_JOB = ("model", "version", "job")

JobLabels = tuple[str, str, str]
"""Name of a model, its version, and the job that serves it."""


class Metrics:
    """Counters of one front end.

    Attributes:
        open_requests: Number of HTTP requests being answered.
    """

    def __init__(self) -> None:
        self.open_requests = 0
        self._registry = registry = CollectorRegistry()
        self._timers = {name: Timer(name) for name in _TIMERS}

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
            "Seconds for sending requests (put), fetching results (get), and from the one to the other (wait).",
            ("step",),
            _SECONDS,
        )
        # Looking a label up takes as long as parsing a small request.
        self._requests, self._seconds = cache(requests.labels), cache(seconds.labels)
        self._instances, self._redis = cache(instances.labels), cache(redis.labels)
        self._gauges = {
            name: Gauge(f"cluster_serving_{name}", text, labels, registry=registry)
            for name, text, labels in (
                ("http_in_flight", "Instances that were sent to a job and are not answered.", ()),
                ("http_waiting", "Instances that wait for a place in flight (parallelism).", ()),
                ("http_open_requests", "Requests that are being answered.", ()),
                ("queue_length", "Requests in the streams of a job.", _JOB),
                ("ready", "1 if the job answers, else 0.", _JOB),
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
        """Count a step of the dispatcher; see `observe` of `client.dispatcher.Dispatcher`."""
        self._timers[f"redis.{step}"].update(seconds)
        self._redis(step).observe(seconds)

    def as_text(
        self, in_flight: int, waiting: int, queues: Mapping[JobLabels, int], ready: Mapping[JobLabels, bool]
    ) -> bytes:
        """Return the metrics in the text format of Prometheus; `queues` has the number of requests in the streams."""
        self._gauges["http_in_flight"].set(in_flight)
        self._gauges["http_waiting"].set(waiting)
        self._gauges["http_open_requests"].set(self.open_requests)
        for name, values in (("queue_length", queues), ("ready", ready)):
            self._gauges[name].clear()
            for labels, value in values.items():
                self._gauges[name].labels(*labels).set(value)
        return generate_latest(self._registry)

    def as_json(self) -> list[dict[str, Any]]:
        """Return the list of the original, under the names of all its versions."""
        return [timer.as_json(prefix) for prefix in _PREFIXES for timer in self._timers.values()]


class Timer:
    """Durations of one kind, as the original's `/metrics` shows them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self._began = time.monotonic()
        self._latest: deque[float] = deque(maxlen=_TIMES_KEPT)

    def update(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self._latest.append(seconds)

    def as_json(self, prefix: str) -> dict[str, str | float]:
        """Return the original's fields: milliseconds, of the latest durations; `meanRate` is per second since start.

        As there, `min` and `max` are whole milliseconds, rounded down.
        """
        values = sorted(1000 * seconds for seconds in self._latest) or [0.0]
        return {
            "name": f"{prefix}{self.name}",
            "count": self.count,
            "meanRate": self.count / max(time.monotonic() - self._began, 1e-9),
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
