"""Two batches at a time in a model that computes in threads of its own.

While one batch is computed, the answers of the one before are written, and the next one is read, decoded and started.
Knows neither Flink nor Redis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from cluster_serving.connectors.flow_control import Lane
from cluster_serving.job.request import Request

_LOOK_EVERY = 0.001


class _Running(Protocol):
    def wait(self, seconds: float) -> bool:
        """Wait so many seconds at most; says whether it is computed."""


R = TypeVar("R", bound=_Running)


class Overlap(Generic[R]):
    """The batches of one slot that are being computed.

    Args:
        begin: Starts to compute requests; told whether nothing else is being computed.
        threads: Of the model; a batch for less than two records each is not divided.
    """

    def __init__(self, begin: Callable[[Sequence[Request], bool], R], threads: int) -> None:
        self._begin = begin
        self._threads = threads
        self._running: deque[R] = deque()

    def feed(self, requests: Sequence[Request], lane: Lane | None) -> Iterator[R]:
        """Start to compute a batch.

        Args:
            requests: At least one.
            lane: The lane that they came on; None if nothing is known of what comes next.

        Yields:
            The batches to wait for, in order. The last may be missing: if more requests are on their way, which may be
            started before it is computed, it is left to the call for these.
        """
        for part in self._parts(requests, lane):
            self._running.append(self._begin(part, not self._running))
        while self._running:
            if len(self._running) == 1 and lane is not None and self._is_overtaken(lane):
                return
            yield self._running.popleft()

    def _parts(self, requests: Sequence[Request], lane: Lane | None) -> list[Sequence[Request]]:
        """If a batch is all there is to do, halves: clients of the first can go on while the second is computed."""
        if lane is None or lane.more or self._running or len(requests) < 2 * self._threads:
            return [requests]
        middle = len(requests) // 2
        return [requests[:middle], requests[middle:]]

    def _is_overtaken(self, lane: Lane) -> bool:
        while not self._running[0].wait(_LOOK_EVERY):
            if lane.more:
                return True
        return False
