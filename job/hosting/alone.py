"""Calls of the slots in this process: a request that may have ended a process is computed while no other one is.

Otherwise requests of other models, computed in that moment, would be blamed for the next death, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_S = 5.0
"""Seconds for which a call is waited for, once: it may hang, or be that of a slow model."""


class Calls:
    """Batches that are computed in this process by the slots of jobs of several models.

    A call that others have waited for in vain counts no more: each further one would wait for it as long.

    Args:
        longest: Seconds for which a call is waited for.
    """

    def __init__(self, longest: float = _LONGEST_S) -> None:
        self._longest = longest
        self._changed = threading.Condition()
        self._running: set[object] = set()
        self._alone: object | None = None

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Compute beside other slots, once none computes alone."""
        own = object()
        with self._changed:
            self._wait_for_one()
            self._running.add(own)
        try:
            yield
        finally:
            with self._changed:
                self._running.discard(own)
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Compute while no other slot does."""
        own = object()
        with self._changed:
            self._wait_for_one()
            self._alone = own
            awaited = set(self._running)
            if not self._changed.wait_for(lambda: not self._running, self._longest):
                self._running -= awaited
        try:
            yield
        finally:
            with self._changed:
                if self._alone is own:
                    self._alone = None
                self._changed.notify_all()

    def _wait_for_one(self) -> None:
        """Wait until no call is made alone."""
        awaited = self._alone
        if not self._changed.wait_for(lambda: self._alone is None, self._longest) and self._alone is awaited:
            self._alone = None
            self._changed.notify_all()


CALLS = Calls()
"""Those of this process."""
