"""Ray Data computes a model over rows; the argument is the model."""

import sys

import numpy as np
import ray

from cluster_serving import Predictor

x = np.arange(300, dtype="float32").reshape(100, 3)
rows = ray.data.from_numpy(x).rename_columns({"data": "x"})
answers = rows.map_batches(
    Predictor, fn_constructor_args=[sys.argv[1]], batch_format="numpy", batch_size=32, concurrency=1
)
found = np.stack([row["y"] for row in answers.take_all()])
assert sorted(found.tolist()) == (2 * x).tolist()
print("as expected")
