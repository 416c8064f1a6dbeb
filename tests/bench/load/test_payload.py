import json

import numpy as np
import pytest

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.http_client import V2_LENGTH
from cluster_serving.protocol.inputs import Image


def test_random_requests_differ_and_are_the_same_every_time():
    first, second, *_ = payload.random_records("x", (4,), "float32")
    assert not np.array_equal(first["x"], second["x"])
    assert np.array_equal(first["x"], payload.random_records("x", (4,), "float32")[0]["x"])


def test_a_binary_body_of_kserve_is_header_and_bytes():
    x = np.arange(6, dtype="f4").reshape(2, 3)
    body, headers = payload.v2_body({"x": x})
    length = int(headers["inference-header-content-length"])
    (given,) = json.loads(body[:length])["inputs"]
    assert given == {"name": "x", "shape": [1, 2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}}
    assert body[length:] == x.tobytes()


def test_binary_and_json_answers_of_kserve_read_the_same():
    head = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}]}
    text = json.dumps(head).encode()
    binary = payload.read_v2(text + np.array([1, 2], "f4").tobytes(), len(text))
    plain = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    assert binary.tolist() == payload.read_v2(json.dumps(plain).encode(), None).tolist() == [1, 2]


def test_strings_of_kserve_are_read_as_classes_or_json():
    texts = [b"[[3,0.5]]", b"[]", b"0.25:7", b"a:b"]
    raw = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    head = {"outputs": [{"name": "y", "datatype": "BYTES", "shape": [4], "parameters": {"binary_data_size": len(raw)}}]}
    text = json.dumps(head).encode()
    assert payload.read_v2(text + raw, len(text)).tolist() == [3, 0.5, 0.25, 7]


@pytest.mark.parametrize(
    "predictions", [[[1, 2.5]], ["{value=[1,2.5]}"], ["[1.0, 2.5]"], [{"y": [[1], [2.5]]}], ["[[1,2.5]]"]]
)
def test_predictions_are_read_as_numbers_whatever_their_form(predictions):
    assert payload.read_predictions(json.dumps({"predictions": predictions}).encode()).tolist() == [1, 2.5]


def test_synthetic_images_are_jpegs_of_a_photographs_size():
    (record, *_) = payload.image_records("image", "synthetic")
    assert isinstance(record["image"], Image)
    assert record["image"].data.startswith(b"\xff\xd8")
    assert 10_000 < payload.size(record) < 40_000
    (instance,) = json.loads(payload.encode("predict", record)[0])["instances"]
    assert set(instance["image"]) == {"b64"}


def test_a_request_of_several_records_has_them_along_the_first_axis():
    record = {"x": np.arange(6, dtype="f4").reshape(3, 2)}
    rows = [[0, 1], [2, 3], [4, 5]]
    assert json.loads(payload.encode("rows", record, batched=True)[0]) == {"instances": rows}
    assert json.loads(payload.encode("predict", record, batched=True)[0]) == {"instances": [{"x": row} for row in rows]}
    (given,) = json.loads(payload.encode("v2-json", record, batched=True)[0])["inputs"]
    assert (given["shape"], given["data"]) == ([3, 2], [0, 1, 2, 3, 4, 5])
    body, headers = payload.encode("v2", record, batched=True)
    head = int(headers[V2_LENGTH])
    assert json.loads(body[:head])["inputs"][0]["shape"] == [3, 2] and body[head:] == record["x"].tobytes()
    assert json.loads(payload.encode("v2-json", record)[0])["inputs"][0]["shape"] == [1, 3, 2]
