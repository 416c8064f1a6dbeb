"""Which networks meet values that are no numbers while rows are followed."""

from __future__ import annotations

import numpy as np
import pytest
from openvino import Model
from openvino import opset13 as ops

from cluster_serving.job.models import ModelOptions, load_model
from cluster_serving.job.models.openvino.values import takes_any
from tests.support.payloads.model_zoo import save_openvino

TABLE = np.eye(4, dtype=np.float32)
ZERO = np.int64(0)


def from_the_shape(x):
    sizes = ops.gather(ops.shape_of(x), ops.constant(np.array([0])), ops.constant(ZERO))
    return ops.reshape(x, ops.concat([sizes, ops.constant(np.array([-1]))], 0), False)


def swallowed(x):
    """The graph does not tell what comes of a mean that is compared."""
    mean = ops.reduce_mean(x, ops.constant(np.array([0])), True)
    return ops.select(
        ops.greater(mean, ops.constant(np.float32(1e6))), ops.multiply(x, ops.constant(np.float32(1.001))), x
    )


ANY = {
    "a layer": lambda x: ops.relu(ops.matmul(x, TABLE, False, False)),
    "sizes": from_the_shape,
    "a row of a table": lambda x: ops.gather(ops.constant(TABLE), ops.constant(np.array([0])), ops.constant(ZERO)) + x,
    "a comparison": swallowed,
}
CAREFUL = {
    "an index": lambda x: ops.gather(ops.constant(TABLE), ops.convert(x, "i64"), ops.constant(ZERO)),
    "a divisor": lambda x: ops.divide(ops.constant(np.int32(7)), ops.convert(x, "i32")),
    "a size": lambda x: ops.range(ops.constant(ZERO), ops.convert(ops.reduce_max(x, [0, 1], False), "i64"), 1, "i64"),
}


@pytest.mark.parametrize("name", [*ANY, *CAREFUL])
def test_values_that_are_places_need_care(name):
    x = ops.parameter([-1, 4], np.float32)
    assert takes_any(Model([{**ANY, **CAREFUL}[name](x)], [x])) == (name in ANY)


@pytest.mark.parametrize("name", ["a layer", "sizes", "a comparison"])
def test_a_dependence_that_only_large_numbers_show(tmp_path, name):
    x = ops.parameter([-1, 4], np.float32)
    save_openvino(tmp_path, {"x": x}, {"y": ANY[name](x)})
    assert bool(load_model(ModelOptions(str(tmp_path))).one_by_one) == (name == "a comparison")
