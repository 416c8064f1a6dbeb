"""What the graphs of OpenVINO networks prove about their rows, and that it is so."""

from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.graph.openvino.reader import read
from cluster_serving.job.models.graph.walk import Finding, follow
from cluster_serving.job.models.openvino.compiled import openvino
from cluster_serving.job.models.openvino.places import Places
from cluster_serving.job.options import ModelOptions
from tests.job.models.graph.test_soundness import SIZES, Maker, check_dependence, check_rows
from tests.support.payloads.axes_zoo import openvino_cases

op = openvino.opset15
GRAPHS = 40
SEEDS = 6


def parameter(*sizes, dtype=np.float32, name="x"):
    found = op.parameter([-1, *sizes], dtype, name=name)
    found.output(0).set_names({name})
    return found


def network(inputs, output):
    found = output.output(0) if hasattr(output, "output") else output
    found.set_names({"y"})
    return openvino.Model([op.result(found)], inputs, "test")


def followed(model, axes=None, checked=frozenset()):
    """Return what is found about each output, with the batch in front of the inputs."""
    inputs = {port.any_name: port for port in model.inputs}
    outputs = {port.any_name: port for port in model.outputs}
    return follow(read(model, inputs, outputs, checked), axes or dict.fromkeys(inputs, 0))


class Session:
    """A compiled network, with the method of ONNX Runtime that the checks call."""

    def __init__(self, model):
        hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        self.compiled = openvino.Core().compile_model(model, "CPU", hints)

    def run(self, names, feeds):
        return [value.copy() for value in self.compiled(feeds).values()]


def numbers(*shape):
    return op.constant(np.random.default_rng(0).normal(0, 1, shape).astype(np.float32))


def whole(*values):
    return op.constant(np.array(values, np.int64))


def batch_of(x, *rest):
    """Return a shape with the number of records in front, as exporters make it."""
    size = op.gather(op.shape_of(x), whole(0), op.constant(np.int64(0)))
    return op.concat([size, whole(*rest)], 0) if rest else size


def attention(x):
    together = op.unsqueeze(x, whole(0))
    return op.squeeze(op.scaled_dot_product_attention(together, together, together), whole(0))


def grouped(x):
    kinds = op.convert(op.reduce_sum(x, whole(1), False), "i64")
    sums = op.scatter_elements_update(numbers(9), kinds, op.convert(kinds, "f32"), whole(0), "sum")
    return op.gather(sums, kinds, op.constant(np.int64(0)))


def lstm(x):
    state = op.broadcast(op.constant(np.float32(0)), batch_of(x, 1, 5))
    steps = op.broadcast(op.constant(np.int64(4)), batch_of(x))
    weights = numbers(1, 20, 6), numbers(1, 20, 5), numbers(1, 20)
    return op.lstm_sequence(x, state, state, steps, *weights, 5, "forward").output(0)


def gru(x):
    state = op.broadcast(op.constant(np.float32(0)), batch_of(x, 2, 5))
    steps = op.broadcast(op.constant(np.int64(4)), batch_of(x))
    weights = numbers(2, 15, 6), numbers(2, 15, 5), numbers(2, 15)
    return op.gru_sequence(x, state, steps, *weights, 5, "bidirectional").output(1)


def shifted(x):
    return op.strided_slice(x, whole(0, 1), whole(0, 3), whole(1, 1), [1, 0], [1, 0])


