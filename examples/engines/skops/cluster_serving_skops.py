"""An engine for Cluster Serving: scikit-learn models that `skops.io.dump` saved as `*.skops`.

A request has the input `x`, float64 [features]. A classifier gives `label` and, if it can, `probabilities`; a regressor
gives `value`; anything else `y`, the result of `transform`. skops runs no code of the file, and refuses types that it
does not know, such as classes of your own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.job.models import Format, Model, ModelFiles, ModelOptions, TensorSpec

FORMAT = Format(
    engine="scikit-learn",
    loader="cluster_serving_skops:SkopsModel",
    package="skops",
    parts=(("*.skops",),),
)


class SkopsModel(Model):
    """A classifier, regressor or transformer, or a pipeline that ends with one."""

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        # Imported here: this module is imported for every model, to know its format.
        import skops.io
        from threadpoolctl import threadpool_limits

        self.engine = files.format.engine
        path = files.paths[0]
        if unknown := skops.io.get_untrusted_types(file=path):
            raise ValueError(f"it holds the types {', '.join(unknown)}, which may run code")
        threadpool_limits(options.thread_per_model)
        self._loaded = skops.io.load(path)
        features = getattr(self._loaded, "n_features_in_", None)
        self.inputs = [TensorSpec("x", "float64", (None, features))]
        self._calls = self._calls_of(self._loaded)
        # The outputs of a model that is loaded are those of any record.
        zeros = np.zeros((1, features or 1))
        self.outputs = [self._spec(name, call(zeros)) for name, call in self._calls.items()]

    def _run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [self._array(call(inputs[0])) for call in self._calls.values()]

    @staticmethod
    def _calls_of(model: Any) -> dict[str, Any]:
        """Return the methods that compute the outputs, by name."""
        if hasattr(model, "classes_"):
            calls = {"label": model.predict}
            return calls | ({"probabilities": model.predict_proba} if hasattr(model, "predict_proba") else {})
        return {"value": model.predict} if hasattr(model, "predict") else {"y": model.transform}

    @classmethod
    def _spec(cls, name: str, sample: Any) -> TensorSpec:
        array = cls._array(sample)
        return TensorSpec(name, "str" if array.dtype == object else array.dtype.name, (None, *array.shape[1:]))

    @staticmethod
    def _array(result: Any) -> np.ndarray:
        dense = result.toarray() if hasattr(result, "toarray") else np.asarray(result)
        return dense.astype(object) if dense.dtype.kind == "U" else dense
