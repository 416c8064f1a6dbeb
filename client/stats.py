"""Totals that a job keeps of its work: the Redis hash `<jobName>:stats`.

All slots of a job add to the same fields, and a restart goes on from where they were. Rates are differences of two
looks at them, so whoever looks needs to remember nothing but the look before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

LATENCY_BOUNDS_MS = (
    *(1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200, 300, 400, 500, 700),
    *(1000, 1400, 2000, 3000, 5000, 7000, 10_000, 20_000, 30_000, 60_000),
)
"""Upper bounds of the latencies that are counted together, in milliseconds; what is above the last counts as `inf`."""

SEEN = "seen"
"""Field with the time, by the clock of Redis in milliseconds, at which a slot of the job last gave a sign of life."""

SEEN_EVERY_S = 5.0

SILENT_AFTER_S = 15.0
"""Seconds without a sign of life after which a job is taken for stopped, whatever its slots said last."""

_LATENCY = "latency_ms:"


def add_batch(totals: Counter[str], size: int, failures: int, inference_ms: int, wait_ms: int) -> None:
    """Count a batch.

    Args:
        totals: Fields of the hash, which grow.
        size: Requests in it.
        failures: Those of them that were answered with an error.
        inference_ms: Milliseconds that it took to compute.
        wait_ms: Milliseconds that its oldest request had waited before.
    """
    totals["requests"] += size
    totals["failures"] += failures
    totals["batches"] += 1
    totals["inference_ms"] += inference_ms
    totals["wait_ms"] += wait_ms
    latency = wait_ms + inference_ms
    above = latency > LATENCY_BOUNDS_MS[-1]
    bound = "inf" if above else LATENCY_BOUNDS_MS[bisect_left(LATENCY_BOUNDS_MS, latency)]
    totals[f"{_LATENCY}{bound}"] += size


@dataclass(frozen=True, slots=True)
class JobStats:
    """The totals of a job.

    Attributes:
        requests: Requests answered.
        failures: Those answered with an error.
        batches: Batches they came in.
        inference_ms: Milliseconds that the batches took to compute.
        wait_ms: Milliseconds that the oldest request of each batch had waited before.
        latency_ms: How many requests were in a batch that was done within so many milliseconds of its oldest
            request's arrival, but not within the bound before; one number per bound, and one for those above the last.
        seen_ms: See `SEEN`; None if there was no sign yet.
    """

    requests: int
    failures: int
    batches: int
    inference_ms: int
    wait_ms: int
    latency_ms: tuple[int, ...]
    seen_ms: int | None

    @classmethod
    def read(cls, fields: Mapping[bytes, bytes]) -> JobStats:
        """Read the hash, as Redis gives it; empty if there is none."""

        def total(name: str) -> int:
            return int(fields.get(name.encode(), 0))

        return cls(
            requests=total("requests"),
            failures=total("failures"),
            batches=total("batches"),
            inference_ms=total("inference_ms"),
            wait_ms=total("wait_ms"),
            latency_ms=tuple(total(f"{_LATENCY}{bound}") for bound in (*LATENCY_BOUNDS_MS, "inf")),
            seen_ms=total(SEEN) or None,
        )
