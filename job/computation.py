"""Records whose computation has started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from cluster_serving.job.encoding import Encoding
from cluster_serving.job.models.base import StartedRecord
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Input

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Steps = Iterator[dict[int, T] | None]
"""Answers by the index of their record, as soon as they are known; None after a call that has failed."""

_WAIT_S = 60.0


class Answerable(Protocol[T_co]):
    """A record, or several, to be answered: a request of a job, or a record of a program (`job.predictor.record`)."""

    @property
    def inputs(self) -> Mapping[str, Input]:
        """Inputs by name."""

    @property
    def error(self) -> ServingError | None:
        """Reason for not computing the record."""

    @property
    def entry(self) -> Any:
        """Name of the record for the writer of pieces."""

    @property
    def in_pieces(self) -> bool:
        """True if the answer is wanted in pieces."""

    @property
    def counted(self) -> bool:
        """True if the client wants the tokens of the answer counted."""

    @property
    def rows(self) -> int:
        """Number of records that the inputs have along a first dimension; 0 for a record without that dimension."""

    def each(self) -> Sequence[Answerable[T_co]]:
        """Return each of these records as one without that dimension."""

    def content(self, outputs: Any, encoding: Encoding) -> Any:
        """Return the content of an answer, or of a piece of it; raise `ServingError` if it cannot be sent."""

    def answer(self, content: Any) -> T_co:
        """Return the answer with a content."""

    def succeed(self, outputs: Any, encoding: Encoding) -> T_co:
        """Return the answer with outputs, or with the error if they cannot be sent."""

    def end(self, said: Mapping[str, Any], encoding: Encoding) -> T_co:
        """Return the answer whose pieces were sent, and `said` this much, by name: the texts joined."""

    def fail(self, error: ServingError) -> T_co:
        """Return the answer with an error."""


def begin(steps: Steps[T]) -> tuple[dict[int, T], Steps[T] | None]:
    """Take steps up to the first failure; return the answers, and the remaining steps if there was one."""
    answers: dict[int, T] = {}
    for step in steps:
        if step is None:
            return answers, steps
        answers |= step
    return answers, None


@dataclass(slots=True)
class Computation(Generic[T]):
    """Records that are being computed.

    Attributes:
        requests: All records, in order.
        known: Answers that are known already, by index of their record.
        started: Those of the other records that are being computed, by index.
        to_answer: Makes an answer of a record and its outputs, or its error.
        search: Steps of the search for the culprits of a failed batch, as `batch.search` has them; None if none failed.
        preprocess_s: Seconds that took the preparation of the inputs.
        postprocess_s: Seconds that took answers from outputs.
    """

    requests: Sequence[Any]
    known: dict[int, T]
    started: dict[int, StartedRecord]
    to_answer: Callable[[Any, Any], T]
    search: Steps[T] | None = None
    preprocess_s: float = 0.0
    postprocess_s: float = 0.0

    def wait(self, seconds: float) -> bool:
        """Wait at most so many seconds; return True if all records are computed."""
        # Wait for the last record first: a wait for each in turn wakes this thread for each, and delays the next one.
        return all(record.wait(seconds) for record in reversed(self.started.values()))

    def answers(self) -> list[T]:
        """Wait for the answers in the order of the records; an `exhausted` process has those of computed ones only."""
        for step in self.search or ():
            self.known |= step or {}
        self.search = None
        return self.ready()

    def ready(self) -> list[T]:
        """Wait for the answers that need no `search`, in the order of the records."""
        while not self.wait(_WAIT_S):
            pass
        computed = time.monotonic()
        for index, record in self.started.items():
            try:
                result: Any = record.outputs()
            except ServingError as error:
                result = error
            self.known[index] = self.to_answer(self.requests[index], result)
        self.postprocess_s += time.monotonic() - computed
        return [self.known[index] for index in sorted(self.known)]
