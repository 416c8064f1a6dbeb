"""CatBoost: a `*.cbm`, as `save_model` writes it."""

from collections.abc import Collection, Mapping
from typing import Any

import catboost
import numpy as np

from cluster_serving.job.models.base import cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tabular.features import Features
from cluster_serving.job.models.tabular.model import LABEL, PROBABILITIES, VALUE, TabularModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
from cluster_serving.protocol.inputs import Array

_CLASSIFIED = {LABEL: "Class", PROBABILITIES: "Probability"}
"""Output → what CatBoost calls it."""


class CatBoostModel(TabularModel):
    """A model whose answers are those of `CatBoostClassifier`, or else of `CatBoostRegressor`.

    NaN is a missing number. Categories are texts, or whole numbers and truth values that stand for them; with one of
    them each feature is an input of its own.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        path = files.paths[0]
        # Its answers follow the loss: for Poisson, say, they are counts, and those of the base class logarithms.
        model = catboost.CatBoostRegressor()
        try:
            model.load_model(str(path))
        except catboost.CatBoostError as error:
            raise ModelError(
                f"{path} is not a model of CatBoost {catboost.__version__}, or it is cut off: write it again with "
                f"save_model('model.cbm') ({cause(error)})"
            ) from error
        self._loaded = model
        self._threads = options.thread_per_model
        self._is_classifier = len(model.classes_) > 0
        names = [str(name) for name in model.feature_names_]
        texts = {names[at]: "" for at in (*model.get_cat_feature_indices(), *model.get_text_feature_indices())}
        # A feature without a name has its number.
        named = names if texts or names != [str(at) for at in range(len(names))] else ()
        if vectors := [names[at] for at in model.get_embedding_feature_indices()]:
            raise ModelError(
                f"{path} has features that are vectors, {', '.join(vectors)}, of which it does not tell the length: "
                "train it with a column for each number, or write a handler (docs/how-to/handlers.md)"
            )
        self._texts = [(at, name) for at, name in enumerate(names) if name in texts]
        self._serve(Features(named, len(names), options, texts=texts, takes_codes=True), options)

    def _answers(self, table: Array, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        for at, name in self._texts:
            if None in table[:, at].tolist():
                raise InvalidInput(f"input {name!r} is a missing value, and CatBoost takes no missing text")
        if not self._is_classifier:
            return {VALUE: self._loaded.predict(table, thread_count=self._threads)}
        return {name: self._classified(table, _CLASSIFIED[name]) for name in wanted or _CLASSIFIED}

    def _classified(self, table: Array, kind: str) -> Array:
        found = np.asarray(self._loaded.predict(table, prediction_type=kind, thread_count=self._threads))
        # Of several classes, each label is a row of one; of several labels it is not.
        return found[:, 0] if kind == _CLASSIFIED[LABEL] and found.shape[1:] == (1,) else found
