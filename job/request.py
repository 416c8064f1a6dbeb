"""A request between the batching window and the sink."""

from collections.abc import Mapping
from typing import NamedTuple

from cluster_serving.connectors.answer import Answer
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
    """

    entry: Entry
    flow_id: str
    inputs: Mapping[str, Input]
    error: ServingError | None = None

    def answer(self, fields: Mapping[str, str | bytes]) -> Answer:
        """Return the answer with these fields of a result hash."""
        return Answer(self.entry, self.flow_id, fields)

    def fail(self, error: ServingError) -> Answer:
        """Return the answer with an error."""
        return self.answer(encode_error(error))
