"""Predictions in columns are written as those of each record."""

import json

import numpy as np
import pytest

from cluster_serving.frontend.api.original import predictions
from cluster_serving.protocol.columns import Columns

COLUMNS = [
    {"y": np.float32([[0.1, 2], [3, np.nan]])},
    {"y": np.float32([0.1, 2])},
    {"y": np.arange(8, dtype="i8").reshape(2, 2, 2), "name": np.array(["a", "b"], object)},
    {"y": np.array([True, False]), "z": np.array([[1], [2]], "u1")},
    {"y": np.array([[["a"], ["b"]], [["c"], ["d"]]], object)},
    {"y": np.float16([[0.1], [0.2]])},
]


@pytest.mark.parametrize("arrays", COLUMNS)
@pytest.mark.parametrize("form", ["json", "bigdl", "zoo-0.9"])
def test_predictions_in_columns_are_those_of_each_record(arrays, form):
    records = Columns(arrays)
    found = json.loads(predictions.body(records, form))
    assert found == json.loads(predictions.body([*records], form))
    assert len(found["predictions"]) == 2


@pytest.mark.parametrize("arrays", [*COLUMNS, {"y": np.array([1 + 2j, 3])}])
def test_values_of_columns_are_those_of_each_record(arrays):
    records = Columns(arrays)
    in_columns, one_by_one = (predictions.dumps(predictions.values(each)) for each in (records, [*records]))
    assert in_columns == one_by_one
