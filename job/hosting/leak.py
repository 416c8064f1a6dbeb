"""Memory that the calls of a model leave in the process: a model that leaks would end the process of all models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cluster_serving.job.models.batched.growth import limit
from cluster_serving.protocol.host.memory import resident

_SHARE = 2
"""A model may leave this part of the memory that is free when it is loaded."""

_CALLS = 100
"""Calls by which a suspicion is confirmed or dropped."""

_MEGABYTE = 1 << 20


class Leak:
    """What the calls of one model have left; used by the thread of a slot.

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
        before = self._memory()
        yield
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
