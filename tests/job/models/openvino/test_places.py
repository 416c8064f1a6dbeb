"""Numbers that lead outside a table of an OpenVINO network, which would answer with zeros, or end."""

from __future__ import annotations

import numpy as np
import pytest
from openvino import Core, Model, opset7
from openvino import opset13 as ops

from cluster_serving.job.models import ModelOptions
from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.openvino.places import Places
from cluster_serving.job.predictor import Predictor
from cluster_serving.protocol.errors import InvalidInput
from tests.support.payloads.model_zoo import save_openvino

F = np.float32


def constant(value):
    return ops.constant(np.array(value, np.int64))


def table(rows):
    return ops.constant(np.random.default_rng(0).normal(0, 1, (rows, 4)).astype(F))


def looked_up(rows, ids):
    return ops.gather(table(rows), ids, constant(0))


def columns(x):
    parts = ops.split(x, constant(1), 2)
    return ops.concat([looked_up(5, parts.output(0)), looked_up(400, parts.output(1))], 1)


def steps(x):
    size = ops.squeeze(ops.gather(ops.shape_of(x), constant([1]), constant(0)), constant([0]))
    return ops.add(looked_up(100, x), looked_up(2, ops.range(constant(0), size, constant(1), "i64")))


OUTSIDE = {
    "rows": (lambda x: looked_up(50, x), [49, -50], [0, 50], "has 50, .* table of 50 rows; -50 to 49 are allowed"),
    "rows from 0 on": (lambda x: opset7.gather(table(50), x, constant(0)), [0, 49], [0, -1], "has -1, .*; 0 to 49 are"),
    "more than 32 bits": (lambda x: looked_up(50, x), [0, 1], [0, 2**33], "has 8589934592"),
    "an offset": (lambda x: looked_up(52, ops.add(x, constant(2))), [0, 49], [0, 50], "leads to row 52, .* of 52 rows"),
    "columns": (columns, [4, 399], [5, 0], "has 5, .* of 5 rows"),
    "another column": (columns, [4, 399], [0, 400], "has 400, .* of 400 rows"),
    "steps": (steps, [99, 99], [1, 2, 3], "leads to row 2, .* of 2 rows"),
    "a table of places": (
        lambda x: looked_up(50, ops.gather(ops.constant(np.arange(70)), x, constant(0))),
        [49, 0],
        [69, 0],
        "has 69, .* of 50 rows",
    ),
    "numbers": (lambda x: ops.gather_nd(table(50), x, 0), [49, 3], [50, 0], "has 50, .* of 50 x 4 numbers"),
    "sums": (lambda x: ops.embedding_bag_packed_sum(table(50), x), [0, 49], [0, -1], "has -1, .*; 0 to 49 are allowed"),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_number_outside_a_table_is_refused(name):
    make, inside, outside, message = OUTSIDE[name]
    x = ops.parameter([-1, -1 if name == "steps" else 2], np.int64)
    places = Places(Core(), Model([make(x)], [x]), [TensorSpec("ids", "int64", (None, None))])
    assert places.takes_any
    places.check([np.array([inside])])
    with pytest.raises(InvalidInput, match=f"input 'ids' {message}"):
        places.check([np.array([inside, outside]) if len(outside) == len(inside) else np.array([outside])])


@pytest.mark.parametrize("number", [50, np.nan, 1e30])
def test_a_number_with_a_fraction_outside_a_table_is_refused(number):
    x = ops.parameter([-1, 2], F)
    network = Model([looked_up(50, ops.convert(x, "i64"))], [x])
    places = Places(Core(), network, [TensorSpec("x", "float32", (None, 2))])
    # Trials with such numbers would be refused.
    assert not places.takes_any
    places.check([np.array([[49, 0.5]], F)])
    with pytest.raises(InvalidInput, match="input 'x' has"):
        places.check([np.array([[0, number]], F)])


def test_a_record_outside_a_table_leaves_the_others_of_its_batch_alone(tmp_path):
    x = ops.parameter([-1, 2], np.int64)
    y = looked_up(5000, x)
    far = ops.convert(ops.greater(x, constant(4900)), "f32")
    rest = ops.multiply(ops.reduce_max(far, constant([0, 1]), True), ops.constant(F(0.01)))
    save_openvino(tmp_path, {"x": x}, {"y": ops.add(ops.reduce_sum(y, constant([1]), False), rest)})
    with Predictor(ModelOptions(str(tmp_path))) as predictor:
        # Trials take all rows of the table, and none that it lacks.
        assert "depends on the others" in predictor.report().one_by_one
        first, second, third = predictor.predict([{"x": [1, 2]}, {"x": [0, 5000]}, {"x": [4999, -5000]}])
    assert first["y"].shape == third["y"].shape == (4,)
    assert isinstance(second, InvalidInput)
    assert "has 5000, and the model looks that up in a table of 5000 rows" in str(second)
