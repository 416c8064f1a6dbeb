"""Every engine, every dtype it knows: what goes in comes out, of the same dtype, for any batch."""

from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InferenceFailed
from tests.support.payloads.engines import ENGINES

VALUES = {
    "float32": [[0.5, -2.25, np.inf], [np.nan, 1e-38, 3.0]],
    "int64": [[1 << 62, -(1 << 62) + 1, 0], [1, 2, 3]],
    "uint8": [[0, 255, 128], [1, 2, 3]],
    "bool": [[True, False, True], [False, False, True]],
    "str": [["", "zwölf", "two words"], ["a", "b", "ü" * 300]],
}
# On a CPU OpenVINO computes int64 as int32.
SMALL = [[(1 << 31) - 1, -(1 << 31), 0], [1, 2, 3]]


@pytest.mark.parametrize(("engine", "dtype"), [(name, d) for name, e in ENGINES.items() for d in e.dtypes])
def test_values_pass_unchanged(tmp_path, engine, dtype):
    ENGINES[engine].save_twice(tmp_path, dtype, (3,))
    model = load_model(ModelOptions(str(tmp_path)))
    assert model.engine == engine
    if model.inputs[0].dtype:
        assert model.inputs[0].dtype == dtype
    for batch in (1, 3, 32):
        values = SMALL if engine == "OpenVINO" and dtype == "int64" else VALUES[dtype]
        x = np.array(values * 16, object if dtype == "str" else dtype)[:batch]
        (y,) = model.predict([x])
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, np.concatenate([x, x], 1))
        y[...] = x[0, 0]  # writable, and no view of what came in
        assert y.base is None or not np.shares_memory(y, x)
    model.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_other_dtypes_are_not_cast_silently(tmp_path, engine):
    ENGINES[engine].save_twice(tmp_path, "float32", (3,))
    model = load_model(ModelOptions(str(tmp_path), input_shapes=((3,),)))
    for dtype in ("float64", "int32", "uint8", "object"):
        with pytest.raises(InferenceFailed, match=f"input '.*' is {dtype}; the model expects .*: float32"):
            model.predict([np.ones((2, 3), dtype)])
