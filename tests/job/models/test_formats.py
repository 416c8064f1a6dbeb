"""Engines of other distributions."""

import sys
from pathlib import Path

import pytest

from tests.support.fixtures.commands import run
from tests.support.worlds.distributions import install

EXAMPLES = Path(__file__).parents[3] / "examples"

FORMAT = """
    import numpy as np
    from cluster_serving.job.models import Format, Model, TensorSpec

    class Constant(Model):
        def __init__(self, files, options):
            self.engine = files.format.engine
            self.inputs = self.outputs = [TensorSpec("x", "float32", (None,))]
            self._value = float(files.paths[0].read_text())

        def _run(self, inputs):
            return [inputs[0] + np.float32(self._value)]

    FORMAT = Format("Constants", "constants:Constant", "numpy", (("*.number",),))
    """


def tried(tmp_path, *inputs):
    environment = {"PYTHONPATH": f"{tmp_path / 'site'}:{':'.join(sys.path)}", "CLUSTER_SERVING_HOME": str(tmp_path)}
    return run("cluster-serving-cli", "try", "model", *inputs, cwd=tmp_path, environment=environment)


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def test_an_engine_of_another_distribution_serves_its_files(tmp_path, model):
    install(tmp_path / "site", "my-constants", FORMAT, "constants = constants:FORMAT")
    (model / "a.number").write_text("2")
    done = tried(tmp_path, "--input", "x=1")
    assert "Constants on cpu: x: float32[?] → x: float32[?]" in done.stdout, done.stdout + done.stderr
    assert "x: float32[] 3." in done.stdout
    # A handler calls it as any engine.
    (model / "handler.py").write_text("class Handler:\n  def postprocess(self, r): return {'twice': r['x'] * 2}")
    assert "twice: float32[] 6." in tried(tmp_path, "--input", "x=1").stdout


def test_a_broken_engine_keeps_no_other_model_from_being_served(tmp_path, model):
    install(tmp_path / "site", "my-constants", "raise RuntimeError('broken')", "constants = constants:FORMAT")
    (model / "handler.py").write_text("class Handler:\n  def predict(self, b): return b")
    (model / "a.number").write_text("2")
    done = tried(tmp_path, "--input", "x=1")
    assert "the engine constants of the distribution my-constants cannot be used" in done.stderr
    assert done.returncode == 0, done.stdout


def test_the_example_serves_models_of_tensorflow_lite(tmp_path, model):
    import tensorflow as tf

    matrix = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    function = tf.function(lambda x: {"y": x @ matrix}, input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    (model / "product.tflite").write_bytes(converter.convert())
    example = EXAMPLES / "engines" / "litert"
    install(tmp_path / "site", "cluster-serving-litert", example / "cluster_serving_litert.py", _entry_point(example))
    done = tried(tmp_path, "--input", "x=[1, 0, 2]")
    assert "LiteRT on cpu: x: float32[?, 3] → " in done.stdout, done.stdout + done.stderr
    assert "float32[2] [11., 14.]" in done.stdout
    # Records share calls.
    assert "one record" not in done.stdout
    assert len((example / "cluster_serving_litert.py").read_text().splitlines()) < 100


def _entry_point(example):
    section = (example / "pyproject.toml").read_text().partition('"cluster_serving.engines"]\n')[2]
    return section.partition("\n")[0].replace('"', "")
