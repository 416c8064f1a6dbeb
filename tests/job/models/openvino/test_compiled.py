from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.models.batched.model import BatchedModel
from cluster_serving.job.models.openvino.compiled import Singles
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InferenceFailed
from tests.support.payloads import model_zoo


def convolutions(folder):
    """A network heavy enough to be compiled for single records."""
    ops = model_zoo.digits().ops
    x = h = ops.parameter([-1, 3, 64, 64], np.float32)
    rng = np.random.default_rng(0)
    for channels in (3, 32, 32):
        kernel = ops.constant(rng.normal(0, 0.1, (32, channels, 3, 3)).astype("f4"))
        h = ops.relu(ops.convolution(h, kernel, [1, 1], [1, 1], [1, 1], [1, 1]))
    model_zoo.save_openvino(
        folder, {"x": x}, {"y": ops.reduce_mean(h, [2, 3], False), "z": ops.reduce_max(h, [1], True)}
    )
    return rng.random((11, 3, 64, 64)).astype("f4")


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_answer_does_not_depend_on_the_batch(tmp_path, threads):
    records = convolutions(tmp_path)
    model = load_model(ModelOptions(str(tmp_path), thread_per_model=threads))
    assert isinstance(model, BatchedModel)
    assert isinstance(model._model._loaded, Singles)
    assert model.overlaps == (threads > 1)
    alone = np.concatenate([model.predict([records[index : index + 1]])[0] for index in range(11)])
    for count in range(1, 12):
        np.testing.assert_array_equal(model.predict([records[:count]])[0], alone[:count])
    model.close()


def test_records_are_computed_while_others_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster_serving.job.models.openvino.compiled._MOST_BYTES", 0)
    records = convolutions(tmp_path)
    model = load_model(ModelOptions(str(tmp_path), thread_per_model=2, outputs=("z", "y")))
    expected = model.predict([records])
    for _ in range(5):
        # More than are computed at a time. The outputs of the last are never taken.
        started = [model.start([record]) for record in (*records, records[0])][:-1]
        outputs_of = [record.outputs() for record in reversed(started)][::-1]
        assert all(record.wait(0) for record in started)
        for index in (0, 1):
            np.testing.assert_array_equal(np.stack([outputs[index] for outputs in outputs_of]), expected[index])
    pixels = (records[0] * 255).astype("u1")
    np.testing.assert_array_equal(
        model.start([pixels]).outputs()[1], model.predict([pixels[np.newaxis].astype("f4")])[1][0]
    )
    with pytest.raises(
        InferenceFailed, match=r"OpenVINO failed: .*shape \[3, 5, 64\], not \[3, 64, 64\]; the model expects"
    ):
        model.start([records[0, :, :5]])
    with pytest.raises(InferenceFailed, match="OpenVINO failed"):
        model.start([records[0].astype("f8")])
    model.close()


def crossing(folder):
    """A network with free sizes that fails on odd ones: its halves do not fit together."""
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, 1, -1, -1], np.float32)
    half = ops.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2]).output(0)
    whole = ops.interpolate(half, np.array([2, 2], "f4"), "nearest", "scales", axes=np.array([2, 3]))
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.concat([x, whole.output(0)], 1)})


@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_that_fails_has_no_answer_and_spoils_none(tmp_path, threads):
    """With one thread, OpenVINO would give the outputs of the call before; and the next call would fail, too."""
    crossing(tmp_path)
    model = load_model(ModelOptions(str(tmp_path), thread_per_model=threads))
    even, odd = np.full((1, 1, 4, 4), 7, np.float32), np.zeros((1, 1, 5, 5), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(model.predict([even])[0][:, :1], even)
        with pytest.raises(InferenceFailed, match="OpenVINO failed: .*inconsistent"):
            model.predict([odd])
    np.testing.assert_array_equal(model.predict([even])[0][:, :1], even)


def test_what_a_network_remembers_is_not_that_of_other_clients(tmp_path):
    openvino = model_zoo.digits().openvino
    ops = openvino.opset13
    x = ops.parameter([-1, 4], np.float32, name="x")
    before = ops.read_value(ops.constant(np.zeros((1, 4), "f4")), "sum", np.float32, openvino.PartialShape([-1, 4]))
    total = ops.add(before, x)
    keep = ops.assign(total, "sum")
    x.output(0).set_names({"x"})
    total.output(0).set_names({"y"})
    openvino.save_model(openvino.Model([ops.result(total)], [keep], [x], "test"), tmp_path / "model.xml")
    model = load_model(ModelOptions(str(tmp_path)))
    for _ in range(2):
        np.testing.assert_array_equal(model.predict([np.ones((1, 4), np.float32)])[0], np.ones((1, 4)))
