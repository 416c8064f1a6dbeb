"""Totals of a job's work: the Redis hash `<jobName>:stats`.

All slots of a job add to the same fields, and totals survive a restart. A rate is the difference between two readings.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster_serving.protocol.keys import as_text

LATENCY_BOUNDS_MS = (
    *(1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200, 300, 400, 500, 700),
    *(1000, 1400, 2000, 3000, 5000, 7000, 10_000, 20_000, 30_000, 60_000),
)
"""Upper bounds of the latency histogram, in milliseconds; longer latencies count as `inf`."""

BATCH_SIZES = tuple(1 << power for power in range(12))
"""Upper bounds of the histogram of batch sizes; larger batches count as `inf`."""

ANSWERED = "answered"
"""Field with the time of the last answers, in milliseconds by the clock of Redis."""

_LATENCY = "latency_ms:"
_WAIT = "wait_ms:"
_BATCH_SIZE = "batch_size:"
_TOTALS = (
    *("requests", "failures", "batches", "wait_us", "inference_us", "write_us"),
    *("request_wait_us", "request_inference_us", "request_write_us", "failure_us"),
)


def add_batch(
    totals: Counter[str], size: int, failures: int, *, wait_us: int, inference_us: int, write_us: int
) -> None:
    """Add a batch of `size` requests to the totals, by field of the hash; see `JobStats` for the other numbers."""
    totals["requests"] += size
    totals["failures"] += failures
    totals["batches"] += 1
    totals["wait_us"] += wait_us
    totals["inference_us"] += inference_us
    totals["write_us"] += write_us
    totals["request_wait_us"] += size * wait_us
    totals["request_inference_us"] += size * inference_us
    totals["request_write_us"] += size * write_us
    totals["failure_us"] += failures * (wait_us + inference_us + write_us)
    totals[f"{_BATCH_SIZE}{bound(BATCH_SIZES, size)}"] += 1
    totals[f"{_LATENCY}{bound(LATENCY_BOUNDS_MS, (wait_us + inference_us + write_us) / 1000)}"] += size
    totals[f"{_WAIT}{bound(LATENCY_BOUNDS_MS, wait_us / 1000)}"] += size


def bound(bounds: Sequence[int], value: float) -> int | str:
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
    """The totals of a job.

    Attributes:
        requests: Number of answered requests.
        failures: Number of requests that were answered with an error.
        batches: Number of batches.
        wait_us: Microseconds that the oldest request of each batch waited before it was computed.
        inference_us: Microseconds of computing the batches.
        write_us: Microseconds of writing the answers.
        request_wait_us: As `wait_us`, with the time of a batch counted for each of its requests.
        request_inference_us: As `inference_us`, for each request.
        request_write_us: As `write_us`, for each request.
        failure_us: The sum of the three, of the requests that were answered with an error.
        batch_sizes: Number of batches by size: one number per bound of `BATCH_SIZES`, and one for larger batches.
        latency_ms: Number of requests by the time from the arrival of the oldest request in their batch to its answer:
            one number per bound of `LATENCY_BOUNDS_MS`, and one for longer times.
        wait_ms: As `latency_ms`, by the time until their batch was computed.
        answered_ms: See `ANSWERED`; 0 before the first answer.
    """

    requests: int
    failures: int
    batches: int
    wait_us: int
    inference_us: int
    write_us: int
    request_wait_us: int
    request_inference_us: int
    request_write_us: int
    failure_us: int
    batch_sizes: tuple[int, ...]
    latency_ms: tuple[int, ...]
    wait_ms: tuple[int, ...]
    answered_ms: int

    @classmethod
    def read(cls, hash: Mapping[bytes, bytes] | Mapping[str, str]) -> JobStats:
        """Read the hash, as Redis gives it; all totals of a missing hash are 0."""
        texts = {as_text(name): value for name, value in hash.items()}

        def total(name: str) -> int:
            return int(texts.get(name, 0))

        return cls(
            **{name: total(name) for name in _TOTALS},
            batch_sizes=tuple(total(f"{_BATCH_SIZE}{limit}") for limit in (*BATCH_SIZES, "inf")),
            latency_ms=tuple(total(f"{_LATENCY}{limit}") for limit in (*LATENCY_BOUNDS_MS, "inf")),
            wait_ms=tuple(total(f"{_WAIT}{limit}") for limit in (*LATENCY_BOUNDS_MS, "inf")),
            answered_ms=total(ANSWERED),
        )

    def latency(self, part: float) -> float | None:
        """Return the latency of the requests; see `latency_of`."""
        return latency_of(self.latency_ms, part)
