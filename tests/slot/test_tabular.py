"""Tables with holes: over HTTP and from Python, through Redis, to XGBoost and back."""

import httpx
import numpy as np
import pytest
import xgboost

from tests.support.payloads import tables


@pytest.fixture
def holes():
    return tables.holed(tables.iris()[0][:6])


@pytest.fixture
def flowers(served, tmp_path, holes):
    x, y = tables.iris()
    model = xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(tables.frame(tables.holed(x)), y)
    model.save_model(tmp_path / "model.ubj")
    queue, _ = served(jobName="flowers", modelPath=tmp_path)
    return queue, model.predict_proba(tables.frame(holes))


def records(holes):
    """Rows for JSON, with null where a value is missing."""
    return [{name: None if np.isnan(value) else value for name, value in row.items()} for row in tables.named(holes)]


def test_a_missing_value_is_null_over_http_and_nan_in_python(flowers, front, holes):
    queue, expected = flowers
    assert np.isnan(holes).any()
    found = [queue.predict(row, timeout=30)["probabilities"] for row in tables.named(holes)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for path in ("/v1/models/flowers:predict", "/models/flowers/predict"):
        answer = front.post(path, json={"instances": records(holes)}).raise_for_status().json()
        rows = answer["predictions"]
        found = [row.get("value", row)["probabilities"] for row in rows]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    columns = [
        {"name": name, "datatype": "FP32", "shape": [len(holes)], "data": [row[name] for row in records(holes)]}
        for name in tables.NAMES
    ]
    outputs = front.post("/v2/models/flowers/infer", json={"inputs": columns}).raise_for_status().json()["outputs"]
    (output,) = [output for output in outputs if output["name"] == "probabilities"]
    np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), expected, rtol=1e-5)


def test_clients_of_tritons_fil_name_the_vector_and_the_only_output(served, front, tmp_path):
    """The file names columns; the clients do not."""
    x, y = tables.iris()
    model = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(tables.frame(x), y)
    model.save_model(tmp_path / "model.ubj")
    served(jobName="fil", modelPath=tmp_path, inputs="x", outputs="label")
    tensor = {"name": "input__0", "datatype": "FP32", "shape": [6, 4], "data": x[::25].ravel().tolist()}
    body = {"inputs": [tensor], "outputs": [{"name": "output__0"}]}
    (output,) = front.post("/v2/models/fil/infer", json=body).raise_for_status().json()["outputs"]
    assert output["name"] == "output__0" and output["data"] == model.predict(x[::25]).tolist()
    refused = front.post("/v2/models/fil/infer", json=body | {"outputs": [{"name": "output__1"}]})
    assert "the model has no output 'output__1'; it has: label" in refused.text


def test_a_column_that_is_missing_altogether_is_named(flowers, front):
    refused = front.post("/v1/models/flowers:predict", json={"instances": [{"sepal_width": 1}]})
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "the model expects 4: sepal_length: float32[]" in refused.text
    row = dict.fromkeys(tables.NAMES) | {"colour": "red"}
    refused = front.post("/v1/models/flowers:predict", json={"instances": [row]})
    assert "instances[0]: 'colour' is unknown; expected the inputs of the model, and no others" in refused.text