PROVED = {
    "a convolution": ((3, 8, 8), lambda x: op.convolution(x, numbers(4, 3, 3, 3), [1, 1], [1, 1], [1, 1], [1, 1]), 0),
    "a convolution of groups": (
        (4, 8, 8),
        lambda x: op.reshape(
            op.group_convolution(x, numbers(2, 3, 2, 3, 3), [2, 2], [0, 0], [0, 0], [1, 1]), whole(0, 54), True
        ),
        0,
    ),
    "a transposed convolution": (
        (3, 8, 8),
        lambda x: op.convolution_backprop_data(x, numbers(3, 4, 3, 3), [2, 2]),
        0,
    ),
    "pools": (
        (3, 8, 8),
        lambda x: op.avg_pool(
            op.max_pool(x, [1, 1], [1, 1], [0, 0], [0, 0], [2, 2]).output(0), [2, 2], [0, 0], [0, 0], [2, 2], True
        ),
        0,
    ),
    "normalizations": (
        (3, 8, 8),
        lambda x: op.normalize_l2(op.mvn(x, whole(1, 2, 3), True, 1e-5, "inside_sqrt"), whole(1), 1e-5, "add"),
        0,
    ),
    "a batch normalization": (
        (3, 8),
        lambda x: op.batch_norm_inference(x, *[op.constant(np.ones(3, np.float32))] * 4, 1e-5),
        0,
    ),
    "a quantization": (
        (3, 8),
        lambda x: op.fake_quantize(x, *[op.constant(np.float32(one)) for one in (-1, 1, -1, 1)], 256),
        0,
    ),
    "functions with parameters": (
        (4, 4),
        lambda x: op.swish(op.prelu(op.clamp(op.gelu(x, "erf"), -1.0, 1.0), numbers(4))),
        0,
    ),
    "steps of a sequence": ((4, 6), lstm, 0),
    "both directions of a sequence": ((4, 6), gru, 0),
    "an attention": ((2, 4, 6), lambda x: op.scaled_dot_product_attention(x, x, x), 0),
    "similar parts of a record": ((4, 6), lambda x: op.matmul(x, x, False, True), 0),
    "larger images": (
        (3, 8, 8),
        lambda x: op.interpolate(x, whole(16, 16), "linear_onnx", "sizes", axes=whole(2, 3)),
        0,
    ),
    "parts": ((4, 6), lambda x: op.variadic_split(x, op.constant(np.int64(2)), whole(2, -1)).output(1), 0),
    "a slice by masks": ((4, 6), shifted, 0),
    "the largest elements": ((4, 6), lambda x: op.topk(x, op.constant(np.int64(2)), 2, "max", "value").output(0), 0),
    "a border": (
        (4, 6),
        lambda x: op.pad(x, whole(0, 1, 0), whole(0, 0, 2), "constant", op.constant(np.float32(1))),
        0,
    ),
    "a shape that an exporter makes": ((4, 6), lambda x: op.reshape(x, batch_of(x, 24), False), 0),
    "another axis": ((4, 6), lambda x: op.transpose(x, whole(1, 0, 2)), 1),
}
MIXED = {
    "a mean": ((4,), lambda x: op.subtract(x, op.reduce_mean(x, whole(0), True)), "ReduceMean"),
    "a softmax": ((4,), lambda x: op.softmax(x, 0), "Softmax"),
    "a variance": ((4,), lambda x: op.mvn(x, whole(0), True, 1e-5, "inside_sqrt"), "MVN"),
    "similar records": ((4,), lambda x: op.matmul(x, x, False, True), "MatMul"),
    "the last record": (
        (4,),
        lambda x: op.add(x, op.gather(x, whole(-1), op.constant(np.int64(0)))),
        "Gather",
    ),
    "a mean, times weights of half precision": (
        (4,),
        lambda x: op.matmul(
            op.reduce_mean(x, whole(0), True), op.convert(op.constant(np.ones((4, 4), np.float16)), "f32"), False, False
        ),
        "ReduceMean",
    ),
}
LOOKUPS = {
    "rows of a table": (lambda x: op.gather(numbers(9, 4), x, op.constant(np.int64(0))), 0),
    "columns of a table": (lambda x: op.gather(numbers(3, 9), x, op.constant(np.int64(1))), 1),
    "sums of rows": (lambda x: op.embedding_bag_packed_sum(numbers(9, 4), x), 0),
    "rows of all records": (lambda x: op.gather(x, x, op.constant(np.int64(0))), None),
}
PERHAPS = {
    "the number of records": ((4,), lambda x: op.multiply(x, op.convert(batch_of(x), "f32"))),
    "records as images": (
        (4,),
        lambda x: op.interpolate(x, op.constant(np.array([2], np.float32)), "nearest", "scales", axes=whole(0)),
    ),
    "attention between records": ((4,), attention),
    "sums over the records of a kind": ((4,), grouped),
    "kinds of records": ((4,), lambda x: op.unique(x).output(0)),
    "records in the order of their sizes": (
        (4,),
        lambda x: op.topk(x, op.constant(np.int64(1)), 0, "max", "value").output(0),
    ),
    "a mean, times nothing": (
        (4,),
        lambda x: op.add(x, op.multiply(op.reduce_mean(x, whole(0), True), op.constant(np.zeros((1, 4), np.float32)))),
    ),
}
UNKNOWN = {
    "more of the largest elements than there are": (
        (4,),
        lambda x: op.topk(x, op.constant(np.int64(5)), 1, "max", "value").output(0),
    ),
    "an alignment of PaddlePaddle": ((4,), lambda x: op.add(x, numbers(4), "pdpd")),
    "images between records": (
        (3, 8, 8),
        lambda x: op.interpolate(x, whole(5, 3, 16, 16), "linear_onnx", "sizes", axes=whole(0, 1, 2, 3)),
    ),
    "records of a mask that skips some": (
        (4,),
        lambda x: op.strided_slice(x, whole(0), whole(0), whole(2), [1], [1]),
    ),
    "elements beyond the end": ((4,), lambda x: op.gather(x, whole(9), op.constant(np.int64(1)))),
    "elements at the places of a record": (
        (4,),
        lambda x: op.gather(numbers(9, 4), op.convert(x, "i64"), op.constant(np.int64(0))),
    ),
    "random numbers": (
        (4,),
        lambda x: op.add(
            x,
            op.random_uniform(whole(1, 4), op.constant(np.float32(0)), op.constant(np.float32(1)), "f32", 0, 0),
        ),
    ),
}


