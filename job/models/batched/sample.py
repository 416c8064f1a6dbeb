"""A record of a shared call, to be computed again alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_serving.protocol.inputs import Array

_MOST_ROWS = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """A record, and what it got beside others.

    Attributes:
        inputs: The record, as a batch of one.
        place: Index of the record in the call.
        count: Number of records in the call.
        outputs: The record's row of each output, as a batch of one.
        others: Rows of some records of the call, which tell how large the numbers are.
    """

    inputs: list[Array]
    place: int
    count: int
    outputs: list[Array]
    others: list[Array]

    @classmethod
    def of(cls, inputs: Sequence[Array], outputs: Sequence[Array], place: int) -> Sample:
        """Copy a record of a batch: the job uses the memory of inputs again, and a handler may change outputs."""
        count = len(inputs[0])
        own, some = slice(place, place + 1), slice(0, None, -(-count // _MOST_ROWS))
        return cls(
            [array[own].copy() for array in inputs],
            place,
            count,
            [array[own].copy() for array in outputs],
            [array[some].copy() for array in outputs],
        )

    @property
    def copies(self) -> list[Array]:
        """A batch of the same size as the call, with this record in each place."""
        return [array.repeat(self.count, axis=0) for array in self.inputs]
