"""A limit on lines of a log that clients may cause, with the number of those that are left out."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable

_MOST_KINDS = 256
_SECONDS = 60.0


class LogLimit:
    """Takes so many lines of each kind in a minute; any thread may ask.

    Args:
        most: Most lines of a kind in a minute.
    """

    def __init__(self, most: int = 60) -> None:
        self._most = most
        self._lock = threading.Lock()
        # Kind → begin of its time, lines that were written in it, and lines that were left out.
        self._kinds: dict[Hashable, tuple[float, int, int]] = {}

    def take(self, kind: Hashable) -> str | None:
        """Return what a line of this kind ends with, which tells how many were left out; None to leave it out."""
        now = time.monotonic()
        with self._lock:
            began, written, left_out = self._kinds.pop(kind, (now, 0, 0))
            if now - began >= _SECONDS:
                began, written = now, 0
            full = written >= self._most
            self._kinds[kind] = (began, written, left_out + 1) if full else (began, written + 1, 0)
            if len(self._kinds) > _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
        return None if full else f" ({left_out} more since the last line)" if left_out else ""
