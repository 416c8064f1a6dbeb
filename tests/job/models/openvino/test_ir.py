from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster_serving.job.models import TensorSpec, load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.payloads import model_zoo


@pytest.fixture
def ops():
    return model_zoo.digits().ops


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


def printed(code, folder):
    """What a process of its own says, which must not fail."""
    run = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def rows(count: int) -> np.ndarray:
    return np.arange(2 * count, dtype=np.float32).reshape(count, 2)


@pytest.mark.parametrize("fixed", [1, 4])
@pytest.mark.parametrize("batch", [1, 3, 32])
def test_a_fixed_batch_is_freed(tmp_path, ops, fixed, batch):
    x = ops.parameter([fixed, 2], np.float32)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.add(x, ops.constant(np.float32(1)))})
    model = load(tmp_path)
    assert model.inputs == [TensorSpec("x", "float32", (None, 2))]
    np.testing.assert_array_equal(model.predict([rows(batch)])[0], rows(batch) + 1)


@pytest.mark.parametrize("fixed", [1, 4])
@pytest.mark.parametrize("batch", [1, 3, 4, 32])
def test_a_batch_that_cannot_be_freed_is_cut_and_padded(tmp_path, ops, fixed, batch):
    x = ops.parameter([fixed, 2], np.float32)
    y = ops.reshape(ops.add(x, ops.constant(np.float32(1))), [fixed, 2, 1], special_zero=False)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": y})
    model = load(tmp_path)
    assert model.inputs == [TensorSpec("x", "float32", (fixed, 2))]
    np.testing.assert_array_equal(model.predict([rows(batch)])[0], rows(batch)[..., np.newaxis] + 1)


def test_a_network_that_mixes_its_records_is_not_freed(tmp_path, ops):
    """Reshaping this one would succeed, and then mix the records of a batch into one softmax."""
    x = ops.parameter([1, 2], np.float32)
    y = ops.softmax(ops.reshape(x, [1, -1], special_zero=False), 1)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": y})
    model = load(tmp_path)
    np.testing.assert_allclose(model.predict([np.zeros((3, 2), np.float32)])[0], np.full((3, 2), 0.5))


def test_an_output_without_the_batch_belongs_to_each_record(tmp_path, ops):
    x = ops.parameter([1, 2], np.float32)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.reshape(x, [2, 1], special_zero=False)})
    np.testing.assert_array_equal(load(tmp_path).predict([rows(3)])[0], rows(3)[..., np.newaxis])


def test_several_inputs_and_outputs_are_named(tmp_path, ops):
    a, b = ops.parameter([-1, 2], np.float32), ops.parameter([-1, 2], np.float32)
    outputs = {"sum": ops.add(a, b), "difference": ops.subtract(a, b)}
    model_zoo.save_openvino(tmp_path, {"a": a, "b": b}, outputs)
    one, two = rows(3), np.ones((3, 2), np.float32)

    total, difference = load(tmp_path).predict([one, two])
    np.testing.assert_array_equal(total, one + two)
    np.testing.assert_array_equal(difference, one - two)

    model = load(tmp_path, inputs=("b", "a"), outputs=("difference",))
    assert [spec.name for spec in model.inputs + model.outputs] == ["b", "a", "difference"]
    np.testing.assert_array_equal(model.predict([two, one])[0], one - two)

    with pytest.raises(ModelError, match=r"needs every one of its inputs, once: a: float32\[\?, 2\], b: "):
        load(tmp_path, inputs=("a",))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float64"])
def test_dtypes_pass_through(tmp_path, ops, dtype):
    x = ops.parameter([-1, 2], np.dtype(dtype))
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.concat([x, x], 1)})
    model = load(tmp_path)
    assert [spec.dtype for spec in model.inputs + model.outputs] == [dtype, dtype]
    assert model.inputs[0].computed == {"int64": "int32", "float64": "float32"}.get(dtype, "")
    values = np.array([[0, 1], [1, 1]], dtype)
    (answer,) = model.predict([values])
    assert answer.dtype == dtype
    np.testing.assert_array_equal(answer, np.concatenate([values, values], 1))


def test_a_type_that_numpy_lacks_is_refused(tmp_path, ops):
    x = ops.parameter([-1, 2], model_zoo.digits().openvino.Type.bf16)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.convert(x, "f32")})
    with pytest.raises(ModelError, match="'x' is of type bf16"):
        load(tmp_path)