@pytest.mark.parametrize("name", PROVED)
def test_rows_that_are_apart_are_proven(name):
    sizes, make, axis = PROVED[name]
    x = parameter(*sizes)
    model = network([x], make(x))
    assert followed(model) == {"y": Finding(axis)}
    session, rng = Session(model), np.random.default_rng(0)
    batch = rng.normal(0, 1, (5, *sizes)).astype(np.float32)
    (together,) = session.run(None, {"x": batch})
    for place in range(5):
        (alone,) = session.run(None, {"x": batch[place : place + 1]})
        np.testing.assert_allclose(np.take(together, [place], axis), alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MIXED)
def test_the_operator_that_mixes_rows_is_found(name):
    sizes, make, operator = MIXED[name]
    x = parameter(*sizes)
    (finding,) = followed(network([x], make(x))).values()
    assert finding.axis is None
    assert finding.mixed_by.startswith(f"{operator} '")


@pytest.mark.parametrize("name", PERHAPS)
def test_an_operator_whose_mixing_may_have_an_effect_is_found(name):
    sizes, make = PERHAPS[name]
    x = parameter(*sizes)
    (finding,) = followed(network([x], make(x))).values()
    assert (finding.axis, finding.mixed_by) == (None, "") and finding.may_mix


@pytest.mark.parametrize("name", UNKNOWN)
def test_of_all_else_nothing_is_known(name):
    sizes, make = UNKNOWN[name]
    x = parameter(*sizes)
    assert followed(network([x], make(x))) == {"y": Finding()}


@pytest.mark.parametrize("name", LOOKUPS)
def test_rows_of_tables_are_followed_where_their_places_are_checked(name):
    make, axis = LOOKUPS[name]
    x = parameter(4, dtype=np.int64)
    model = network([x], make(x))
    assert followed(model)["y"].axis is None
    places = Places(openvino.Core(), model, [TensorSpec("x", "int64", (None, 4))])
    checked = followed(model, checked=places.checked(model))["y"]
    assert checked.axis == axis
    if axis is not None:
        session, batch = Session(model), np.random.default_rng(0).integers(0, 9, (5, 4))
        (together,) = session.run(None, {"x": batch})
        alone = [session.run(None, {"x": batch[at : at + 1]})[0] for at in range(5)]
        np.testing.assert_allclose(together, np.concatenate(alone, axis), rtol=1e-6)


def test_a_state_is_not_known():
    x = parameter(4)
    kept = op.read_value(op.broadcast(op.constant(np.float32(0)), op.shape_of(x)), "state")
    total = op.add(x, kept)
    total.output(0).set_names({"y"})
    model = openvino.Model([op.result(total)], [op.assign(total, "state")], [x], "test")
    assert followed(model) == {"y": Finding()}


@pytest.mark.parametrize("name", openvino_cases())
def test_no_model_is_found_to_be_what_it_is_not(tmp_path, name):
    case = openvino_cases()[name]
    case.save(tmp_path)
    model = openvino.Core().read_model(tmp_path / "model.xml")
    for output, finding in followed(model, {name: axis for name, (axis, _, _) in case.inputs.items()}).items():
        assert finding.axis in (None, case.outputs[output])
        assert not ((finding.mixed_by or finding.may_mix) and case.shares)


def test_a_refused_model_names_the_operator(tmp_path):
    x = op.parameter([1, 4], np.float32, name="x")
    mean = op.reduce_mean(x, whole(0), True, name="mean")
    openvino.save_model(network([x], op.subtract(x, mean)), tmp_path / "model.xml")
    assert load_model(ModelOptions(str(tmp_path))).one_by_one == (
        "output 'y' of a record depends on the others in its batch (ReduceMean 'mean' mixes them)"
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_graphs_prove_and_refute_is_true(seed):
    rng = np.random.default_rng(seed)
    proved = refuted = 0
    for _ in range(GRAPHS):
        maker = Maker(rng)
        for _ in range(int(rng.integers(1, 7))):
            if maker.rank:
                maker.add()
        try:
            model = openvino.Core().read_model(maker.model())
            session = Session(model)
        except RuntimeError:
            continue
        assert [*model.input(0).partial_shape][1:] == [*SIZES]
        finding = followed(model)[maker.last]
        if finding.axis is not None:
            proved += check_rows(session, finding.axis, rng)
        if finding.mixed_by:
            refuted += check_dependence(session, rng)
    assert proved > 3
    assert refuted > 1
