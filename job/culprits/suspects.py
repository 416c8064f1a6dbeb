"""Requests that are computed behind new batches, at low weight: of failed batches, and of clients that send them."""

import time
from collections import deque
from collections.abc import Callable, Sequence

from cluster_serving.connectors.slot.answer import Answer
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.job.computation import Computation, Steps
from cluster_serving.job.request import Request

_WEIGHT = 0.25
"""Time for the search, as a part of the time that new batches take."""

_MOST_CREDIT_S = 1.0
# Of the requests that a slot may hold unanswered.
_MOST_HELD = 0.5
_MOST_PUT_OFF = 0.25


class SuspectBatch:
    """A batch whose culprits are searched, because it has failed or probably will.

    Args:
        requests: Requests of the batch.
        steps: Steps that compute it.
    """

    def __init__(self, requests: Sequence[Request], steps: Steps[Answer]) -> None:
        self.requests = requests
        self._steps = steps
        self._answered: set[int] = set()
        self.ended = False

    @property
    def left(self) -> list[Request]:
        """The requests without an answer."""
        return [request for index, request in enumerate(self.requests) if index not in self._answered]

    def step(self) -> tuple[list[Answer], float]:
        """Go on with the search, by one call of the model at most; return its answers and its seconds."""
        began = time.monotonic()
        found: dict[int, Answer] | None = {}
        try:
            found = next(self._steps)
        except StopIteration:
            self.ended = True
        answers = found or {}
        self._answered.update(answers)
        return [answers[index] for index in sorted(answers)], time.monotonic() - began


class Suspects:
    """The batches of a slot that have failed, and those of clients whose requests make batches fail.

    While new requests wait, the search may take a quarter of the time that they take. Otherwise it goes on until new
    ones come. If it holds half of the requests that the slot may hold, it no longer waits.
    """

    def __init__(self) -> None:
        self._waiting: deque[SuspectBatch] = deque()
        self._held = 0
        self._credit = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, computation: Computation[Answer], count: int, seconds: float) -> None:
        """Take note of a new batch, which took so many seconds, and of its `count` requests without an answer."""
        self._credit = min(self._credit + _WEIGHT * seconds, _MOST_CREDIT_S)
        if computation.search is not None:
            self._hold(SuspectBatch(computation.requests, computation.search), count)

    def put_off(self, requests: Sequence[Request], steps: Steps[Answer]) -> None:
        """Take a batch of a client whose requests make batches fail, which `steps` compute."""
        self._hold(SuspectBatch(requests, steps), len(requests))

    def regroup(self, key: Callable[[Request], str], steps: Callable[[Sequence[Request]], Steps[Answer]]) -> None:
        """Search anew among the requests without an answer, those of one key together; those of the key "" go first."""
        for _ in range(len(self._waiting)):
            groups: dict[str, list[Request]] = {}
            for request in self._waiting.popleft().left:
                groups.setdefault(key(request), []).append(request)
            for name in sorted(groups):
                self._waiting.append(SuspectBatch(groups[name], steps(groups[name])))

    def room(self, flow: SlotFlowControl) -> int:
        """Return how many more requests can be put off, so that the search for culprits still waits for new ones."""
        return max(0 if self._held else 1, int(_MOST_PUT_OFF * flow.limit) - self._held)

    def next(self, flow: SlotFlowControl | None) -> SuspectBatch | None:
        """Return the batch whose search goes on; None if there is none, or new requests go first."""
        waits = (
            flow is not None
            and bool(self._waiting)
            and flow.more
            and self._credit <= 0
            and self._held < _MOST_HELD * flow.limit
        )
        if flow is not None:
            flow.searches = waits
        return None if waits or not self._waiting else self._waiting.popleft()

    def took(self, suspect: SuspectBatch, answered: int, seconds: float) -> None:
        """Take note of a step of a search, and of the requests that it has answered."""
        self._credit = max(self._credit - seconds, -_MOST_CREDIT_S)
        self._held -= answered
        if not suspect.ended:
            self._waiting.append(suspect)

    def _hold(self, suspect: SuspectBatch, count: int) -> None:
        self._waiting.append(suspect)
        self._held += count
