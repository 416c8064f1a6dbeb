"""Turns of a client that computes only what a job has no other requests for, without Redis and without a clock."""

from __future__ import annotations

_LOOK_S = 0.005
_LONGEST_S = 0.5
_USED_S = 10.0
"""Seconds for which a job counts as used by others after their latest request."""


class Lull:
    """Decides when the next batch may be sent.

    While others use the job, one batch at a time is sent, none while their requests wait, and batches take `share` of
    the time at most. So of a hundred requests of others, one meets a batch if the share is 0.01.

    Args:
        share: Above 0, and at most 1.
    """

    def __init__(self, share: float) -> None:
        self._rest = 1 / share - 1
        self._read: object = None
        self._waiting = 0
        self._sent_at: float | None = None
        self._used_until = self._rests_until = float("-inf")

    def look(self, now: float, read: object, waiting: int) -> None:
        """Take note of the latest requests of others that the job has read, and of how many are not answered."""
        if waiting or self._read not in (None, read):
            self._used_until = now + _USED_S
        self._read, self._waiting = read, waiting

    def pause(self, now: float, in_flight: int) -> float:
        """Return the seconds until the next look, or 0 if a batch is sent now; `in_flight` are own requests."""
        if now < self._used_until:
            if in_flight:
                return _LOOK_S
            if self._sent_at is not None:
                self._rests_until, self._sent_at = now + (now - self._sent_at) * self._rest, None
            if self._waiting:
                return _LOOK_S
            if now < self._rests_until:
                return min(self._rests_until - now, _LONGEST_S)
        self._sent_at = now
        return 0.0
