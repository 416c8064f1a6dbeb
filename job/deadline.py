"""Requests that waited too long are not computed: nobody waits for them any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cluster_serving.client.errors import DeadlineExceeded
from cluster_serving.connectors.redis_clock import RedisClock
from cluster_serving.job.request import Request


class Deadlines:
    """Finds the requests of a batch whose deadline has passed.

    A deadline is counted from the time at which Redis took the request, by the clock of Redis, so the clocks of
    clients and of this machine do not matter.

    Args:
        clock: The clock of Redis; not asked for requests without a deadline.
        default_ms: Milliseconds that a request without a deadline of its own may wait; 0 for no limit.
    """

    def __init__(self, clock: RedisClock, default_ms: int) -> None:
        self._clock = clock
        self._default_ms = default_ms

    def check(self, requests: Sequence[Request]) -> tuple[Sequence[Request], int]:
        """Give each expired request its error.

        Returns:
            The requests in their order, and how many of them have expired.
        """
        if not self._default_ms and not any(request.entry.deadline for request in requests):
            return requests, 0
        now = self._clock.now_ms()
        if now is None:
            return requests, 0
        checked = [self._check(request, now) for request in requests]
        return checked, sum(before is not after for before, after in zip(requests, checked, strict=True))

    def _check(self, request: Request, now_ms: float) -> Request:
        if request.error is not None:
            return request
        entry = request.entry
        allowed = int(entry.deadline) if entry.deadline else self._default_ms
        waited = now_ms - entry.queued_ms
        if not allowed or waited <= allowed:
            return request
        error = DeadlineExceeded(
            f"the request waited for {waited:.0f} ms and may wait for {allowed} ms; it was not computed"
        )
        return replace(request, error=error)
