"""What a job does now: the difference of two readings of its figures."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.keys import GROUP
from cluster_serving.protocol.scripts import BACKLOG, Call, call


@dataclass(frozen=True, slots=True)
class Totals:
    """The figures of a job at one time, in seconds of `time.monotonic`."""

    time: float
    answered: int
    stats: JobStats

    @classmethod
    def of(cls, store: JobStore) -> Totals:
        """Return the figures of a job now."""
        # Slots write their figures once a second, and this counter with each answer.
        answered = sum(int(store.client.get(one.keys.answered) or 0) for one in hosted.stores(store))
        return cls(time.monotonic(), answered, hosted.stats(store))


@dataclass(frozen=True, slots=True)
class Recent:
    """What a job does now.

    Attributes:
        rate: Records answered in a second.
        p50_ms: Half of the records were answered within so many milliseconds; None if there was none, or if it is more
            than a minute. If no slot has written its figures since the first reading, of all records.
        p99_ms: 99 of 100 records were.
        batch_size: Mean number of records in a batch; None if there was none.
        failed: Number of records that were answered with an error, by its code, of all.
        oldest_s: Seconds that the oldest request has waited that no slot has read; 0 if none waits.
    """

    rate: float
    p50_ms: float | None
    p99_ms: float | None
    batch_size: float | None
    failed: Mapping[str, int]
    oldest_s: float

    @classmethod
    def since(cls, before: Totals, store: JobStore) -> Recent:
        """Return what a job has done since an earlier reading."""
        now = Totals.of(store)
        streams = [stream for one in hosted.stores(store) for stream in one.keys.streams]
        _, oldest_ms = call(store.client, Call(BACKLOG, streams, [GROUP]))
        did = now.stats - before.stats
        if not did.requests:
            did = now.stats
        return cls(
            rate=max(0, now.answered - before.answered) / (now.time - before.time),
            p50_ms=finite(did.latency(0.5)),
            p99_ms=finite(did.latency(0.99)),
            batch_size=did.requests / did.batches if did.batches else None,
            failed=dict(now.stats.codes),
            oldest_s=oldest_ms / 1000,
        )


def finite(milliseconds: float | None) -> float | None:
    """Return a latency; None for an infinite one, which JSON does not have."""
    return None if milliseconds == math.inf else milliseconds
