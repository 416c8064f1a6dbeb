"""Requests whose computation has started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.batch import Arrays
from cluster_serving.job.models.base import Started
from cluster_serving.job.request import Request
from cluster_serving.protocol.errors import ServingError

_WAIT_S = 60.0


@dataclass(slots=True)
class Computation:
    """Requests that are being computed.

    Attributes:
        requests: All requests, in order.
        known: Answers that are known already, by index of their request.
        started: Records of the other requests, by index.
        to_answer: Makes an answer of a request and its outputs, or its error.
    """

    requests: Sequence[Request]
    known: dict[int, Answer]
    started: dict[int, Started]
    to_answer: Callable[[Request, Arrays | ServingError], Answer]

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds; return True if all requests are computed."""
        # Wait for the last record first: a wait for each in turn wakes this thread for each, and delays the next one.
        return all(record.wait(seconds) for record in reversed(self.started.values()))

    def answers(self) -> list[Answer]:
        """Wait for the answers in the order of the requests; an `exhausted` process has those of computed ones only."""
        while not self.wait(_WAIT_S):
            pass
        for index, record in self.started.items():
            try:
                result: Arrays | ServingError = record.outputs()
            except ServingError as error:
                result = error
            self.known[index] = self.to_answer(self.requests[index], result)
        return [self.known[index] for index in sorted(self.known)]
