"""What a predictor computes with: loaded, tried and closed."""

import pytest

from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.servable import ServedModel
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from cluster_serving.protocol.figures.counts import Counts


class Refusing(Model):
    engine = "Python"

    def __init__(self, error):
        self.inputs = [TensorSpec("x", "float32", (None, 2))]
        self.outputs = []
        self._error = error

    def _run(self, inputs):
        raise self._error


@pytest.mark.parametrize("error", [InferenceFailed("out of memory"), InvalidInput("0 is no category")])
def test_a_model_that_refuses_zeros_cannot_be_loaded(error):
    with pytest.raises(ModelError, match=f"fails on a batch of zeros: .*{error}"):
        ServedModel(Refusing(error), Counts())
