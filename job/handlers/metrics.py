"""Metrics of a handler's own, beside those of its job (`context.metrics`)."""

import re

from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import COUNTER, HISTOGRAM, Metric, of_handler

MOST = 32
"""Most metrics of a handler."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MILLION = 1_000_000


class HandlerMetrics:
    """Counters and histograms by name; Prometheus has them as `cluster_serving_handler_<name>`. Any thread may use it.

    Example:
        >>> context.metrics.count("cache_hits")
        >>> context.metrics.observe("score", 0.75)
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._known: dict[str, Metric] = {}

    def count(self, name: str, amount: float = 1) -> None:
        """Add an amount, 0 or more, to a counter.

        Raises:
            ValueError: If the name is not one of lower-case letters, digits and underscores, is that of a histogram, or
                would be one too many.
        """
        self._counts.add(self._metric(COUNTER, name), round(_MILLION * max(0, amount)))

    def observe(self, name: str, value: float) -> None:
        """Add a value, 0 or more, to a histogram, whose bounds are powers of two times 0.001.

        Raises:
            ValueError: As in `count`; the name is that of a counter.
        """
        self._counts.observe((self._metric(HISTOGRAM, name), round(_MILLION * max(0, value)), 1))

    def _metric(self, kind: str, name: str) -> Metric:
        metric = self._known.get(name)
        if metric is None:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name of a metric; expected a name such as cache_hits")
            if len(self._known) == MOST:
                raise ValueError(f"the handler has {MOST} metrics already, without {name!r}")
            metric = self._known[name] = of_handler(kind, name)
        if metric.kind != kind:
            raise ValueError(f"{name!r} is a {metric.kind} already; use another name for a {kind}")
        return metric
