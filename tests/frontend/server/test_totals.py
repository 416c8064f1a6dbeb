"""Metrics of several processes, added up."""

import json

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from cluster_serving.frontend.server import totals


def made(models, seconds, state):
    registry = CollectorRegistry()
    counter = Counter("requests", "Requests.", ["model"], registry=registry)
    histogram = Histogram("seconds", "Seconds.", buckets=(1, 2), registry=registry)
    Gauge("open", "Open requests.", registry=registry).set(state)
    for model in models:
        counter.labels(model).inc()
    for value in seconds:
        histogram.observe(value)
    # As it comes from another process.
    return json.loads(json.dumps(totals.families(registry)))


def values(part):
    found = {}
    for family in text_string_to_metric_families(totals.as_text(part).decode()):
        for sample in family.samples:
            found[(sample.name, *sample.labels.values())] = sample.value
    return found


def test_samples_of_one_name_and_labels_are_added():
    first, second = made("aab", [0.5, 1.5], 2), made("bc", [5], 3)
    told = values(totals.total([first, second]))
    assert {labels: told["requests_total", labels] for labels in "abc"} == {"a": 2, "b": 2, "c": 1}
    assert [told["seconds_bucket", bound] for bound in ("1.0", "2.0", "+Inf")] == [1, 2, 3]
    assert (told["seconds_sum",], told["seconds_count",], told["open",]) == (7, 3, 5)
    assert (
        told["requests_created", "b"]
        == values(first)["requests_created", "b"]
        < values(second)["requests_created", "b"]
    )
    # Nothing was added to the parts.
    assert values(first)["open",] == 2


def test_of_a_process_that_has_ended_its_counts_remain():
    told = values(totals.counted(made("a", [0.5], 2)))
    assert told["requests_total", "a"] == told["seconds_count",] == 1
    assert ("open",) not in told
