import json
from dataclasses import replace

import numpy as np

from cluster_serving.bench.load import output
from cluster_serving.bench.load.processes import Snapshot
from cluster_serving.bench.load.result import cost
from cluster_serving.bench.load.stats import Latency
from tests.support.payloads.bench_result import RESULT


def test_json_has_no_nan():
    nothing = replace(RESULT, latency_ms=Latency.of(np.empty(0)))
    document = json.loads(output.to_json([nothing], {"job": "j"}))
    assert document["results"][0]["latency_ms"]["p50"] is None
    assert document["results"][0]["errors"] == {"QUEUE_FULL": 3}
    assert document["machine"]["cores"] >= 1


def test_cost_is_the_difference_of_snapshots():
    before, after = (
        Snapshot(0, {"a": 1.0, "gone": 0}, {"a": 5, "gone": 0}),
        Snapshot(2, {"a": 3.0, "gone": 0}, {"a": 5, "gone": 0}),
    )
    assert cost(before, after, 500) == ({"a": 4.0}, {"a": 1.0})
    assert cost(before, after, 0)[0] == {}
