"""Deadlines: requests that have waited too long are answered with an error instead of being computed."""

from collections.abc import Iterable

from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import DeadlineExceeded

_MAX_DIGITS = 15


class Deadlines:
    """Check of the deadlines of requests.

    A deadline counts from the time at which Redis took the request, by the clock of Redis. The clocks of clients and of
    this machine do not matter.

    Args:
        clock: The clock of Redis; not read for requests without a deadline.
        default_ms: Milliseconds that a request without a deadline of its own may wait; 0 for no limit.
    """

    def __init__(self, clock: RedisClock, default_ms: int) -> None:
        self._clock = clock
        self._default_ms = default_ms

    def expired(self, entries: Iterable[Entry]) -> dict[tuple[str, bytes], DeadlineExceeded]:
        """Return the error of each request that has expired, by its place."""
        late = [entry for entry in entries if self._has_expired(entry)]
        # Read the clock again before a request is dropped: Redis may have failed over to a machine with another clock.
        # While Redis does not answer, no request is dropped.
        if not late or not self._clock.refresh():
            return {}
        return {entry.place: self._error(entry) for entry in late if self._has_expired(entry)}

    def _has_expired(self, entry: Entry) -> bool:
        if not (allowed := self._allowed_ms(entry)):
            return False
        waited = self._clock.waited_ms(entry.queued_ms)
        return waited is not None and waited > allowed

    def _error(self, entry: Entry) -> DeadlineExceeded:
        waited = self._clock.waited_ms(entry.queued_ms) or 0
        return DeadlineExceeded(
            f"the request waited for {waited:.0f} ms and may wait for {self._allowed_ms(entry)} ms; it was not computed"
        )

    def _allowed_ms(self, entry: Entry) -> int:
        deadline = entry.deadline
        if not deadline:
            return self._default_ms
        # One that cannot be read is refused when the request is decoded.
        return int(deadline) if deadline.isdigit() and len(deadline) <= _MAX_DIGITS else 0
