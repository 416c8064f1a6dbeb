"""Metrics of the functions of a slot, which several models share."""

from cluster_serving.connectors.slot.metrics import Counter, Distribution, Metrics


class OncePerName:
    """Metrics that several functions and models share: Flink takes each name once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counters: dict[str, Counter] = {}
        self._distributions: dict[str, Distribution] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of a name."""
        if name not in self._counters:
            self._counters[name] = self._metrics.counter(name)
        return self._counters[name]

    def distribution(self, name: str) -> Distribution:
        """Return the distribution of a name."""
        if name not in self._distributions:
            self._distributions[name] = self._metrics.distribution(name)
        return self._distributions[name]
