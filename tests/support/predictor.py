"""A loaded model with what comes before and after it, without Flink."""

import numpy as np

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.job.options import BatchOptions, ImageOptions, JobOptions, ModelOptions
from cluster_serving.job.predictor import Predictor
from tests.support import model_zoo


def predictor(folder, post_processing, already_batched=False, image=None, **model):
    return Predictor.of(
        JobOptions(
            "start",
            ModelOptions(str(folder), **model),
            RedisOptions("redis://localhost"),
            BatchOptions(input_already_batched=already_batched),
            image or ImageOptions(),
            post_processing=post_processing,
        )
    )


def save_doubling(folder, *record_shape):
    """`x` float32 [?, *record_shape] → `y`, twice that."""
    from openvino import opset13 as ops

    x = ops.parameter([-1, *record_shape], np.float32, name="x")
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float32(2)))})


def save_overlapping(folder):
    """`x` float32 [?, 3, 64, 64] → `y` [?, 1], of which two are computed at a time; it fails if `x` begins with 6."""
    from openvino import opset13 as ops

    x = ops.parameter([-1, 3, 64, 64], np.float32, name="x")
    kernel = ops.constant(np.full((64, 3, 7, 7), 0.01, "f4"))
    h = ops.convolution(x, kernel, [1, 1], [3, 3], [3, 3], [1, 1])
    # Of one row more than the first number says, and all rows have to be equally long.
    rows = ops.convert(ops.slice(ops.reshape(x, [-1], False), [0], [1], [1]), "i64") + np.int64(1)
    table = ops.reshape(h, ops.concat([rows, ops.constant(np.array([-1]))], 0), False)
    count = ops.slice(ops.shape_of(x), [0], [1], [1])
    size = ops.concat([count, ops.constant(np.array([1]))], 0)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.broadcast(ops.reduce_max(table, [0, 1], False), size)})
