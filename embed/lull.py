"""Turns of a client that computes only what a job has no other requests for, without Redis and without a clock."""

from __future__ import annotations

_LOOK_S = 0.005
_LONGEST_S = 0.5
_USED_S = 10.0
"""Seconds for which a job counts as used by others after their latest request."""

_SHORT_S = 0.01
"""Seconds by which a batch may delay requests of others; the batch that follows a longer one is smaller."""


class Lull:
    """Decides when the next batch may be sent.

    While others use the job, one batch at a time is sent, none while their requests wait, and batches take `share` of
    the time at most. So of a hundred requests of others, one meets a batch if the share is 0.01. It is small, so that
    this one does not wait long.

    Args:
        share: Above 0, and at most 1.

    Attributes:
        is_used: True if others used the job when `pause` was called.
    """

    def __init__(self, share: float) -> None:
        self._rest = 1 / share - 1
        self._read: object = None
        self._waiting = 0
        self._sent_at: float | None = None
        self._used_until = self._rests_until = float("-inf")
        self._size = 1
        self.is_used = False

    def look(self, now: float, read: object, waiting: int) -> None:
        """Take note of the latest requests of others that the job has read, and of how many are not answered."""
        if waiting or self._read not in (None, read):
            self._used_until = now + _USED_S
        self._read, self._waiting = read, waiting

    def pause(self, now: float, in_flight: int) -> float:
        """Return the seconds until the next look, or 0 if a batch is sent now; `in_flight` are own requests."""
        self.is_used = now < self._used_until
        if self.is_used:
            if in_flight:
                return _LOOK_S
            if self._sent_at is not None:
                self._note(now, now - self._sent_at)
            if now < self._rests_until:
                return min(self._rests_until - now, _LONGEST_S)
            if self._waiting:
                return _LOOK_S
        self._sent_at = now
        return 0.0

    def size(self, most: int) -> int:
        """Return the number of records of the batch that is sent now."""
        if not self.is_used:
            return most
        self._size = min(self._size, most)
        return self._size

    def _note(self, now: float, took: float) -> None:
        self._rests_until, self._sent_at = now + took * self._rest, None
        self._size = 2 * self._size if took <= _SHORT_S else max(1, self._size // 2)
