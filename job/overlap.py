"""Overlap of two batches in a model that computes in threads of its own.

While one batch is computed, the answers of the previous one are written, and the next one is read, decoded and started.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.job.request import Request

_POLL_INTERVAL = 0.001


class _Running(Protocol):
    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds; return True if the batch is computed."""


R = TypeVar("R", bound=_Running)


class Overlap(Generic[R]):
    """Batches of one slot that are being computed.

    Args:
        begin: Starts to compute requests; its second argument is True if nothing else is being computed.
        threads: Threads of the model; a batch with less than two records per thread is not divided.
    """

    def __init__(self, begin: Callable[[Sequence[Request], bool], R], threads: int) -> None:
        self._begin = begin
        self._threads = threads
        self._running: deque[R] = deque()

    def feed(self, requests: Sequence[Request], flow: SlotFlowControl | None) -> Iterator[R]:
        """Start to compute a batch, and yield the batches to wait for, in order.

        If more requests are on their way, they may be started before the last batch is computed. The last batch is then
        left to the call for these requests. Without a flow control, nothing is known of the next ones. Without
        requests, nothing is started.
        """
        for part in self._parts(requests, flow):
            self._running.append(self._begin(part, not self._running))
        while self._running:
            if len(self._running) == 1 and flow is not None and self._is_overtaken(flow):
                return
            yield self._running.popleft()

    def _parts(self, requests: Sequence[Request], flow: SlotFlowControl | None) -> list[Sequence[Request]]:
        """Halve a batch that is all there is to do: clients of the first half go on while the second is computed."""
        if not requests:
            return []
        if flow is None or flow.more or self._running or len(requests) < 2 * self._threads:
            return [requests]
        middle = len(requests) // 2
        return [requests[:middle], requests[middle:]]

    def _is_overtaken(self, flow: SlotFlowControl) -> bool:
        """Wait until the batch is computed (return False) or more requests are announced (return True)."""
        while not self._running[0].wait(_POLL_INTERVAL):
            if flow.more:
                return True
        return False