def test_a_quantized_network_is_simply_loaded(tmp_path, ops):
    x = ops.parameter([-1, 4], np.float32)
    quantized = ops.fake_quantize(x, *(ops.constant(np.float32(v)) for v in (-1.27, 1.27, -1.27, 1.27)), 255)
    weights = ops.multiply(
        ops.convert(ops.constant(np.eye(4, dtype=np.int8) * 100), "f32"), ops.constant(np.float32(0.01))
    )
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.matmul(quantized, weights, False, False)})
    values = np.array([[0.5, -0.25, 1, 0]], np.float32)
    np.testing.assert_allclose(load(tmp_path).predict([values])[0], values, atol=0.02)


def test_float32_is_computed_in_float32_where_the_cpu_could_do_with_less(tmp_path, ops):
    random = np.random.default_rng(0)
    matrix = random.normal(0, 1, (256, 256)).astype(np.float32)
    x = ops.parameter([-1, 256], np.float32)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.matmul(x, ops.constant(matrix), False, False)})
    values = random.normal(0, 1, (8, 256)).astype(np.float32)
    (answer,) = load(tmp_path, inference_precision="float32").predict([values])
    # Products of rounded numbers, as of bfloat16, are off by 0.01 and more.
    np.testing.assert_allclose(answer, values.astype("f8") @ matrix.astype("f8"), rtol=1e-4, atol=1e-4)


def test_each_record_has_a_scalar_of_its_own(tmp_path, ops):
    x, scale = ops.parameter([-1, 2], np.float32), ops.parameter([], np.float32)
    model_zoo.save_openvino(tmp_path, {"x": x, "scale": scale}, {"y": ops.multiply(x, scale)})
    scales = np.array([1, 10, 100], np.float32)
    np.testing.assert_array_equal(load(tmp_path).predict([rows(3), scales])[0], rows(3) * scales[:, np.newaxis])


def test_overwriting_a_table_in_place_does_not_end_the_process(tmp_path, ops):
    tokens = ops.parameter([-1], np.int64)
    table = ops.constant(np.ones((100_000, 16), np.float32))
    model_zoo.save_openvino(tmp_path, {"tokens": tokens}, {"y": ops.gather(table, tokens, ops.constant(0))})
    code = (
        "import os, sys, numpy as np\n"
        "from cluster_serving.job.models import load_model; from cluster_serving.job.options import ModelOptions\n"
        "model = load_model(ModelOptions(sys.argv[1])); os.truncate(sys.argv[1] + '/model.bin', 0)\n"
        "print(model.predict([np.array([99_999])])[0].sum())"
    )
    assert printed(code, tmp_path) == "16.0"


def test_loading_does_not_fork_to_report_home(tmp_path):
    model_zoo.save_openvino_digits(tmp_path)
    code = (
        "import sys, multiprocessing.process as p\n"
        "p.BaseProcess.start = lambda self: sys.exit('forked')\n"
        "from cluster_serving.job.models import load_model; from cluster_serving.job.options import ModelOptions\n"
        "load_model(ModelOptions(sys.argv[1])); print('openvino_telemetry.main' in sys.modules)"
    )
    assert printed(code, tmp_path) == "False"


def test_requests_that_cannot_be_written_to_are_not_overwritten_by_other_threads(tmp_path, ops):
    x = ops.parameter([-1, 5], np.float32)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float32(2)))})

    def serve(index: int) -> list[float]:
        model = load(tmp_path)
        wrong = []
        for number in range(index, 40_000, 4):
            # As decoded from a request: read-only, and in memory of its own.
            request = np.frombuffer(np.full(5, number, np.float32).tobytes(), np.float32)[np.newaxis]
            if model.predict([request])[0].tolist() != [[2 * number] * 5]:
                wrong.append(number)
        return wrong

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(serve, range(4))] == [[]] * 4


def test_tensors_without_names_have_those_of_their_positions(tmp_path, ops):
    openvino = model_zoo.digits().openvino
    x = ops.parameter([-1, 2], np.float32)
    openvino.save_model(openvino.Model([ops.sin(x), ops.cos(x)], [x], "test"), tmp_path / "model.xml")
    model = load(tmp_path)
    assert [spec.name for spec in (*model.inputs, *model.outputs)] == ["input", "output_0", "output_1"]
    # As earlier versions called it: by the node.
    node = openvino.Core().read_model(tmp_path / "model.xml").outputs[1].node.friendly_name
    np.testing.assert_array_equal(load(tmp_path, outputs=(node,)).predict([rows(2)])[0], model.predict([rows(2)])[1])


def test_a_fixed_first_dimension_whose_rows_depend_on_each_other_is_a_part_of_the_record(tmp_path, ops):
    x = ops.parameter([3, 2], np.float32)
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.softmax(x, 0)})
    model = load(tmp_path)
    assert str(model.inputs[0]) == "x: float32[?, 3, 2]"
    x = rows(6).reshape(2, 3, 2)
    odds = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(model.predict([x])[0], odds / odds.sum(1, keepdims=True), atol=0.02)
