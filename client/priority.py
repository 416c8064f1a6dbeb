"""The streams of a job: one for each priority, all with the same consumer group."""

from __future__ import annotations

PRIORITIES = ("high", "normal", "low")
"""Best first. Clients that know no priorities use `normal`."""

NORMAL = "normal"


def stream_of(job: str, priority: str) -> str:
    """Stream of the requests of a priority; for `normal` it has the name of the job."""
    return job if priority == NORMAL else f"{job}:{priority}"


def streams_of(job: str) -> list[str]:
    """All streams of a job, in the order of `PRIORITIES`."""
    return [stream_of(job, priority) for priority in PRIORITIES]
