"""What a generator process writes down about each request, at little cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

import numpy as np

from cluster_serving.bench.load.check import Checker
from cluster_serving.bench.load.stats import Samples
from cluster_serving.bench.load.tally import Tally
from cluster_serving.bench.load.target import Failed
from cluster_serving.protocol.inputs import Array


class Recorder:
    """Counts, times and checks requests; threads may share it.

    Args:
        variants: Number of different requests; they are sent in turns.
        limit: Requests to send; None: until `stop`.
        checker: Knows the right answers; None checks nothing.
        check_every: One answer in so many is checked.
    """

    def __init__(self, variants: int, limit: int | None, checker: Checker | None, check_every: int) -> None:
        self.tally = Tally()
        self._variants = variants
        self._limit = limit
        self._checker = checker
        self._check_every = check_every
        self._finished: list[float] = []
        self._seconds: list[float] = []
        self._lock = threading.Lock()
        self._next = 0
        self._stopped = False

    @property
    def wants_more(self) -> bool:
        """Whether to send another request."""
        return not self._stopped and (self._limit is None or self._next < self._limit)

    def stop(self) -> None:
        """Send no more; what is on its way is waited for."""
        self._stopped = True

    def send(self, name: Hashable | None = None) -> tuple[Hashable, int] | None:
        """Take the next request: its name (a number unless given) and variant; None if no more are wanted."""
        with self._lock:
            if not self.wants_more:
                return None
            index = self._next
            self._next += 1
            name = index if name is None else name
            self.tally.send(name)
            return name, index % self._variants

    def answered(self, name: Hashable, started: float, variant: int, read: Callable[[], Array]) -> None:
        """An answer came; it is looked at only if it is to be checked.

        Args:
            name: Of the request.
            started: When it was sent, or was due (`time.perf_counter`).
            variant: Of the request.
            read: Gives the numbers of the answer, or raises `Failed`.
        """
        now = time.perf_counter()
        with self._lock:
            is_checked = self._checker is not None and self.tally.answered % self._check_every == 0
        right = None
        if is_checked and self._checker is not None:
            try:
                right = self._checker.is_right(variant, read())
            except Failed as error:
                self.failed(name, str(error))
                return
            except Exception:
                right = False
        with self._lock:
            if self.tally.answer(name):
                self._finished.append(now)
                self._seconds.append(now - started)
                if right is not None:
                    self.tally.check(right)

    def failed(self, name: Hashable, code: str) -> None:
        """An error came."""
        with self._lock:
            self.tally.fail(name, code)

    def lost(self, name: Hashable) -> None:
        """Nothing came."""
        with self._lock:
            self.tally.lose(name)

    def take(self) -> tuple[Samples, Samples, int]:
        """When the requests since the last call finished, their latencies in seconds, and how many were sent in all."""
        with self._lock:
            finished, seconds, sent = self._finished, self._seconds, self.tally.sent
            self._finished, self._seconds = [], []
        return np.asarray(finished, "f8"), np.asarray(seconds, "f8"), sent
