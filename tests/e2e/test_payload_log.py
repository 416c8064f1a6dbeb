"""What a job writes of its requests: the payload log, and the scalars for TensorBoard."""

import numpy as np
import pandas as pd
import pytest

from cluster_serving.client import InferenceFailed
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.fixtures.scalars import scalars
from tests.support.fixtures.waiting import wait_until


def test_a_job_of_process_mode_logs_what_clients_sent_and_got(started, cluster, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    write(model, NO_NEGATIVES)
    job, folder = "logged", tmp_path / "log"
    settings = {"payloadLog": {"sample": 1, "to": str(folder), "without": "record"}, "tensorboard": True}
    queue, _ = started(jobName=job, modelPath=model, executionMode="process", modelParallelism=2, **settings)

    values = [float(number) for number in range(100)]
    list(queue.predict_many([{"x": value} for value in values], timeout=60))
    assert queue.predict({"x": 100.0}, timeout=60) == 100
    with pytest.raises(InferenceFailed):
        queue.predict({"x": -1.0}, timeout=60)

    def read():
        return pd.concat(map(pd.read_parquet, folder.glob("*.parquet"))) if any(folder.glob("*.parquet")) else ()

    wait_until(lambda: len(read()) == 102)
    rows = read().sort_values("input.x", ignore_index=True)
    np.testing.assert_array_equal(rows["input.x"], [-1, *values, 100])
    np.testing.assert_array_equal(rows["output.y"], [np.nan, *values, 100])
    assert rows["code"].tolist() == ["INFERENCE_FAILED"] + [None] * 101
    assert set(rows["version"]) == {"1"} and (rows["latency_ms"] > 0).all() and "record" not in rows

    def totals():
        found = scalars(cluster.folder / job / "tensorboard" / job)
        assert list(found) in ([], ["Serving Throughput", "Total Records Number"])
        return [value for _, value in found.get("Total Records Number", [])]

    # The first ones may have come before the first reading.
    queue.predict({"x": 1.0}, timeout=60)
    wait_until(lambda: totals()[-1:] == [103])
