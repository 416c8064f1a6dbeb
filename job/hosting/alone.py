"""Calls of the slots in this process: a request that may have ended a process is computed while no other one is.

Otherwise requests of other models, computed in that moment, would be blamed for the next death, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_S = 5.0
"""Seconds after which a call is no longer waited for: it may hang."""


class Calls:
    """Batches that are computed in this process by the slots of jobs of several models."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone: object | None = None

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Compute beside other slots, once none computes alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._alone is None, _LONGEST_S)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Compute while no other slot does."""
        own = object()
        with self._changed:
            self._changed.wait_for(lambda: self._alone is None, _LONGEST_S)
            self._alone = own
            self._changed.wait_for(lambda: not self._running, _LONGEST_S)
        try:
            yield
        finally:
            with self._changed:
                if self._alone is own:
                    self._alone = None
                self._changed.notify_all()


CALLS = Calls()
"""Those of this process."""
