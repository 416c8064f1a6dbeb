"""The Flink function around a model, without Flink; tests/e2e has the whole."""

import gc
import weakref

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.inference import Inference
from cluster_serving.job.options import JobOptions, ModelOptions
from tests.support.fixtures.flink_context import Context
from tests.support.payloads import model_zoo


def test_a_model_is_freed_when_flink_drops_its_function(redis_server, db, job, tmp_path):
    """Flink closes no function of a cancelled job, and the next model may need the memory."""
    model_zoo.save_openvino_digits(tmp_path)
    function = Inference(
        JobOptions("start", ModelOptions(str(tmp_path), thread_per_model=2), RedisOptions(redis_server.url, job))
    )
    function.open(Context())
    model, closed = weakref.ref(function._model.predictor.servable.model), []
    function._model.predictor.servable.model.close = lambda: closed.append(True)
    gc.collect()
    gc.disable()
    try:
        del function
        assert closed == [True]
        assert model() is None
    finally:
        gc.enable()
