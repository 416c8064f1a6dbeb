"""Instances of JSON: those of numbers are read into columns at once, and all are read alike."""

import numpy as np
import pytest

from cluster_serving.frontend.api.original import instances as bodies
from cluster_serving.frontend.api.original.instances import to_records
from cluster_serving.frontend.errors import ModelNotReady
from cluster_serving.protocol import tensors
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.slots import SlotReport, TensorSpec

X = TensorSpec("x", "float32", (None, 2))
WEIGHT = TensorSpec("weight", "float32", (None, 1))


def read(instances, *specs):
    return to_records(instances, SlotReport("start", "ready", inputs=specs))


def values(record):
    return {name: value.tolist() for name, value in tensors.decode(record.data)[1].items()}


def test_an_instance_without_names_has_to_wait_until_the_inputs_are_known():
    with pytest.raises(ModelNotReady, match="no slot has loaded the model yet"):
        bodies.read(b'{"instances": [[1, 2]]}', 1, None)
    assert len(bodies.read(b'{"instances": [{"x": [1, 2]}]}', 1, None)) == 1


@pytest.mark.parametrize(
    ("instances", "specs"),
    [
        ([{"x": [1, 2]}, {"x": [3.5, 4]}], [X]),
        ([[1, 2], [3, 4]], [X]),
        ([{"other": [1, 2]}, {"other": [3, 4]}], [X]),
        ([{"x": [1, 2], "weight": [1]}, {"x": [3, 4], "weight": [2]}], [X, WEIGHT]),
        ([{"a": [[1, 2]], "b": [1]}] * 3, [X, WEIGHT]),
        ([{"x": [1, 2]}, {"x": [3, 4]}], [TensorSpec("x", "int32", (None, 2))]),
        ([{"t": "a"}, {"t": "bc"}], [TensorSpec("t", "str", (None,))]),
        ([{"t": "a"}, {"t": "bc"}], [TensorSpec("t", "str", (None, 1))]),
        ([{"t": "a", "x": [1, 2]}, {"t": "", "x": [3, 4]}], [TensorSpec("t", "str", None), X]),
    ],
)
def test_instances_of_numbers_are_columns_with_the_values_of_each(instances, specs):
    found = read(instances, *specs)
    assert isinstance(found, Columns) and len(found) == len(instances)
    each = [values(record) for instance in instances for record in read([instance], *specs)]
    assert [{name: array.tolist() for name, array in record.items()} for record in found] == each
    types = {name: array.dtype for name, array in tensors.decode(read(instances[:1], *specs)[0].data)[1].items()}
    assert {name: array.dtype for name, array in found.arrays.items()} == types


@pytest.mark.parametrize(
    ("instances", "specs"),
    [
        ([{"x": [1, 2]}, {"x": [3]}], [X]),
        ([{"x": [1, 2]}, {"x": 3}], [X]),
        ([{"x": 1}, {"x": 2}], [X]),
        ([{"x": [1, 2]}, {"y": [3, 4]}], [X]),
        ([{"x": [1, 2]}, [3, 4]], [X]),
        ([{"x": [1, 2]}, 7], [X]),
        ([{"x": [1, 2]}, {"x": ["a", "b"]}], [X]),
        ([{"x": [1, 2]}, {"x": [3, 1e300]}], [X]),
        ([{"x": [1, 2]}, {"x": [3, 4.5]}], [TensorSpec("x", "int64", (None, 2))]),
        ([{"x": [1, 2]}, {"x": [3]}], [TensorSpec("x", "int64", (None, 2))]),
        ([{"x": [1, 2]}, {"x": [3, 1 << 63]}], [TensorSpec("x", "int64", (None, 2))]),
        ([{"x": [True, False]}, {"x": [3, 4]}], [TensorSpec("x", "int64", (None, 2))]),
        ([{"x": []}] * 2, [TensorSpec("x", "int64", (None, 2))]),
        ([{"t": "a"}, {"t": ["b"]}], [TensorSpec("t", "str", (None,))]),
        ([{"x": [1, 2]}] * 2, [TensorSpec("x", "", None)]),
        ([{"x": [1, 2]}] * 2, []),
        # By position, the order of the names counts.
        ([{"a": [1, 2], "b": [1]}, {"b": [2], "a": [3, 4]}], [X, WEIGHT]),
    ],
)
def test_other_instances_are_read_one_by_one(instances, specs):
    found = read(instances, *specs)
    assert not isinstance(found, Columns)
    assert [type(record) for record in found] == [type(read([instance], *specs)[0]) for instance in instances]


def test_instances_that_are_batches_are_read_one_by_one():
    report = SlotReport("start", "ready", inputs=(X,), already_batched=True)
    (first, _) = to_records([{"x": [1, 2]}, {"x": [3, 4]}], report, batched=True)
    np.testing.assert_array_equal(tensors.decode(first.data)[1]["x"], [[1, 2]])
