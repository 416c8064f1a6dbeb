"""What a slot needs of Flink's metrics, so that it can run without Flink."""

from typing import Protocol


class Counter(Protocol):
    """A number that grows."""

    def inc(self, n: int = 1) -> None:
        """Add to the number."""


class Distribution(Protocol):
    """The spread of a number."""

    def update(self, value: int) -> None:
        """Add a value."""


class Metrics(Protocol):
    """Metrics of an operator, as Flink's `MetricGroup` has them."""

    def counter(self, name: str) -> Counter:
        """Return a new counter."""

    def distribution(self, name: str) -> Distribution:
        """Return a new distribution."""
