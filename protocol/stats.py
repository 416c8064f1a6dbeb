"""Totals that a job keeps of its work: the Redis hash `<jobName>:stats`.

All slots of a job add to the same fields, and a restart goes on from where they were. Rates are differences of two
looks at them, so whoever looks needs to remember nothing but the look before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LATENCY_BOUNDS_MS = (
    *(1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 40, 50, 70, 100, 140, 200, 300, 400, 500, 700),
    *(1000, 1400, 2000, 3000, 5000, 7000, 10_000, 20_000, 30_000, 60_000),
)
"""Upper bounds of the latencies that are counted together, in milliseconds; what is above the last counts as `inf`."""

BATCH_SIZES = tuple(1 << power for power in range(12))
"""Upper bounds of the sizes of batches that are counted together; what is above the last counts as `inf`."""

SEEN = "seen"
"""Field with the time, by the clock of Redis in milliseconds, at which a slot of the job last gave a sign of life."""

SEEN_EVERY_S = 5.0

SILENT_AFTER_S = 15.0
"""Seconds without a sign of life after which a job is taken for stopped, whatever its slots said last."""

_LATENCY = "latency_ms:"
_BATCH_SIZE = "batch_size:"


def add_batch(
    totals: Counter[str], size: int, failures: int, *, wait_us: int, inference_us: int, write_us: int
) -> None:
    """Count a batch.

    Args:
        totals: Fields of the hash, which grow.
        size: Requests in it.
        failures: Those of them that were answered with an error.
        wait_us: Microseconds that its oldest request had waited before.
        inference_us: Microseconds that it took to compute.
        write_us: Microseconds that it took to write the answers.
    """
    totals["requests"] += size
    totals["failures"] += failures
    totals["batches"] += 1
    totals["wait_us"] += wait_us
    totals["inference_us"] += inference_us
    totals["write_us"] += write_us
    totals[f"{_BATCH_SIZE}{_bound(BATCH_SIZES, size)}"] += 1
    totals[f"{_LATENCY}{_bound(LATENCY_BOUNDS_MS, (wait_us + inference_us + write_us) / 1000)}"] += size


def _bound(bounds: Sequence[int], value: float) -> int | str:
    return "inf" if value > bounds[-1] else bounds[bisect_left(bounds, value)]


@dataclass(frozen=True, slots=True)
class JobStats:
    """The totals of a job.

    Attributes:
        requests: Requests answered.
        failures: Those answered with an error.
        batches: Batches they came in.
        wait_us: Microseconds that the oldest request of each batch had waited before it was computed.
        inference_us: Microseconds that the batches took to compute.
        write_us: Microseconds that it took to write their answers.
        batch_sizes: How many batches had so many requests, but not as few as the bound before; one number per bound,
            and one for those above the last.
        latency_ms: How many requests were in a batch that was done within so many milliseconds of its oldest
            request's arrival, but not within the bound before; one number per bound, and one for those above the last.
        seen_ms: See `SEEN`; None if there was no sign yet.
    """

    requests: int
    failures: int
    batches: int
    wait_us: int
    inference_us: int
    write_us: int
    batch_sizes: tuple[int, ...]
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
            wait_us=total("wait_us"),
            inference_us=total("inference_us"),
            write_us=total("write_us"),
            batch_sizes=tuple(total(f"{_BATCH_SIZE}{bound}") for bound in (*BATCH_SIZES, "inf")),
            latency_ms=tuple(total(f"{_LATENCY}{bound}") for bound in (*LATENCY_BOUNDS_MS, "inf")),
            seen_ms=total(SEEN) or None,
        )
