"""What clients saw during a change of a job: requests answered, failures, and the longest wait."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.stats import LATENCY_BOUNDS_MS


@dataclass(frozen=True, slots=True)
class Figures:
    """The totals of a job, or the difference of two of them.

    Attributes:
        time: Time in seconds, of `time.monotonic`; of a difference, the seconds between both.
        requests: Number of answered requests.
        failures: Number of those answered with an error.
        latency_ms: As in `JobStats`.
    """

    time: float
    requests: int
    failures: int
    latency_ms: tuple[int, ...]

    @classmethod
    def begin(cls, store: JobStore) -> Figures:
        """Return the totals of a job now."""
        stats = store.stats()
        return cls(time.monotonic(), stats.requests, stats.failures, stats.latency_ms)

    def end(self, store: JobStore) -> Figures:
        """Return the difference of the totals now to these."""
        now = Figures.begin(store)
        latencies = tuple(after - before for after, before in zip(now.latency_ms, self.latency_ms, strict=True))
        return Figures(now.time - self.time, now.requests - self.requests, now.failures - self.failures, latencies)

    def __str__(self) -> str:
        """Return the figures of a change in words."""
        told = f"{self.requests} request{'s' * (self.requests != 1)} answered in {self.time:.0f} s"
        if self.failures:
            told += f", {self.failures} of them with an error"
        longest = max((index for index, count in enumerate(self.latency_ms) if count), default=None)
        if longest is None:
            return told
        if longest == len(LATENCY_BOUNDS_MS):
            return f"{told}; the longest wait was more than {LATENCY_BOUNDS_MS[-1] / 1000:g} s"
        return f"{told}; the longest wait was at most {LATENCY_BOUNDS_MS[longest]} ms"
