"""Answers of a handler whose `predict` is a generator: their pieces leave as they are made."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

from cluster_serving.job.batch import Arrays, NotWritten, isolate
from cluster_serving.job.computation import Answerable
from cluster_serving.job.copies import NotComputed
from cluster_serving.job.encoding import Encoding
from cluster_serving.job.handlers.handler import END
from cluster_serving.job.handlers.records import Record, groups, named
from cluster_serving.job.handlers.running import Running, joined
from cluster_serving.job.pieces import Writer
from cluster_serving.job.servable import Caller
from cluster_serving.protocol.errors import RequestCancelled, ServingError
from cluster_serving.protocol.token_counts import COMPLETION, PROMPT

T = TypeVar("T")


class Generated:
    """Answers of a handler that generates.

    Args:
        call: Calls a function with the handler; raises `InferenceTimeout` if it takes too long.
        encoding: Encoding of the outputs.

    Attributes:
        writer: Place of the pieces; None if answers are whole.
    """

    def __init__(self, call: Caller, encoding: Encoding) -> None:
        self._call = call
        self.encoding = encoding
        self.writer: Writer | None = None

    def answers(
        self, requests: Sequence[Answerable[T]], names: Sequence[str], records: Sequence[Arrays]
    ) -> Iterator[tuple[int, T]]:
        """See `pieces.Generating.answers`.

        Raises:
            Exception: Any that the writer raises.
        """
        prepared: list[Any] = isolate(self._preprocess, named(names, records))
        yield from _failed(requests, range(len(requests)), prepared)
        for members in groups(prepared):
            try:
                results: list[Any] = isolate(self._run, [(requests[index], prepared[index]) for index in members])
            except NotWritten as error:
                raise cast(Exception, error.__cause__) from None
            yield from _failed(requests, members, results)
            yield from (pair for pair in zip(members, results, strict=True) if not isinstance(pair[1], ServingError))

    def _preprocess(self, records: Sequence[Record]) -> list[Record | ServingError]:
        return self._call(lambda handled: [*map(handled.preprocess, records)], usual=False)

    def _run(self, items: Sequence[tuple[Answerable[T], Record]]) -> list[T]:
        running: Running = self._call(lambda handled: handled.generate([record for _, record in items]), usual=False)
        batch = _Batch(self, [request for request, _ in items], running)
        while batch.goes_on and (step := self._call(lambda _: running.advance(), usual=False)) is not None:
            batch.take(step)
        self._call(lambda _: running.close(), usual=False)
        return batch.answers()


def _failed(
    requests: Sequence[Answerable[T]], places: Sequence[int], results: Sequence[Any]
) -> Iterator[tuple[int, T]]:
    for place, result in zip(places, results, strict=True):
        if isinstance(result, ServingError) and not isinstance(result, NotComputed):
            yield place, requests[place].fail(result)


@contextmanager
def _written() -> Iterator[None]:
    """Tell the failure of a writer from one of the handler."""
    try:
        yield
    except Exception as error:
        raise NotWritten from error


def _counted(piece: Record) -> Record:
    """Return what the numbers of tokens of an answer depend on."""
    return {name: value for name, value in piece.items() if isinstance(value, str) or name in (PROMPT, COMPLETION)}


class _Batch(Generic[T]):
    """Records that are being answered."""

    def __init__(self, generated: Generated, requests: Sequence[Answerable[T]], running: Running) -> None:
        self._encoding, self._writer = generated.encoding, generated.writer
        self._requests = requests
        self._running = running
        self._answers: dict[int, T] = {}
        self._sent: set[int] = set()
        self._said: dict[int, list[Record]] = {}
        if self._writer is not None:
            with _written():
                self._attempt = self._writer.attempt([request.entry for request in requests])
            running.keeps = [not request.in_pieces for request in requests]

    @property
    def goes_on(self) -> bool:
        """True while a record is not answered."""
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
                ended[index] = request.fail(piece)
            elif not self._running.keeps[index]:
                try:
                    pieces[index] = request.content(piece, self._encoding)
                    if request.counted:
                        self._said.setdefault(index, []).append(_counted(piece))
                except ServingError as error:
                    ended[index] = request.fail(error)
        if pieces:
            self._sent.update(pieces)
            with _written():
                unwanted = self._attempt.add(pieces)
            for index in unwanted:
                self._answers[index] = self._requests[index].fail(RequestCancelled("the request was cancelled"))
        self._answers |= ended
        if ended and self._writer is not None and self.goes_on:
            with _written():
                self._writer.answer([*ended.values()])

    def answers(self) -> list[T]:
        """Return the answer of each record."""
        for index in range(len(self._requests)):
            if index not in self._answers:
                self._answers[index] = self._end(index)
        return [self._answers[index] for index in range(len(self._requests))]

    def _end(self, index: int) -> T:
        request = self._requests[index]
        whole = self._running.whole(index)
        if index in self._sent or whole is None:
            # What was sent in pieces is the answer, also if it was no piece at all.
            return request.end(joined(self._said.get(index, [])), self._encoding)
        return request.fail(whole) if isinstance(whole, ServingError) else request.succeed(whole, self._encoding)
