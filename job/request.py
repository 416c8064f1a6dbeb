"""A request between the batching window and the sink."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.encoding import Encoding
from cluster_serving.job.handlers.failure import HandlerFailed
from cluster_serving.protocol import tensors
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.results import encode_error


class Request(NamedTuple):
    """A decoded stream entry.

    Attributes:
        entry: The entry as it was read.
        flow_id: Id of the `SlotFlowControl` that the request came through; empty for none.
        inputs: Inputs by name; empty if the entry cannot be decoded.
        error: Reason for not computing the request: it cannot be decoded, or its deadline has passed.
        part: Index of the record, if the entry has several; -1 for the whole entry.
    """

    entry: Entry
    flow_id: str
    inputs: Mapping[str, Input]
    error: ServingError | None = None
    part: int = -1

    @property
    def in_pieces(self) -> bool:
        """True if the client wants the answer in pieces."""
        return self.entry.in_pieces

    def content(self, outputs: Any, encoding: Encoding) -> Mapping[str, str | bytes]:
        """Return the fields of a result hash with outputs; raise `ServingError` if they cannot be sent."""
        return encoding.fields(self.entry.native, outputs)

    def answer(self, content: Mapping[str, str | bytes]) -> Answer:
        """Return the answer with these fields of a result hash."""
        return Answer(self.entry, self.flow_id, content, part=self.part)

    def succeed(self, outputs: Any, encoding: Encoding) -> Answer:
        """Return the answer with outputs, or with the error if they cannot be sent."""
        try:
            # One record of an entry is sent along with the others.
            if self.part >= 0 and (columns := encoding.columns(outputs)) is not None:
                return Answer(self.entry, self.flow_id, {}, part=self.part, outputs=columns)
            return Answer(self.entry, self.flow_id, encoding.fields(self.entry.native, outputs), part=self.part)
        except ServingError as error:
            return self.fail(error)

    @property
    def single(self) -> Entry:
        """The entry as if this record were all of it, for a dead letter."""
        if self.part < 0:
            return self.entry
        return self.entry._replace(data=tensors.encode(self.inputs), records=b"")

    def fail(self, error: ServingError) -> Answer:
        """Return the answer with an error; the failure of a handler is kept as a dead letter, with its traceback."""
        letter = None
        if isinstance(error, HandlerFailed):
            error.report()
            letter = DeadLetter.of(self.single, error, error.traceback)
        return Answer(self.entry, self.flow_id, encode_error(error), letter, self.part)


def with_errors(requests: Sequence[Request], errors: Mapping[tuple[str, bytes], ServingError]) -> Sequence[Request]:
    """Return the requests, with the errors of those whose places have one."""
    if not errors:
        return requests
    return [request._replace(error=errors.get(request.entry.place, request.error)) for request in requests]
