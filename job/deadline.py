"""Deadlines: requests that have waited too long are answered with an error instead of being computed."""

from collections.abc import Sequence

from cluster_serving.connectors.redis import RedisClock
from cluster_serving.job.request import Request
from cluster_serving.protocol.errors import DeadlineExceeded


class Deadlines:
    """Check of the deadlines of a batch.

    A deadline counts from the time at which Redis took the request, by the clock of Redis. The clocks of clients and of
    this machine do not matter.

    Args:
        clock: The clock of Redis; not read for requests without a deadline.
        default_ms: Milliseconds that a request without a deadline of its own may wait; 0 for no limit.
    """

    def __init__(self, clock: RedisClock, default_ms: int) -> None:
        self._clock = clock
        self._default_ms = default_ms

    def check(self, requests: Sequence[Request]) -> tuple[Sequence[Request], int]:
        """Give each expired request its error; return the requests in their order, and how many have expired."""
        if not self._default_ms and not any(request.entry.deadline for request in requests):
            return requests, 0
        # Read the clock again before a request is dropped: Redis may have failed over to a machine with another clock.
        # While Redis does not answer, no request is dropped.
        if not any(map(self._has_expired, requests)) or not self._clock.refresh():
            return requests, 0
        checked = [self._fail(request) if self._has_expired(request) else request for request in requests]
        return checked, sum(before is not after for before, after in zip(requests, checked, strict=True))

    def _has_expired(self, request: Request) -> bool:
        # A request with an error comes first: its deadline may be the part that cannot be read.
        if request.error is not None or not (allowed := self._allowed_ms(request)):
            return False
        waited = self._clock.waited_ms(request.entry.queued_ms)
        return waited is not None and waited > allowed

    def _fail(self, request: Request) -> Request:
        waited, allowed = self._clock.waited_ms(request.entry.queued_ms) or 0, self._allowed_ms(request)
        error = DeadlineExceeded(
            f"the request waited for {waited:.0f} ms and may wait for {allowed} ms; it was not computed"
        )
        return request._replace(error=error)

    def _allowed_ms(self, request: Request) -> int:
        return int(request.entry.deadline) if request.entry.deadline else self._default_ms
