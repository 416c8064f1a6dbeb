"""Requests whose computation has started."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.batch import Arrays
from cluster_serving.job.models.base import Started
from cluster_serving.job.request import Request
from cluster_serving.protocol.errors import ServingError

Steps = Iterator[dict[int, Answer] | None]
"""Answers by the index of their request, as soon as they are known; None after a call that has failed."""

_WAIT_S = 60.0


def begin(steps: Steps) -> tuple[dict[int, Answer], Steps | None]:
    """Take steps up to the first failure; return the answers, and the remaining steps if there was one."""
    answers: dict[int, Answer] = {}
    for step in steps:
        if step is None:
            return answers, steps
        answers |= step
    return answers, None


@dataclass(slots=True)
class Computation:
    """Requests that are being computed.

    Attributes:
        requests: All requests, in order.
        known: Answers that are known already, by index of their request.
        started: Records of the other requests, by index.
        to_answer: Makes an answer of a request and its outputs, or its error.
        search: Steps of the search for the culprits of a failed batch, as `batch.search` has them; None if none failed.
    """

    requests: Sequence[Request]
    known: dict[int, Answer]
    started: dict[int, Started]
    to_answer: Callable[[Request, Arrays | ServingError], Answer]
    search: Steps | None = None

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds; return True if all requests are computed."""
        # Wait for the last record first: a wait for each in turn wakes this thread for each, and delays the next one.
        return all(record.wait(seconds) for record in reversed(self.started.values()))

    def answers(self) -> list[Answer]:
        """Wait for the answers in the order of the requests; an `exhausted` process has those of computed ones only."""
        for step in self.search or ():
            self.known |= step or {}
        self.search = None
        return self.ready()

    def ready(self) -> list[Answer]:
        """Wait for the answers that need no `search`, in the order of the requests."""
        while not self.wait(_WAIT_S):
            pass
        for index, record in self.started.items():
            try:
                result: Arrays | ServingError = record.outputs()
            except ServingError as error:
                result = error
            self.known[index] = self.to_answer(self.requests[index], result)
        return [self.known[index] for index in sorted(self.known)]
