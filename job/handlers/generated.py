"""Answers of a handler whose `predict` is a generator: their pieces leave as they are made."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.batch import isolate
from cluster_serving.job.handlers.handled import HandledModel
from cluster_serving.job.handlers.handler import END
from cluster_serving.job.handlers.records import Record
from cluster_serving.job.handlers.running import Running
from cluster_serving.job.request import Request
from cluster_serving.job.timeout import NotComputed
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import RequestCancelled, ServingError

T = TypeVar("T")

Fields = Mapping[str, str | bytes]


class Attempt(Protocol):
    """One attempt at the answers of a batch (`connectors.pieces`)."""

    def add(self, pieces: Mapping[int, Fields]) -> Sequence[int]:
        """Send pieces, given by the index of their request; return the indices of those that nobody waits for."""


class Writer(Protocol):
    """Place of the pieces (`connectors.pieces`)."""

    def attempt(self, entries: Sequence[Entry]) -> Attempt:
        """Begin to answer requests."""

    def answer(self, answers: Sequence[Answer]) -> None:
        """Send answers before those of the rest of their batch."""


class Caller(Protocol):
    """Calls a function with the handler, in its thread."""

    def __call__(self, function: Callable[[HandledModel], T]) -> T:
        """Return the result of the function."""


class Generated:
    """Answers of a handler that generates.

    Args:
        call: Calls a function with the handler; raises `InferenceTimeout` if it takes too long.
        encode: Returns the fields of a result with these outputs.
        fail: Returns the answer with an error.

    Attributes:
        writer: Place of the pieces; None if answers are whole.
    """

    def __init__(
        self,
        call: Caller,
        encode: Callable[[Request, Record], Fields],
        fail: Callable[[Request, ServingError], Answer],
    ) -> None:
        self._call = call
        self._encode = encode
        self._fail = fail
        self.writer: Writer | None = None

    def answers(self, requests: Sequence[Request], records: Sequence[Record]) -> Iterator[tuple[int, Answer]]:
        """Yield the answers of requests whose records can share a batch, with their positions; see `NotComputed`."""
        results = isolate(self._run, [*zip(requests, records, strict=True)])
        for position, (request, result) in enumerate(zip(requests, results, strict=True)):
            if isinstance(result, Answer):
                yield position, result
            elif not isinstance(result, NotComputed):
                yield position, self._fail(request, result)

    def _run(self, items: Sequence[tuple[Request, Record]]) -> list[Answer]:
        requests = [request for request, _ in items]
        running = self._call(lambda handled: handled.generate([record for _, record in items]))
        batch = _Batch(self, requests, running)
        while batch.goes_on and (step := self._call(lambda _: running.advance())) is not None:
            batch.take(step)
        self._call(lambda _: running.close())
        return batch.answers()


class _Batch:
    """Requests that are being answered."""

    def __init__(self, generated: Generated, requests: Sequence[Request], running: Running) -> None:
        self._fail, self._encode, self._writer = generated._fail, generated._encode, generated.writer
        self._requests = requests
        self._running = running
        self._answers: dict[int, Answer] = {}
        self._sent: set[int] = set()
        if self._writer is not None:
            self._attempt = self._writer.attempt([request.entry for request in requests])
            running.keeps = [not request.entry.in_pieces for request in requests]

    @property
    def goes_on(self) -> bool:
        """True while a request is not answered."""
        return len(self._answers) < len(self._requests)

    def take(self, step: Sequence[Record | ServingError | None]) -> None:
        """Send the next pieces, and end the answers that are complete."""
        pieces, ended = {}, {}
        for index, piece in enumerate(step):
            if index in self._answers or piece is None:
                continue
            request = self._requests[index]
            if piece is END:
                ended[index] = self._end(index)
            elif isinstance(piece, ServingError):
                ended[index] = self._fail(request, piece)
            elif not self._running.keeps[index]:
                try:
                    pieces[index] = self._encode(request, piece)
                except ServingError as error:
                    ended[index] = self._fail(request, error)
        if pieces:
            self._sent.update(pieces)
            for index in self._attempt.add(pieces):
                self._answers[index] = self._fail(self._requests[index], RequestCancelled("the request was cancelled"))
        self._answers |= ended
        if ended and self._writer is not None and self.goes_on:
            self._writer.answer([*ended.values()])

    def answers(self) -> list[Answer]:
        """Return the answer of each request."""
        for index in range(len(self._requests)):
            if index not in self._answers:
                self._answers[index] = self._end(index)
        return [self._answers[index] for index in range(len(self._requests))]

    def _end(self, index: int) -> Answer:
        request = self._requests[index]
        whole = self._running.whole(index)
        if index in self._sent or whole is None:
            # Its pieces are the answer.
            return request.answer({})
        try:
            return (
                self._fail(request, whole)
                if isinstance(whole, ServingError)
                else request.answer(self._encode(request, whole))
            )
        except ServingError as error:
            return self._fail(request, error)
