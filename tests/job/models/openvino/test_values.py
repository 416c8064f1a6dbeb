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


def chosen(x, computed):
    """One of two networks, as the mean says."""
    condition = ops.greater(ops.reduce_mean(x, ops.constant(np.array([0, 1])), False), ops.constant(np.float32(0)))
    node, bodies = ops.if_op(condition.output(0)), []
    for factor in (1.01, 1.0):
        own = ops.parameter([-1, 4], np.float32)
        bodies.append((Model([ops.result(ops.multiply(computed(own), ops.constant(np.float32(factor))))], [own]), own))
    (then, first), (other, second) = bodies
    node.set_then_body(then)
    node.set_else_body(other)
    node.set_input(x.output(0), first, second)
    return ops.negative(node.set_output(then.get_results()[0], other.get_results()[0]))


def repeated(x, count, until=1e9):
    """Doubled in each round."""
    own, again = ops.parameter([-1, 4], np.float32), ops.parameter([-1, 4], np.float32)
    doubled = ops.multiply(again, ops.constant(np.float32(2)))
    goes_on = ops.less(ops.reduce_max(doubled, ops.constant(np.array([0, 1])), False), ops.constant(np.float32(until)))
    body = Model([ops.result(goes_on), ops.result(ops.add(doubled, own))], [own, again])
    node = ops.loop(ops.constant(np.int64(count)), ops.constant(np.array(True)))
    node.set_function(body)
    node.set_special_body_ports([-1, 0])
    node.set_invariant_input(own, x.output(0))
    node.set_merged_input(again, x.output(0), body.get_results()[1].output(0))
    return node.get_iter_value(body.get_results()[1].output(0), -1)


def looked_up(x):
    return ops.gather(ops.constant(TABLE), ops.convert(ops.reduce_max(x, [1], False), "i64"), ops.constant(ZERO))


def scanned(x):
    """Over columns, in a recurrent layer."""
    steps = ops.unsqueeze(x, ops.constant(np.array([2])))
    count = ops.gather(ops.shape_of(x), ops.constant(np.array([0])), ops.constant(ZERO))
    state = ops.broadcast(ops.constant(np.zeros((1, 1, 2), np.float32)), ops.concat([count, np.array([1, 2])], 0))
    lengths = ops.broadcast(ops.constant(np.int64(4)), count)
    weights = [ops.constant(np.ones(shape, np.float32)) for shape in ((1, 6, 1), (1, 6, 2), (1, 6))]
    return ops.gru_sequence(steps, state, lengths, *weights, 2, "forward").output(0)


ANY = {
    "one of two networks": lambda x: chosen(x, ops.tanh),
    "rounds": lambda x: repeated(x, 3),
    "a recurrent layer": scanned,
    "a layer": lambda x: ops.relu(ops.matmul(x, TABLE, False, False)),
    "sizes": from_the_shape,
    "a row of a table": lambda x: ops.gather(ops.constant(TABLE), ops.constant(np.array([0])), ops.constant(ZERO)) + x,
    "a comparison": swallowed,
}
CAREFUL = {
    "an index in one of two networks": lambda x: chosen(x, looked_up),
    "rounds without a number": lambda x: repeated(x, -1),
    "an index": lambda x: ops.gather(ops.constant(TABLE), ops.convert(x, "i64"), ops.constant(ZERO)),
    "a divisor": lambda x: ops.divide(ops.constant(np.int32(7)), ops.convert(x, "i32")),
    "a size": lambda x: ops.range(ops.constant(ZERO), ops.convert(ops.reduce_max(x, [0, 1], False), "i64"), 1, "i64"),
}


@pytest.mark.parametrize("name", [*ANY, *CAREFUL])
def test_values_that_are_places_need_care(name):
    x = ops.parameter([-1, 4], np.float32)
    assert takes_any(Model([{**ANY, **CAREFUL}[name](x)], [x])) == (name in ANY)


@pytest.mark.parametrize("name", ["a layer", "sizes", "a comparison", "one of two networks"])
def test_a_dependence_that_only_some_numbers_show(tmp_path, name):
    x = ops.parameter([-1, 4], np.float32)
    save_openvino(tmp_path, {"x": x}, {"y": ANY[name](x)})
    depends = name in ("a comparison", "one of two networks")
    assert bool(load_model(ModelOptions(str(tmp_path))).one_by_one) == depends
