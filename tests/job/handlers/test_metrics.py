"""Metrics of a handler's own."""

import pytest

from cluster_serving.job.handlers.metrics import MOST, HandlerMetrics
from cluster_serving.protocol.figures.counts import Counts


def test_a_handler_counts_and_observes():
    counts = Counts()
    metrics = HandlerMetrics(counts)
    metrics.count("hits")
    metrics.count("hits", 0.5)
    metrics.observe("score", 0.75)
    assert counts.take() == {"handler_hits": 1_500_000, "handler_score:1.024": 1, "handler_score:sum": 750_000}


@pytest.mark.parametrize("name", ["", "Hits", "1st", "a-b", "a:b", "x" * 65])
def test_a_name_that_prometheus_would_not_take_is_refused(name):
    with pytest.raises(ValueError, match="is not a name of a metric"):
        HandlerMetrics(Counts()).count(name)


def test_a_name_has_one_kind_and_names_are_bounded():
    metrics = HandlerMetrics(Counts())
    metrics.count("hits")
    with pytest.raises(ValueError, match="is a counter already"):
        metrics.observe("hits", 1)
    for number in range(MOST - 1):
        metrics.count(f"hits_{number}")
    with pytest.raises(ValueError, match="has 32 metrics already"):
        metrics.count("one_more")
