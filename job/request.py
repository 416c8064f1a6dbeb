"""A request between the batching window and the sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cluster_serving.connectors.slot.answer import Answer
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.job.encoding import Encoding
from cluster_serving.job.failure import CodeFailed
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.results import encode_error
from cluster_serving.protocol.token_counts import TokenCounts, mark


class Request(NamedTuple):
    """A decoded stream entry.

    Attributes:
        entry: The entry as it was read.
        inputs: Inputs by name; empty if the entry cannot be decoded.
        error: Reason for not computing the request: it cannot be decoded, or its deadline has passed.
        part: Index of the record, or of the first one, if the entry has several; -1 for the whole entry.
        rows: Number of records that `inputs` have along a first dimension; 0 for a record without that dimension.
    """

    entry: Entry
    inputs: Mapping[str, Input]
    error: ServingError | None = None
    part: int = -1
    rows: int = 0

    @classmethod
    def of(cls, entry: Entry, inputs: Mapping[str, Input]) -> Request:
        """Return the request of a decoded entry; the records of one that has several are rows."""
        return cls(entry, inputs, part=0, rows=entry.record_count) if entry.records else cls(entry, inputs)

    @property
    def size(self) -> int:
        """Number of records."""
        return self.rows or 1

    def cut(self, rows: int) -> tuple[Request, Request]:
        """Return the first `rows` records, and the others."""
        return self._cut(0, rows), self._cut(rows, self.rows)

    def each(self) -> list[Request]:
        """Return a request for each record."""
        if not self.rows:
            return [self]
        values: Mapping[str, Any] = self.inputs
        return [
            self._replace(
                inputs={name: value[row, ...] for name, value in values.items()}, part=self.part + row, rows=0
            )
            for row in range(self.rows)
        ]

    def _cut(self, start: int, end: int) -> Request:
        values: Mapping[str, Any] = self.inputs
        inputs = {name: value[start:end] for name, value in values.items()}
        return self._replace(inputs=inputs, part=self.part + start, rows=end - start)

    @property
    def in_pieces(self) -> bool:
        """True if the client wants the answer in pieces."""
        return self.entry.in_pieces

    @property
    def counted(self) -> bool:
        """True if the client wants the tokens of the answer counted."""
        return bool(self.entry.counted)

    def content(self, outputs: Any, encoding: Encoding) -> Mapping[str, str | bytes]:
        """Return the fields of a result hash with outputs; raise `ServingError` if they cannot be sent."""
        return encoding.fields(self.entry.native, outputs)

    def answer(self, content: Mapping[str, str | bytes]) -> Answer:
        """Return the answer with these fields of a result hash."""
        return Answer(self.entry, content, part=self.part, rows=self.rows)

    def succeed(self, outputs: Any, encoding: Encoding) -> Answer:
        """Return the answer with outputs, or with the error if they cannot be sent."""
        try:
            tokens = self._tokens(outputs, encoding) if self.counted else []
            # Records of an entry are sent along with the others.
            if self.part >= 0 and (columns := encoding.columns(outputs)) is not None:
                return self.answer({})._replace(outputs=columns, tokens=tokens)
            return self.answer(mark(self.content(outputs, encoding), *tokens))
        except ServingError as error:
            return self.fail(error)

    def _tokens(self, outputs: Any, encoding: Encoding) -> list[TokenCounts]:
        """Return the numbers of tokens of each record; none without a tokenizer."""
        if encoding.counter is None:
            return []
        names, arrays = outputs if self.rows else ((), ())
        each = [(names, [array[row, ...] for array in arrays]) for row in range(self.rows)] or [outputs]
        pairs = zip(self.each(), each, strict=True)
        return [encoding.counts(self.entry.counted, one.inputs, made) for one, made in pairs]

    def end(self, said: Mapping[str, Any], encoding: Encoding) -> Answer:
        """Return the answer whose pieces were sent, and said this much; it has the numbers of their tokens."""
        return self.answer(mark({}, encoding.counts(self.entry.counted, self.inputs, said)))

    @property
    def single(self) -> Entry:
        """The entry of a dead letter of this record, which has the record as if it were all of it."""
        return self.entry if self.part < 0 else self.entry.of_record(self.part, self.inputs)

    def fail(self, error: ServingError) -> Answer:
        """Return the answer with an error; the failure of a handler is kept as a dead letter, with its traceback."""
        letters = []
        if isinstance(error, CodeFailed):
            error.report()
            letters = [DeadLetter.of(self.single, error, error.traceback)]
        return self.answer(encode_error(error))._replace(letters=letters)


class GatheredBatch(NamedTuple):
    """A batch on its way to the model.

    Attributes:
        requests: At least one.
        flow: Flow control that they came through; None if their source runs in another process.
    """

    requests: Sequence[Request]
    flow: SlotFlowControl | None = None


def with_errors(requests: Sequence[Request], errors: Mapping[tuple[str, bytes], ServingError]) -> Sequence[Request]:
    """Return the requests, with the errors of those whose places have one."""
    if not errors:
        return requests
    return [request._replace(error=errors.get(request.entry.place, request.error)) for request in requests]
