"""Requests of many records, of which several share an entry: each record is answered as if it came alone."""

import json
import struct
from base64 import b64encode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from tests.support.fixtures import both_modes
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


def test_each_record_of_a_request_is_answered_as_if_it_came_alone(served, db, front, tmp_path):
    both_modes.records_are_alone(served, db, front, tmp_path)


PICTURES = """
    import numpy as np

    class Handler:
        inputs = {"image": "uint8[?, ?, 3]", "name": "str"}
        outputs = {"size": "int64[2]", "greeting": "str"}

        def predict(self, records):
            images, names = records["image"], records["name"]
            sizes = np.array([image.shape[:2] for image in images])
            return {"size": sizes, "greeting": [f"hello {name}" for name in names]}
    """


def test_images_and_texts_of_a_request_share_entries_from_every_door(served, db, front, tmp_path):
    write(tmp_path, PICTURES)
    queue, _ = served(jobName="pictures", modelPath=tmp_path, maxBatchSize=16)
    sizes = [(4 + index % 2, 3) for index in range(40)]
    files = [cv2.imencode(".png", np.zeros((*size, 3), "u1"))[1].tobytes() for size in sizes]
    files[7] = b"no image"
    rows = [{"image": {"b64": b64encode(file).decode()}, "name": f"n{index}"} for index, file in enumerate(files)]
    expected = [{"size": list(size), "greeting": f"hello n{index}"} for index, size in enumerate(sizes)]

    def sent(door):
        before = db.xinfo_stream("pictures")["entries-added"]
        answers = door()
        return answers, db.xinfo_stream("pictures")["entries-added"] - before

    def original():
        return front.post("/models/pictures/predict", json={"instances": rows}).json()["predictions"]

    answers, entries = sent(original)
    assert entries == 3
    assert [answer.get("value") for answer in answers] == [*expected[:7], None, *expected[8:]]
    assert "instances[7]: input 'image' is not an image that can be read" in answers[7]["error"]

    def later():
        asked = front.post("/v1/requests", json={"model": "pictures", "instances": rows})
        return front.get(f"{asked.headers['location']}?wait=30").json()["predictions"]

    answers, entries = sent(later)
    assert entries == 3
    assert [answer.get("value") for answer in answers] == [*expected[:7], None, *expected[8:]]

    def many():
        items = [{"image": file, "name": np.array(f"n{index}", object)} for index, file in enumerate(files)]
        return [*queue.predict_many(items)]

    answers, entries = sent(many)
    assert entries == 3
    assert [index for index, answer in enumerate(answers) if answer.error] == [7]
    assert [answer["size"].tolist() for answer in answers if not answer.error] == [*map(list, sizes[:7] + sizes[8:])]

    # These protocols have no answer of a part.
    files[7], rows[7] = files[5], {**rows[7], "image": rows[5]["image"]}

    def v1():
        return front.post("/v1/models/pictures:predict", json={"instances": rows}).json()["predictions"]

    assert sent(v1) == (expected, 3)

    def v2():
        parts = [files, [f"n{index}".encode() for index in range(40)]]
        data = [b"".join(struct.pack("<I", len(item)) + item for item in part) for part in parts]
        inputs = [
            {"name": name, "datatype": "BYTES", "shape": [40], "parameters": {"binary_data_size": len(part)}}
            for name, part in zip(("image", "name"), data, strict=True)
        ]
        head = json.dumps({"inputs": inputs}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        return front.post("/v2/models/pictures/infer", content=b"".join([head, *data]), headers=headers).json()

    answer, entries = sent(v2)
    assert entries == 3
    size, greeting = answer["outputs"]
    assert np.reshape(size["data"], size["shape"]).tolist() == [*map(list, sizes)]
    assert greeting["data"] == [f"hello n{index}" for index in range(40)]


def test_rankings_and_tensors_of_many_records(served, front, tmp_path):
    model_zoo.save_openvino_digits(tmp_path)
    x, _ = model_zoo.digits_data()
    right = model_zoo.digits_mlp(x[:200])
    inputs = [{"name": "x", "datatype": "FP32", "shape": [200, 64], "data": x[:200].reshape(-1).tolist()}]
    served(jobName="rows", modelPath=tmp_path)
    answer = front.post("/v2/models/rows/infer", json={"inputs": inputs}).json()["outputs"][0]
    np.testing.assert_allclose(np.reshape(answer["data"], answer["shape"]), right, atol=0.02)
    served(jobName="ranked", modelPath=tmp_path, postProcessing="topN(1)")
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


@pytest.mark.parametrize("shape", ["columns", "rows", "predict_many"])
def test_a_request_behind_a_large_one_is_in_one_of_the_next_two_batches(served, front, tmp_path, shape):
    # The job has a copy of the model's folder.
    model = tmp_path / "model"
    model.mkdir()
    write(model, COUNTING.replace("FOLDER", str(tmp_path)))
    job = f"counting-{shape}"
    queue, results = served(jobName=job, modelPath=model, maxBatchSize=8)
    body = {"instances": [{"x": [1.0]}] * 400}

    def send():
        if shape == "predict_many":
            return [int(result["batch"]) for result in queue.predict_many([{"x": np.ones(1, "f4")}] * 400)]
        answer = front.post(f"/models/{job}/predict", json=body).json()
        return [prediction["value"] for prediction in answer["predictions"]]

    if shape == "rows":
        # A record in another form has an entry of its own.
        body["instances"][0] = {"x": 1.0}
    with ThreadPoolExecutor() as threads:
        large = threads.submit(send)
        wait_until((tmp_path / "begun").exists)
        queue.enqueue("small", x=np.ones(1, "f4"))
        (tmp_path / "open").touch()
        batches = Counter(large.result())
    assert len(batches) >= 50
    # Inputs of other names would be another signature, whose batch waits for `batchTimeout` (`job.window`).
    assert int(results.query("small", timeout=30).value) <= 3, sorted(batches.items())[:5]
