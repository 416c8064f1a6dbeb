"""Values that the document does not allow are refused."""

import httpx
import numpy as np
import pytest

from cluster_serving.frontend.api.v2.body import HEADER_LENGTH

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
V2 = "/v2/models/{job}/infer"


@pytest.fixture
def url(serve, report, echo):
    report(("x", "float32", (None, None)))
    return serve().url


# tests/frontend/api/test_derived.py has the values of a wrong type.
LOOSE = [
    (V2, {"inputs": [TENSOR], "parameters": {"binary_data_output": 1}}, {}, "binary_data_output is not true or"),
    (V2, {"inputs": [TENSOR], "parameters": {"timeout": ""}}, {}, "the parameter timeout is ''"),
    (V2, {"inputs": [TENSOR], "parameters": {"priority": False}}, {}, "the parameter priority is false"),
    ("/predict", {"instances": [[1]]}, {"x-priority": "HIGH"}, "the header X-Priority is 'HIGH'"),
    ("/predict", {"instances": [[1]]}, [("x-priority", "low")] * 2, "the header X-Priority is 'low, low'"),
    ("/predict", {"instances": [[1]]}, [("x-timeout-ms", "9")] * 2, "the header X-Timeout-Ms is '9, 9'"),
    (V2, {"inputs": [TENSOR]}, {"x-priority": "HIGH"}, "the header X-Priority is 'HIGH'"),
    (V2, {"inputs": [TENSOR]}, [(HEADER_LENGTH, "0")] * 2, "Inference-Header-Content-Length is '0, 0'"),
    ("/predict", {"instances": [[1]]}, {"x-timeout-ms": "1_000"}, "the header X-Timeout-Ms is '1_000'"),
    (V2, {"inputs": [{**TENSOR, "shape": ""}]}, {}, "input 'x' has shape ''; expected a list"),
    (V2, {"inputs": [TENSOR], "parameter": 1}, {}, "the body has 'parameter', which is unknown; expected inputs, "),
]


def test_a_loose_value_is_refused(url, job):
    for path, body, headers, error in LOOSE:
        answer = httpx.post(url + path.replace("{job}", job), json=body, headers=headers)
        assert (answer.status_code, error in answer.json()["error"]) == (400, True), (error, answer.text)


def test_a_body_may_repeat_the_model_of_its_path_and_have_null_where_nothing_is_given(url, job):
    body = {"inputs": [TENSOR | {"parameters": None}], "model_name": job, "id": None, "outputs": None}
    answer = httpx.post(f"{url}/v2/models/{job}/infer", json=body)
    assert answer.json()["outputs"][0]["data"] == [1, 2], answer.text


def test_no_body_is_no_text(url, job, report):
    report(("x", "str", (None,)))
    answer = httpx.post(f"{url}/v2/models/{job}/infer")
    assert (answer.status_code, answer.json()["error"]) == (400, "the body is empty; expected a JSON object")


def test_the_raw_bytes_of_one_tensor_are_a_request(url, job):
    def sent(body):
        return httpx.post(f"{url}/v2/models/{job}/infer", content=body, headers={HEADER_LENGTH: "0"})

    answer = sent(np.array([1.5, 2.5, 3.5], "<f4").tobytes())
    assert answer.status_code == 200, answer.text
    json = int(answer.headers[HEADER_LENGTH])
    assert np.frombuffer(answer.content[json:], "<f4").tolist() == [1.5, 2.5, 3.5]
    assert "has 7 bytes; FP32 of shape [1, 1] needs 4" in sent(b"7 bytes").json()["error"]


def test_raw_bytes_do_not_tell_the_tensors_of_several_inputs(url, job, report):
    report(("x", "float32", (None, None)), ("y", "float32", (None, 1)))
    answer = httpx.post(f"{url}/v2/models/{job}/infer", content=b"1234", headers={HEADER_LENGTH: "0"})
    assert "is 0, for the raw bytes of one input" in answer.json()["error"]


def test_the_raw_bytes_of_a_text_are_a_request(url, job, report):
    report(("x", "str", (None,)))
    answer = httpx.post(f"{url}/v2/models/{job}/infer", content="ä text".encode(), headers={HEADER_LENGTH: "0"})
    assert answer.content.endswith("ä text".encode()), answer.text
