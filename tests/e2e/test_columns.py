"""Requests of many records, of which several share an entry: each record is answered as if it came alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster_serving.client import InferenceFailed, InvalidInput
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.stats import JobStats
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

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


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_each_record_of_a_request_is_answered_as_if_it_came_alone(started, cluster_db, front, tmp_path, mode):
    write(tmp_path, PICKY)
    job = f"picky-{mode}"
    queue, _ = started(jobName=job, modelPath=tmp_path, maxBatchSize=16, executionMode=mode, modelParallelism=2)
    sizes = [2 + index % 2 for index in range(100)]
    instances = [{"x": [index] * size, "name": f"n{index}"} for index, size in enumerate(sizes)]
    instances[41]["x"][0] = -41
    body = front.post(f"/models/{job}/predict", json={"instances": instances}).json()
    for index, (size, answer) in enumerate(zip(sizes, body["predictions"], strict=True)):
        if index == 41:
            assert "-41 is negative" in answer["error"]
        else:
            about = {"size": 3} if size == 3 else None
            assert answer["value"] == {"y": [2 * index] * size, "greeting": f"hello n{index}", "about": about}

    def counted():
        totals = JobStats.read(cluster_db.hgetall(JobKeys(job).stats()))
        return totals.requests, totals.failures, int(cluster_db.get(JobKeys(job).answered))

    wait_until(lambda: counted() == (100, 1, 100))
    ((_, letter),) = cluster_db.xrange(JobKeys(job).dead_letters)
    assert b"-41 is negative" in letter[b"error"] and int(letter[b"bytes"]) < 2000

    def items():
        for each in instances:
            yield {"x": np.array(each["x"], "f4"), "name": np.array(each["name"], object)}
        yield {"x": np.zeros(2, "f4")}

    *results, refused = queue.predict_many(items(), in_flight=40)
    for index, result in enumerate(results):
        if index == 41:
            assert isinstance(result.error, InferenceFailed) and "-41 is negative" in str(result.error)
        else:
            assert result["y"].tolist() == [2 * index] * sizes[index]
            assert result["greeting"].item() == f"hello n{index}" and result.version == "1"
            assert (result["about"].item() or {}).get("size", 2) == sizes[index]
    assert isinstance(refused.error, InvalidInput)


def test_rankings_and_tensors_of_many_records(started, front, tmp_path):
    model_zoo.save_openvino_digits(tmp_path)
    x, _ = model_zoo.digits_data()
    right = model_zoo.digits_mlp(x[:200])
    inputs = [{"name": "x", "datatype": "FP32", "shape": [200, 64], "data": x[:200].reshape(-1).tolist()}]
    started(jobName="rows", modelPath=tmp_path)
    answer = front.post("/v2/models/rows/infer", json={"inputs": inputs}).json()["outputs"][0]
    np.testing.assert_allclose(np.reshape(answer["data"], answer["shape"]), right, atol=0.02)
    started(jobName="ranked", modelPath=tmp_path, postProcessing="topN(1)")
    body = {"instances": [{"x": row} for row in x[:200].tolist()]}
    answers = front.post("/models/ranked/predict", json=body).json()["predictions"]
    assert [answer["value"][0]["class"] for answer in answers] == right.argmax(1).tolist()


COUNTING = """
    import time
    from pathlib import Path
    import numpy as np

    class Handler:
        inputs = {"x": "float32[1]"}
        outputs = {"batch": "int64"}

        folder, count = Path("FOLDER"), 0

        def predict(self, records):
            if records["x"].any():
                self.count += 1
                (self.folder / "begun").touch()
                while not (self.folder / "open").exists():
                    time.sleep(0.01)
            return {"batch": np.full(len(records["x"]), self.count)}
    """


@pytest.mark.parametrize("shape", ["columns", "rows"])
def test_a_request_behind_a_large_one_is_in_one_of_the_next_two_batches(started, front, tmp_path, shape):
    # The job has a copy of the model's folder.
    model = tmp_path / "model"
    model.mkdir()
    write(model, COUNTING.replace("FOLDER", str(tmp_path)))
    job = f"counting-{shape}"
    queue, results = started(jobName=job, modelPath=model, maxBatchSize=8)
    body = {"instances": [{"x": [1.0]}] * 400}
    if shape == "rows":
        # A record in another form has an entry of its own.
        body["instances"][0] = {"x": 1.0}
    with ThreadPoolExecutor() as threads:
        large = threads.submit(front.post, f"/models/{job}/predict", json=body)
        wait_until((tmp_path / "begun").exists)
        queue.enqueue("small", x=np.ones(1, "f4"))
        (tmp_path / "open").touch()
        predictions = large.result().json()["predictions"]
    assert len({prediction["value"] for prediction in predictions}) >= 50
    assert int(results.query("small", timeout=30).value) <= 3
