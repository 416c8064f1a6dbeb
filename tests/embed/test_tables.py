"""Tables of Arrow and frames of pandas."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from onnx import helper

from cluster_serving import Predictor
from cluster_serving.embed.tables import predict_frame, predict_table
from cluster_serving.protocol.errors import InvalidInput
from tests.support.fixtures.predictor import save_doubling
from tests.support.payloads import model_zoo


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
