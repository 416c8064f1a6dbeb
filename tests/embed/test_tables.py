"""Tables of Arrow and frames of pandas."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import helper
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cluster_serving import Predictor
from cluster_serving.embed.tables import predict_frame, predict_table
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.original.json import to_input as of_json
from tests.support.fixtures.predictor import save_doubling
from tests.support.lazy import Lazy
from tests.support.payloads import model_zoo

skops_io = Lazy("skops.io")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    model_zoo.save_onnx_digits(folder)
    return Predictor(folder)


@pytest.fixture
def two_inputs(tmp_path):
    ports = {name: ("FLOAT", ["n"]) for name in ("x", "y")}
    model_zoo.save_onnx(tmp_path, [helper.make_node("Add", ["x", "y"], ["sum"])], ports, {"sum": ("FLOAT", ["n"])}, {})
    return Predictor(tmp_path)


@pytest.mark.parametrize("kind", ["list", "fixed", "tensor"])
def test_lists_of_every_kind_are_vectors(digits, kind):
    x = model_zoo.digits_data()[0]
    flat = pa.array(x.reshape(-1))
    column = {
        "list": lambda: pa.array(list(x)),
        "fixed": lambda: pa.FixedSizeListArray.from_arrays(flat, 64),
        "tensor": lambda: pa.FixedShapeTensorArray.from_numpy_ndarray(x),
    }[kind]()
    found = predict_table(digits, pa.table({"x": column}))
    assert found.schema == pa.schema({"probabilities": pa.list_(pa.float32()), "error": pa.string()})
    assert found["error"].null_count == len(x)
    np.testing.assert_allclose(found["probabilities"].to_pylist(), model_zoo.digits_mlp(x), atol=1e-5)


def test_every_row_has_outputs_or_an_error(digits):
    x = model_zoo.digits_data()[0]
    table = pa.table({"x": [x[0].tolist(), None, x[1].tolist()[:5], x[2].tolist()]})
    found = predict_table(digits, table).to_pylist()
    assert [row["probabilities"] is None for row in found] == [False, True, True, False]
    assert found[3]["probabilities"] == pytest.approx(model_zoo.digits_mlp(x[2:3])[0], abs=1e-5)
    assert (
        found[0]["error"] is None and found[1]["error"] == "INVALID_INPUT: input 'x' is null; expected a list of values"
    )
    assert found[2]["error"].startswith("INVALID_INPUT: input 'x' is float32[5], but")


def test_a_table_without_rows_has_the_columns_of_the_others(digits):
    empty = pa.table({"x": pa.array([], pa.list_(pa.float32()))})
    whole = pa.table({"x": pa.array(list(model_zoo.digits_data()[0][:1]))})
    assert predict_table(digits, empty).schema == predict_table(digits, whole).schema
    assert len(predict_table(digits, empty)) == 0


def test_columns_of_numbers_are_a_vector_and_the_index_stays(digits):
    x = model_zoo.digits_data()[0]
    frame = pd.DataFrame(x, columns=[f"p{index}" for index in range(64)], index=range(1000, 1000 + len(x)))
    found = predict_frame(digits, frame, {"x": list(frame.columns)})
    assert list(found.index) == list(frame.index)
    np.testing.assert_allclose(np.stack(found["probabilities"]), model_zoo.digits_mlp(x), atol=1e-5)


def test_outputs_of_several_axes_are_nested_lists(tmp_path):
    save_doubling(tmp_path, 2, 3)
    x = np.arange(12, dtype="float32").reshape(2, 2, 3)
    found = predict_table(Predictor(tmp_path), pa.table({"x": x.tolist()}))
    assert found["y"].to_pylist() == (2 * x).tolist()


def test_a_missing_column_is_named_with_those_that_are_there(digits):
    with pytest.raises(
        InvalidInput,
        match="no column 'x' for the input 'x'; the columns are a, b. .*: --columns x=a, or",
    ):
        predict_table(digits, pa.table({"a": [1], "b": [2]}))


def test_an_input_that_is_not_named_has_the_column_of_its_name(two_inputs):
    frame = pd.DataFrame({"x": [1.0, 2.0], "weight": [10.0, 20.0]})
    assert predict_frame(two_inputs, frame, {"y": "weight"})["sum"].tolist() == [11, 22]


@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_text_is_answered_as_by_the_pipeline_that_learned_it(tmp_path, missing):
    frame = pd.DataFrame({"city": ["a", "b", missing, "b"] * 5, "n": np.arange(20.0)})
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression()).fit(frame, [0, 1, 1, 1] * 5)
    skops_io.dump(model, tmp_path / "model.skops")
    asked = pd.DataFrame({"city": ["a", missing, "b", "a"], "n": [1.0, 2.0, np.nan, 3.0]})
    good = [0, 1, 3]
    expected = model.predict_proba(asked.iloc[good])
    predictor = Predictor(tmp_path)
    table = pa.table({"city": ["a", None, "b", "a"], "n": [1.0, 2.0, None, 3.0]})
    rows = [
        {spec.name: of_json(spec.name, row[spec.name], spec) for spec in predictor.inputs} for row in table.to_pylist()
    ]
    for found in (predict_frame(predictor, asked), predict_table(predictor, table).to_pandas()):
        assert [error is None for error in found["error"]] == [True, True, False, True]
        np.testing.assert_allclose(np.stack(found["probabilities"][good]), expected)
    answers = predictor.records(rows)
    np.testing.assert_allclose([answers[row]["probabilities"] for row in good], expected)
    assert isinstance(answers[2], ServingError)


def test_columns_of_values_without_a_common_type_follow_the_table(two_inputs):
    frame = pd.DataFrame({"x": [1, "2.5", "cat", None], "y": [1.0] * 4, "unread": [object()] * 4})
    found = predict_frame(two_inputs, frame, {"x": "x", "y": "y"})
    np.testing.assert_array_equal(found["sum"][[0, 1, 3]].to_numpy(float), [2, 3.5, np.nan])
    assert found["error"].tolist() == [None, None, "INVALID_INPUT: input 'x' is 'cat'; expected a number", None]


def test_a_column_that_is_there_twice_is_named(two_inputs):
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["x", "x", "y"])
    with pytest.raises(InvalidInput, match="has 2 columns 'x'; expected one"):
        predict_frame(two_inputs, frame)


def test_numbers_from_a_file_to_the_output_need_no_pandas(tmp_path):
    save_doubling(tmp_path, 4)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype="f4")), 4)
    pq.write_table(pa.table({"x": vectors, "id": [7, 8]}), tmp_path / "in.parquet")
    code = """
import sys
from cluster_serving.embed.answers import answers
from cluster_serving.embed.output import Output
from cluster_serving.embed.predictor import Predictor
output = Output("out")
(unit,) = output.units("in.parquet")
output.write(unit, answers(Predictor("."), unit, {}, None))
print("pandas" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
    (found,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(found).to_pylist() == [
        {"id": 7, "y": [0, 2, 4, 6], "error": None},
        {"id": 8, "y": [8, 10, 12, 14], "error": None},
    ]
