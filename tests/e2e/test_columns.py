"""Requests of many records, of which several share an entry, in a job of process mode; thread mode: `tests/slot`."""

import numpy as np

from cluster_serving.client import InferenceFailed, InvalidInput
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.stats import JobStats
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until

PICKY = """
    class Handler:
        inputs = {"x": "float32[?]", "name": "str"}
        outputs = {"y": "float32[?]", "greeting": "str"}

        def predict(self, records):
            return [
                {"y": x * 2, "greeting": f"hello {name}", "about": {"size": len(x)} if len(x) == 3 else None}
                if x[0] >= 0
                else ValueError(f"{x[0]:g} is negative")
                for x, name in zip(records["x"], records["name"])
            ]
    """


def test_each_record_of_a_request_is_answered_as_if_it_came_alone(started, cluster_db, front, tmp_path):
    write(tmp_path, PICKY)
    job = "picky"
    queue, _ = started(jobName=job, modelPath=tmp_path, maxBatchSize=16, executionMode="process", modelParallelism=2)
    sizes = [2 + index % 2 for index in range(100)]
    instances = [{"x": [index] * size, "name": f"n{index}"} for index, size in enumerate(sizes)]
    # The last two share an entry.
    bad = (7, 41, 43)
    for index in bad:
        instances[index]["x"][0] = -index
    body = front.post(f"/models/{job}/predict", json={"instances": instances}).json()
    for index, (size, answer) in enumerate(zip(sizes, body["predictions"], strict=True)):
        if index in bad:
            assert f"-{index} is negative" in answer["error"]
        else:
            about = {"size": 3} if size == 3 else None
            assert answer["value"] == {"y": [2 * index] * size, "greeting": f"hello n{index}", "about": about}

    def counted():
        totals = JobStats.read(cluster_db.hgetall(JobKeys(job).stats()))
        return totals.requests, totals.failures, int(cluster_db.get(JobKeys(job).answered))

    wait_until(lambda: counted() == (100, 3, 100))
    letters = [letter for _, letter in cluster_db.xrange(JobKeys(job).dead_letters)]
    errors = [letter[b"error"].decode().rpartition(": ")[2] for letter in letters]
    assert sorted(errors) == sorted(f"-{index} is negative" for index in bad)
    assert max(int(letter[b"bytes"]) for letter in letters) < 2000

    def items():
        for each in instances:
            yield {"x": np.array(each["x"], "f4"), "name": np.array(each["name"], object)}
        yield {"x": np.zeros(2, "f4")}

    *results, refused = queue.predict_many(items(), in_flight=40)
    for index, result in enumerate(results):
        if index in bad:
            assert isinstance(result.error, InferenceFailed) and f"-{index} is negative" in str(result.error)
        else:
            assert result["y"].tolist() == [2 * index] * sizes[index]
            assert result["greeting"].item() == f"hello n{index}" and result.version == "1"
            assert (result["about"].item() or {}).get("size", 2) == sizes[index]
    assert isinstance(refused.error, InvalidInput)
