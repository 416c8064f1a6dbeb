"""A loaded model with what comes before and after it, without Flink."""

import numpy as np

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.options import BatchOptions, JobOptions, ModelOptions
from cluster_serving.job.predictor import Predictor
from tests.support import model_zoo


def predictor(folder, post_processing, already_batched=False, **model):
    return Predictor(
        JobOptions(
            "start",
            ModelOptions(str(folder), **model),
            RedisOptions("redis://localhost"),
            BatchOptions(input_already_batched=already_batched),
            post_processing=post_processing,
        )
    )


def save_doubling(folder, *record_shape):
    """`x` float32 [?, *record_shape] → `y`, twice that."""
    from openvino import opset13 as ops

    x = ops.parameter([-1, *record_shape], np.float32, name="x")
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float32(2)))})
