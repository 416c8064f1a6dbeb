"""A watched predictor: the answers after the first difference are those of records alone."""

import numpy as np
import pytest

from cluster_serving.job.models.batched.watch import Watch
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.protocol.figures.counts import Counts
from tests.support.fixtures.handled import write
from tests.support.payloads.mixing import REASON, alone, records, save

HANDLER = """
    class Handler:
        def preprocess(self, record):
            return record

        def postprocess(self, outputs):
            outputs["output"] *= 1
            return outputs
    """


def answers(predictor, x):
    return np.stack([outputs["output"] for outputs in predictor.predict([{"x": row} for row in x])])


@pytest.mark.parametrize("timeout", [None, 30.0])
@pytest.mark.parametrize("handler", ["", HANDLER])
def test_a_difference_ends_sharing(tmp_path, handler, timeout):
    save(tmp_path)
    if handler:
        write(tmp_path, handler)
    watch, x = Watch(Counts()), records(9)
    options = ModelOptions(str(tmp_path), input_shapes=((4,),), inference_timeout_s=timeout)
    with Predictor(options, watch=watch) as predictor:
        assert predictor.report().one_by_one == ""
        assert not np.allclose(answers(predictor, x), alone(x))
        predictor.check()
        assert predictor.report().one_by_one == REASON
        np.testing.assert_allclose(answers(predictor, x), alone(x), rtol=1e-5)
    with Predictor(options, watch=watch) as later:
        np.testing.assert_allclose(answers(later, x), alone(x), rtol=1e-5)


def test_calls_of_a_handler_are_its_own(tmp_path):
    save(tmp_path)
    write(
        tmp_path,
        """
        class Handler:
            def load(self, context):
                self.model = context.load("model.pt", input_shapes=[[4]])

            def predict(self, batch):
                return self.model(batch)
        """,
    )
    watch, x = Watch(Counts()), records(9)
    with Predictor(tmp_path, watch=watch) as predictor:
        shared = answers(predictor, x)
        predictor.check()
        np.testing.assert_array_equal(answers(predictor, x), shared)
    assert not watch.ended
