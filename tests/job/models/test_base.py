from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models import Model, TensorSpec, dummy_inputs
from cluster_serving.job.models.base import cause
from cluster_serving.protocol.errors import InferenceFailed


class Fake(Model):
    """A model that does what a test tells it."""

    engine = "Fake"

    def __init__(self, run, shape=(None, 2)):
        self.inputs = [TensorSpec("x", "float32", shape)]
        self.outputs = [TensorSpec("y", "float32", None)]
        self._compute = run

    def _run(self, inputs):
        return self._compute(*inputs)

    def close(self):
        pass


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TensorSpec("x", "float32", (None, 3, 224, 224)), "x: float32[?, 3, 224, 224]"),
        (TensorSpec("s", "str", (None,)), "s: str[?]"),
        (TensorSpec("input", "", None), "input: any[...]"),
    ],
)
def test_a_spec_reads_as_people_write_it(spec, text):
    assert str(spec) == text


def test_the_shape_of_a_record_lacks_the_batch():
    assert TensorSpec("x", "float32", (None, 3, None)).record_shape == (3, None)
    assert TensorSpec("x", "float32", (None,)).record_shape == ()
    assert TensorSpec("x", "float32", None).record_shape is None


def test_dummy_inputs_fit_the_specs():
    specs = [TensorSpec("a", "int64", (None, 3, None)), TensorSpec("s", "str", (4, 2)), TensorSpec("u", "", (None,))]
    a, s, u = dummy_inputs(specs, batch=5)
    assert (a.shape, a.dtype) == ((5, 3, 1), np.int64)
    assert s.tolist() == [["", ""]] * 5
    assert (u.shape, u.dtype) == ((5,), np.float32)


def test_there_are_no_dummy_inputs_for_an_unknown_shape():
    assert dummy_inputs([TensorSpec("a", "int64", None)], batch=1) is None


def test_an_engines_failure_names_the_cause_and_what_the_model_expects():
    def fail(x):
        raise RuntimeError("mat1 and mat2\n  cannot be multiplied")

    with pytest.raises(
        InferenceFailed, match=r"Fake failed: mat1 and mat2 cannot be multiplied; the model expects x: float"
    ):
        Fake(fail).predict([np.zeros((1, 2), np.float32)])


def test_warming_up_computes_a_batch():
    batches = []
    assert Fake(lambda x: batches.append(x.shape) or [x]).warm_up(8)
    assert batches == [(8, 2)]


def test_warming_up_does_nothing_where_the_shape_is_unknown():
    assert not Fake(None, shape=None).warm_up(8)


def test_a_failing_warm_up_counts_only_if_no_dimension_was_guessed():
    def fail(x):
        raise RuntimeError("too small")

    assert not Fake(fail, shape=(None, 3, None, None)).warm_up(1)
    with pytest.raises(InferenceFailed, match="too small"):
        Fake(fail, shape=(None, 3, 8, 8)).warm_up(1)


def test_the_cause_of_an_error_of_openvino_names_none_of_its_own_files():
    lines = ["Exception from src/a/core.cpp:84:", "Check 'a.b(c('d'))' failed at src/b/e.cpp:385:", "Can't set it\n\n"]
    assert cause(RuntimeError("\n".join(lines))) == "Can't set it"


def test_the_cause_of_a_long_error_keeps_its_end():
    text = cause(RuntimeError("start " + "trace " * 1000 + "the reason"))
    assert len(text) < 900
    assert text.startswith("start")
    assert text.endswith("the reason")
