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


def test_a_column_that_is_missing_altogether_is_named(flowers, front):
    refused = front.post("/v1/models/flowers:predict", json={"instances": [{"sepal_width": 1}]})
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert "the model expects 4: sepal_length: float32[]" in refused.text
