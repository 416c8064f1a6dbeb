"""scikit-learn: a `*.skops`, as `skops.io.dump` writes it, of which no code is run."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import skops.io
from threadpoolctl import threadpool_limits

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tabular.features import Features
from cluster_serving.job.models.tabular.model import LABEL, PROBABILITIES, VALUE, TabularModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

_DATA = (
    *("numpy.dtype", "sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"),
    *("sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree"),
    *(f"sklearn.metrics._dist_metrics.{name}Distance64" for name in ("Euclidean", "Manhattan", "Minkowski")),
    *(f"sklearn.calibration.{name}" for name in ("_CalibratedClassifier", "_SigmoidCalibration")),
    *("sklearn.neural_network._stochastic_optimizers.AdamOptimizer", "sklearn._loss.loss.HalfTweedieLossIdentity"),
)
"""Types that skops leaves to its user: parts of scikit-learn's own estimators, which are data and run no code."""


class ScikitLearnModel(TabularModel):
    """A classifier, regressor or transformer, or a pipeline that ends with one.

    NaN is a missing value for the estimators that take it. A pipeline that begins with a vectorizer takes texts.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        path = files.paths[0]
        unknown = skops.io.get_untrusted_types(file=path)
        if refused := sorted({*unknown} - {*_DATA}):
            raise ModelError(
                f"{path} holds the types {', '.join(refused)}, which are not scikit-learn's and may run code; save the "
                "model without them, or write a handler that loads it (docs/how-to/handlers.md)"
            )
        self._loaded = model = skops.io.load(path, trusted=unknown)
        # BLAS and OpenMP have one number of threads per process, the estimators their own.
        threadpool_limits(options.thread_per_model)
        jobs = [name for name in model.get_params() if name.rpartition("__")[2] == "n_jobs"]
        model.set_params(**dict.fromkeys(jobs, options.thread_per_model))
        self._names = [str(name) for name in getattr(model, "feature_names_in_", ())]
        self._calls = _calls(model)
        self._serve(_features(model, self._names, options), options)

    def _table(self, inputs: Sequence[Array]) -> Any:
        if not self._names:
            return inputs[0]
        # Imported here: a model without names does not need it.
        import pandas as pd

        columns = self._features.named(inputs)
        return pd.DataFrame(columns) if columns else pd.DataFrame(inputs[0], columns=self._names)

    def _answers(self, table: Any, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        return {name: self._calls[name](table) for name in wanted or self._calls}


def _features(model: Any, names: Sequence[str], options: ModelOptions) -> Features:
    texts = {name: text for name, text in _texts(_first(model)) if name in names}
    features = Features(names, getattr(model, "n_features_in_", None), options, texts=texts)
    if hasattr(_first(model), "build_analyzer"):
        # A vectorizer takes one text a row.
        features.inputs = [TensorSpec("text", "str", (None,))]
    return features


def _first(model: Any) -> Any:
    """Return the first step of a pipeline; anything else is its own."""
    return model.steps[0][1] if hasattr(model, "steps") else model


def _texts(model: Any) -> Iterator[tuple[str, str]]:
    """Return the columns for which an encoder in a `ColumnTransformer` has learned texts, with one of these."""
    for _, transformer, columns in getattr(model, "transformers_", ()):
        for _, step in getattr(transformer, "steps", [("", transformer)]):
            for column, known in zip(np.atleast_1d(columns), getattr(step, "categories_", ()), strict=False):
                if texts := [text for text in known if isinstance(text, str)]:
                    yield str(column), texts[0]


def _calls(model: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the methods that compute the outputs, by name."""
    if hasattr(model, "classes_"):
        calls = {LABEL: model.predict}
        return calls | ({PROBABILITIES: model.predict_proba} if hasattr(model, "predict_proba") else {})
    return {VALUE: model.predict} if hasattr(model, "predict") else {"y": model.transform}
