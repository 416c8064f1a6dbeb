"""A request between the batching window and the sink."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster_serving.connectors.answer import Answer
from cluster_serving.protocol import tensors
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array, Input
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

    def answer(self, fields: Mapping[str, str | bytes]) -> Answer:
        """Return the answer with these fields of a result hash."""
        return Answer(self.entry, self.flow_id, fields, part=self.part)

    def part_answer(self, names: Sequence[str], outputs: Sequence[Array]) -> Answer:
        """Return the answer of one record of an entry, which is sent along with those of the others."""
        return Answer(self.entry, self.flow_id, {}, part=self.part, outputs=(names, outputs))

    @property
    def single(self) -> Entry:
        """The entry as if this record were all of it, for a dead letter."""
        if self.part < 0:
            return self.entry
        return self.entry._replace(data=tensors.encode(self.inputs), records=b"")

    def fail(self, error: ServingError) -> Answer:
        """Return the answer with an error."""
        return self.answer(encode_error(error))


def with_errors(requests: Sequence[Request], errors: Mapping[tuple[str, bytes], ServingError]) -> Sequence[Request]:
    """Return the requests, with the errors of those whose places have one."""
    if not errors:
        return requests
    return [request._replace(error=errors.get(request.entry.place, request.error)) for request in requests]
