"""A result of the load generator."""

from collections import Counter

import numpy as np

from cluster_serving.bench.load.result import LoadResult
from cluster_serving.bench.load.stats import Latency
from cluster_serving.bench.load.tally import LoadTally

RESULT = LoadResult(
    mode="closed", client="sync", concurrency=8, generators=1, offered=101.0, sent_rate=101.0, achieved=100.0,
    seconds=3.0, stable=True, windows=[99.0, 100.0, 101.0], latency_ms=Latency.of(np.array([0.01, 0.02])),
    tally=LoadTally(sent=303, answered=300, errors=Counter(QUEUE_FULL=3), checked=300), can_check=True,
    cpu_seconds_per_1000={"Redis": 0.1, "load generator": 0.2},
    cpu_share={"Redis": 0.01, "load generator": 0.02}, generator_cpu_seconds=0.1, peak_memory_mb={"Redis": 5.0},
    job={
        "batches": 2,
        "batchSize": 3.0,
        "queueWaitMs": 1.0,
        "inferenceMs": 2.0,
        "writeMs": 0.5,
        "batchSizes": {"2": 1, "4": 1},
    },
)  # fmt: skip
