"""Records of a generator process about each request, at little cost."""

import threading
import time
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from cluster_serving.bench.load.stats import Samples
from cluster_serving.bench.load.tally import LoadTally
from cluster_serving.bench.load.target import Failed
from cluster_serving.protocol.inputs import Array


class Checker:
    """Compares answers with reference answers, the ones that each request got when it was alone.

    An engine may round differently in a batch, so an answer need not equal its reference. It must be closer to its
    reference than half of the distance between any two references. If two references are equal, mixed-up answers
    look like right ones, and nothing is checked.

    Args:
        references: One answer per different request, flat.
    """

    def __init__(self, references: Sequence[Array]) -> None:
        self._references = [np.asarray(reference, "f8").ravel() for reference in references]
        distances = [_distance(a, b) for index, a in enumerate(self._references) for b in self._references[index + 1 :]]
        self.margin = min(distances, default=0.0) / 2

    @property
    def is_possible(self) -> bool:
        """True if the references differ."""
        return self.margin > 0

    def is_right(self, variant: int, answer: Array) -> bool:
        """Compare the answer to request `variant` with its reference."""
        return _distance(np.asarray(answer, "f8").ravel(), self._references[variant]) < self.margin


def _distance(a: Array, b: Array) -> float:
    if a.shape != b.shape or not a.size:
        return float("inf") if a.shape != b.shape else 0.0
    with np.errstate(invalid="ignore"):
        distance = float(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b)).max())
    return distance if np.isfinite(distance) else float("inf")


class LoadRecorder:
    """Counts, times and checks requests; threads may share it.

    Args:
        variants: Number of different requests, which are sent in turn.
        limit: Requests to send; None: until `stop`.
        checker: Compares the answers, if that is possible.
        check_every: One answer in so many is checked.
    """

    def __init__(self, variants: int, limit: int | None, checker: Checker, check_every: int) -> None:
        self.tally = LoadTally()
        self._variants = variants
        self._limit = limit
        self._checker = checker
        self._check_every = check_every
        self._open: set[Hashable] = set()
        self._finished: list[float] = []
        self._seconds: list[float] = []
        self._told = 0
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def wants_more(self) -> bool:
        """True if another request is to be sent."""
        return not self._stopped and (self._limit is None or self.tally.sent < self._limit)

    def stop(self) -> None:
        """Send no more requests; those in flight are waited for."""
        self._stopped = True

    def send(self, name: Hashable | None = None) -> tuple[Hashable, int] | None:
        """Return the name (a number unless given) and variant of the next request; None if no more are wanted."""
        with self._lock:
            if not self.wants_more:
                return None
            index = self.tally.sent
            name = index if name is None else name
            self.tally.sent += 1
            self._open.add(name)
            return name, index % self._variants

    def answered(self, name: Hashable, started: float, variant: int, read: Callable[[], Array]) -> None:
        """Record an answer to a request that was sent, or was due, at `started` (`time.perf_counter`).

        `read` returns the numbers of the answer, or raises `Failed`. It is called only if the answer is to be checked.
        """
        now = time.perf_counter()
        right = None
        if self._checker.is_possible and self.tally.answered % self._check_every == 0:
            try:
                right = self._checker.is_right(variant, read())
            except Failed as error:
                self.failed(name, str(error))
                return
            except Exception:
                right = False
        with self._lock:
            if name not in self._open:
                self.tally.repeated += 1
                return
            self._open.remove(name)
            self.tally.answered += 1
            self._finished.append(now)
            self._seconds.append(now - started)
            if right is not None:
                self.tally.checked += 1
                self.tally.wrong += not right

    def failed(self, name: Hashable, code: str) -> None:
        """Record an error that came instead of a result."""
        with self._lock:
            self._open.discard(name)
            self.tally.errors[code] += 1

    def lost(self, name: Hashable) -> None:
        """Record that the sender has stopped waiting for an answer."""
        with self._lock:
            self._open.discard(name)

    def take(self) -> tuple[Samples, int]:
        """Return finish times and latencies in seconds since the last call (2, n), and the number of requests sent."""
        with self._lock:
            samples, sent = [self._finished, self._seconds], self.tally.sent - self._told
            self._finished, self._seconds, self._told = [], [], self.tally.sent
        return np.asarray(samples, "f8"), sent
