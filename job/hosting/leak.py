"""Memory that the calls of a model leave in the process: a model that leaks would end the process of all models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster_serving.job.models.batched.growth import limit
from cluster_serving.protocol.host.memory import resident

_SHARE = 2
"""A model may leave this part of the memory that is free when it is loaded."""

_CALLS = 100
"""Calls by which a suspicion is confirmed or dropped."""

_MEGABYTE = 1 << 20


class Loads:
    """Loads of models in this process, by any thread: its memory grows by them, and not by calls meanwhile.

    Attributes:
        changes: Number of loads that have begun, and of those that have ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self.changes = 0

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Load a model."""
        self._note(1)
        try:
            yield
        finally:
            self._note(-1)

    def since(self, changes: int) -> bool:
        """Return True if a model is loaded, or has been since `changes` had that value."""
        return self._running > 0 or self.changes != changes

    def _note(self, more: int) -> None:
        with self._lock:
            self._running += more
            self.changes += 1


LOADS = Loads()
"""Those of this process."""


class Leak:
    """What the calls of one model have left; used by the thread of a slot. A call beside a load does not count.

    The process grows by the calls of other slots, too. So a model that seems to have left half of what it may is
    suspected: from then on it should be computed alone, and what it has left is counted anew.

    Args:
        memory: Returns the bytes of memory that the process has.

    Attributes:
        is_suspected: True if the next calls should be the only ones of the process.
    """

    def __init__(self, memory: Callable[[], int] = resident) -> None:
        self._memory = memory
        self._limit = limit(_SHARE)
        self._left = self._calls = 0
        self.is_suspected = False

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure what a call leaves."""
        before, loads = self._memory(), LOADS.changes
        yield
        if LOADS.since(loads):
            return
        # Less than nothing, if the call has given back what earlier ones have left.
        self._left = max(0, self._left + self._memory() - before)
        self._calls += 1
        if self.is_suspected:
            # Memory that others have left, and that is counted here, does not grow any more.
            if self._calls >= _CALLS and self._left < self._limit // 16:
                self._begin(suspected=False)
        elif self._left >= self._limit // 2:
            self._begin(suspected=True)

    @property
    def problem(self) -> str:
        """Why the model is to be put aside, once it has left more memory than it may; else empty."""
        if not self.is_suspected or self._left < self._limit // 2:
            return ""
        left = (self._left + self._limit // 2) // _MEGABYTE
        return (
            f"its calls have left {left:,} MB in the process, a half of the memory that was free when it was loaded: "
            "it leaks, or keeps what it has computed; cluster-serving-restart gives the memory back"
        )

    def _begin(self, suspected: bool) -> None:
        self.is_suspected = suspected
        self._left = self._calls = 0
