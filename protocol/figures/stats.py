"""Totals of a job's work, of all its versions and slots: the Redis hash `<jobName>:stats`.

The fields are those of the metrics (`protocol.figures.metrics`). Totals survive a restart. A rate is the difference
between two readings.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import sub
from typing import Any

from cluster_serving.protocol.figures import metrics
from cluster_serving.protocol.figures.metrics import Metric
from cluster_serving.protocol.keys import as_text

LATENCY_BOUNDS_MS = tuple(us // 1000 if us >= 1000 else us / 1000 for us in metrics.REQUEST.bounds)
"""Upper bounds of the latency histograms, in milliseconds; longer latencies count as `inf`."""

BATCH_SIZES = metrics.BATCH_SIZE.bounds
"""Upper bounds of the histogram of batch sizes; larger batches count as `inf`."""

LAST_ANSWER = "answered"
"""Field with the time of the last answers, in milliseconds by the clock of Redis."""


def bound(bounds: Sequence[float], value: float) -> float | str:
    """Return the bound of a histogram that a value counts for, which is part of the name of its field."""
    return "inf" if value > bounds[-1] else bounds[bisect_left(bounds, value)]


def latency_of(counts: Sequence[int], part: float) -> float | None:
    """Return the latency in milliseconds that this part of the requests of a histogram did not exceed.

    It is the next bound of `LATENCY_BOUNDS_MS`: infinite for latencies beyond all bounds, None if there was no request.
    """
    total = sum(counts)
    if not total:
        return None
    seen = 0
    for limit, count in zip((*LATENCY_BOUNDS_MS, float("inf")), counts):
        seen += count
        if seen >= part * total:
            return limit
    return float("inf")


@dataclass(frozen=True)
class JobStats:
    """The totals of a job, where each record counts as a request.

    Attributes:
        requests: Number of answered requests.
        failures: Number of requests that were answered with an error.
        codes: Number of failures by the code of the error.
        batches: Number of batches.
        compute_us: Microseconds of computing the batches.
        write_us: Microseconds of writing the answers of the batches.
        request_wait_us: Microseconds in the queue, with the time of the oldest in a batch counted for each.
        request_compute_us: As `compute_us`, with the time of a batch counted for each of its requests.
        request_us: Microseconds from arrival to answer, counted likewise.
        failure_us: As `request_us`, of the requests that were answered with an error.
        batch_sizes: Number of batches by size: one number per bound of `BATCH_SIZES`, and one for larger batches.
        latency_ms: Number of requests by the time from the arrival of the oldest request in their batch to its answer:
            one number per bound of `LATENCY_BOUNDS_MS`, and one for longer times.
        wait_ms: As `latency_ms`, by the time until their batch was computed.
        answered_ms: See `LAST_ANSWER`; 0 before the first answer.
        requests_in: Number of entries that slots have read.
        records_in: Number of records in these.
    """

    requests: int
    failures: int
    codes: Mapping[str, int]
    batches: int
    compute_us: int
    write_us: int
    request_wait_us: int
    request_compute_us: int
    request_us: int
    failure_us: int
    batch_sizes: tuple[int, ...]
    latency_ms: tuple[int, ...]
    wait_ms: tuple[int, ...]
    answered_ms: int
    requests_in: int
    records_in: int

    @classmethod
    def read(cls, hash: Mapping[bytes, bytes] | Mapping[str, str] | Mapping[str, int]) -> JobStats:
        """Read the hash, as Redis gives it; all totals of a missing hash are 0."""
        texts = {as_text(name): value for name, value in hash.items()}

        def total(name: str) -> int:
            return int(texts.get(name, 0))

        def counts(metric: Metric) -> tuple[int, ...]:
            return tuple(map(total, metric.fields))

        prefix = f"{metrics.FAILED.name}:"
        codes = {name.removeprefix(prefix): total(name) for name in sorted(texts) if name.startswith(prefix)}
        failures, sizes = sum(codes.values()), counts(metrics.BATCH_SIZE)
        return cls(
            requests=total(metrics.ANSWERED.name) + failures,
            failures=failures,
            codes=codes,
            batches=sum(sizes),
            compute_us=total(metrics.COMPUTE.sum),
            write_us=total(metrics.WRITE.sum),
            request_wait_us=total(metrics.QUEUE_WAIT.sum),
            request_compute_us=total(metrics.RECORD_COMPUTE.name),
            request_us=total(metrics.REQUEST.sum),
            failure_us=total(metrics.FAILED_TIME.name),
            batch_sizes=sizes,
            latency_ms=counts(metrics.REQUEST),
            wait_ms=counts(metrics.QUEUE_WAIT),
            answered_ms=total(LAST_ANSWER),
            requests_in=total(metrics.REQUESTS_IN.name),
            records_in=total(metrics.RECORDS_IN.name),
        )

    def __sub__(self, earlier: JobStats) -> JobStats:
        """Return what came after an earlier reading; `answered_ms` stays that of this one."""
        return JobStats(
            **{
                each.name: _less(getattr(self, each.name), getattr(earlier, each.name))
                for each in fields(self)
                if each.name != "answered_ms"
            },
            answered_ms=self.answered_ms,
        )

    def latency(self, part: float) -> float | None:
        """Return the latency of the requests; see `latency_of`."""
        return latency_of(self.latency_ms, part)


def _less(now: Any, earlier: Any) -> Any:
    if isinstance(now, tuple):
        return tuple(map(sub, now, earlier))
    if isinstance(now, Mapping):
        return {key: count - earlier.get(key, 0) for key, count in now.items()}
    return now - earlier
