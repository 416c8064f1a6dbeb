"""Time for trials, which other processes of a busy machine do not shorten."""

from __future__ import annotations

import time

_MOST_TIMES = 10


class Budget:
    """A number of seconds of the clock; or more, until this process has computed for as long.

    On a busy machine a process gets a part of each second. By the clock alone, fewer trials would be made there, and a
    dependence be missed.

    Args:
        seconds: The seconds. After ten times as many of the clock, the time is over in any case.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._computed = time.process_time()
        self._began = time.monotonic()

    def has_time(self) -> bool:
        """Return True if there is time left."""
        passed = time.monotonic() - self._began
        if passed < self._seconds:
            return True
        return passed < _MOST_TIMES * self._seconds and time.process_time() - self._computed < self._seconds
