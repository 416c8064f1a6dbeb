from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo, writers
from tests.support.payloads.engines.engine import HEIGHT, WIDTH, Engine, Shape


def save_twice(folder: Path, dtype: str, shape: Shape) -> None:
    both = writers.bigdl_module("Identity"), writers.bigdl_module("Identity")
    writers.save_bigdl(folder, writers.bigdl_module("Concat", "y", {"dimension": 2}, modules=both))


def save_row_means(folder: Path) -> None:
    sizes = {"kW": WIDTH, "kH": 1, "dW": 1, "dH": 1, "padW": 0, "padH": 0, "ceilMode": False, "format": 0}
    means = writers.bigdl_module("SpatialAveragePooling", "m", sizes | {"countIncludePad": True, "divide": True})
    table = writers.bigdl_module("Reshape", "y", {"size": [3, HEIGHT], "batchMode": 2})
    writers.save_bigdl(folder, writers.bigdl_module("Sequential", modules=(means, table)))


def call(folder: Path, x: np.ndarray, output: str) -> Any:
    """Return the answer of numpy: BigDL itself needs Spark. Its layers are compared with PyTorch's in test_model.py."""
    if output == "probabilities":
        return model_zoo.digits_mlp(x)
    return x.mean(3) if x.ndim == 4 else np.concatenate([x, x], 1)


ENGINES = {"BigDL": Engine("*.model", model_zoo.save_bigdl_digits, save_twice, ("float32",), save_row_means, call)}
