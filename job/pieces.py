"""Answers in pieces: what makes them (`handlers.generated`), and the place that takes them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from cluster_serving.job.batch import Arrays
from cluster_serving.job.computation import Answerable

T = TypeVar("T")


class PieceAttempt(Protocol):
    """One attempt at the answers of a batch (`connectors.slot.pieces`)."""

    def add(self, pieces: Mapping[int, Any]) -> Sequence[int]:
        """Send pieces, given by the index of their record; return the indices of those that nobody waits for."""


class Writer(Protocol):
    """Place of the pieces (`connectors.slot.pieces`)."""

    def attempt(self, entries: Sequence[Any]) -> PieceAttempt:
        """Begin to answer records, given by their `entry`."""

    def answer(self, answers: Sequence[Any]) -> None:
        """Send answers before those of the rest of their batch."""


class Generating(Protocol):
    """Answers of code that makes them in pieces.

    Attributes:
        writer: Place of the pieces; None if answers are whole.
    """

    writer: Writer | None

    def answers(
        self, requests: Sequence[Answerable[T]], names: Sequence[str], records: Sequence[Arrays]
    ) -> Iterator[tuple[int, T]]:
        """Yield the answers of records, with their positions; see `copies.NotComputed`.

        Args:
            requests: The records.
            names: Names of the inputs.
            records: Values of the inputs of each record.
        """
