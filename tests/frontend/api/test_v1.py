"""The v1 protocol of KServe, with requests as clients of TensorFlow Serving send them."""

import base64

import pytest

from cluster_serving.frontend.api import v1
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport


@pytest.fixture
def predict(ask, job):
    def predict(**body):
        return ask.post(f"/v1/models/{job}:predict", json=body)

    return predict


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"instances": [[1, 2.5], [3, 4]]}, {"predictions": [[1, 2.5], [3, 4]]}),
        ({"signature_name": "serving_default", "instances": [{"x": [1, 2]}]}, {"predictions": [[1, 2]]}),
        ({"inputs": [[1, 2], [3, 4]]}, {"outputs": [[1, 2], [3, 4]]}),
        ({"signature_name": "", "inputs": {"x": [[1, 2]]}}, {"outputs": [[1, 2]]}),
    ],
)
def test_rows_and_columns_of_one_input_are_answered_without_its_name(predict, body, answer):
    assert predict(**body).json() == answer


@pytest.mark.parametrize("batched", [False, True])
def test_rows_and_columns_of_several_inputs_are_answered_by_name(ask, report, job, batched):
    report(("x", "int64", (None, 2)), ("y", "float32", (None,)), ("s", "str", (None, 1)), already_batched=batched)
    text = {"b64": base64.b64encode("ä".encode()).decode()}
    rows = [{"x": [1, 2], "y": 0.5, "s": [text]}, {"x": [3, 4], "y": 1.5, "s": ["b"]}]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    path = f"/v1/models/{job}/versions/1:predict"
    expected = [{"x": [1, 2], "y": 0.5, "s": ["ä"]}, {"x": [3, 4], "y": 1.5, "s": ["b"]}]
    assert ask.post(path, json={"instances": rows}).json() == {"predictions": expected}
    assert ask.post(path, json={"inputs": columns}).json() == {
        "outputs": {name: [row[name] for row in expected] for name in rows[0]}
    }
    nameless = ask.post(path, json={"instances": [[1, 2]]})
    assert (nameless.status_code, "the model expects x: int64" in nameless.json()["error"]) == (400, True)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("shape", "answer"), [((None,), [1, 2.5]), ((None, 1), [[1], [2.5]])])
def test_single_values_are_records(ask, report, job, batched, shape, answer):
    report(("x", "float32", shape), already_batched=batched)
    assert ask.post(f"/v1/models/{job}:predict", json={"instances": [1, 2.5]}).json() == {"predictions": answer}


@pytest.mark.parametrize(
    ("column", "body", "answer"),
    [
        ("yes", {"instances": [{"x": [1]}, {"x": 2.5}]}, {"predictions": [1, 2.5]}),
        ("yes", {"inputs": {"x": [[1], [2.5]]}}, {"outputs": [1, 2.5]}),
        ("", {"inputs": [[1], [2.5]]}, {"outputs": [1, 2.5]}),
        # A row may be a batch, as in all protocols.
        ("", {"instances": [[1], [2.5, 3]]}, {"predictions": [[1], [2.5, 3]]}),
    ],
)
def test_a_list_of_one_is_a_single_value_of_a_column(ask, report, job, column, body, answer):
    report(("x", "float32", (None,), "", column))
    assert ask.post(f"/v1/models/{job}:predict", json=body).json() == answer


def test_rankings_are_values():
    assert v1.write([[[(3, 0.5)]]], False, False) == b'{"predictions":[[{"class":3,"prob":0.5}]]}'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "none of 'instances' and 'inputs'"),
        ({"instances": [[1]], "inputs": [[1]]}, "both of 'instances' and 'inputs'"),
        ({"instances": []}, "'instances' is empty"),
        ({"inputs": {"x": 1}}, "the column 'x' of 'inputs' is 1; expected a list, the batch"),
        ({"inputs": None}, "the column 'x' of 'inputs' is null; expected a list"),
        ({"inputs": {}}, "columns of the sizes {}"),
        ({"inputs": {"x": [[1]], "y": [[1], [2]]}}, "columns of the sizes {'x': 1, 'y': 2}"),
        ({"signature_name": "other", "instances": [[1]]}, "signature_name is 'other'; a job serves 'serving_default'"),
        ({"instances": [[1], ["a", 2]]}, "instances[1].x: "),
    ],
)
def test_wrong_requests_are_refused_with_the_place(predict, body, message):
    answer = predict(**body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_the_status_of_a_model_is_that_of_kserve_and_of_tensorflow_serving(ask, serve, job, db):
    assert job in ask.get("/v1/models").json()["models"]
    for path in (f"/v1/models/{job}", f"/v1/models/{job}/versions/1"):
        assert ask.get(path).json() == {
            "name": job,
            "ready": True,
            "model_version_status": [
                {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
            ],
            # As OpenAI's clients retrieve it.
            **{"id": job, "object": "model", "created": 0, "owned_by": "cluster-serving"},
        }
    missing = ask.get("/v1/models/another")
    assert (missing.status_code, "no model 'another'" in missing.json()["error"]["message"]) == (404, True)
    db.hset(JobKeys(job).slots(), "0", SlotReport("", "failed", code="MODEL_ERROR", error="no such file").to_json())
    ask.base_url = serve().url
    failed = ask.get(f"/v1/models/{job}")
    assert (failed.status_code, failed.json()["ready"]) == (503, False)
    assert failed.json()["model_version_status"][0]["state"] == "END"
    assert failed.json()["error"]["code"] == "MODEL_NOT_READY"
    assert ask.get(f"/v1/models/{job}/versions/1").json()["error"] == f"model {job!r} is not ready"
    assert ask.post(f"/v1/models/{job}:predict", json={"instances": [[1]]}).status_code == 503
