"""XGBoost: a `*.ubj`, `*.json` or `*.model`, as `save_model` writes them."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import xgboost

from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tabular.features import Features
from cluster_serving.job.models.tabular.model import VALUE, TabularModel, classified
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

_BEGINNING = b"learner"
"""First key of JSON and of UBJSON."""

_CLASSIFIERS = ("binary:logistic", "multi:softprob")


class XGBoostModel(TabularModel):
    """A booster. Its answers are those of `XGBClassifier` and `XGBRegressor`, or of `Booster.predict`.

    NaN is a missing value. Categories are numbers, their codes.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        path = files.paths[0]
        content = bytearray(path.read_bytes())
        try:
            # Another file may end the process.
            if _BEGINNING not in content[:32]:
                raise xgboost.core.XGBoostError("it does not begin with a learner")
            # From memory, since the extension would decide how a file is read.
            booster = xgboost.Booster({"nthread": options.thread_per_model}, model_file=content)
            booster.set_param({"nthread": options.thread_per_model})
            learner = json.loads(booster.save_config())["learner"]
        except xgboost.core.XGBoostError as error:
            raise ModelError(
                f"{path} is not a model of XGBoost {xgboost.__version__}, or it is cut off: write it again with "
                f"save_model('model.ubj'), not with pickle ({str(error).strip().splitlines()[0]})"
            ) from error
        self._loaded = booster
        self._objective = learner["objective"]["name"]
        if self._objective == "multi:softmax":
            # It gives the class alone, and the same trees give the probabilities.
            self._objective = "multi:softprob"
            booster.set_param({"objective": self._objective})
        self._is_linear = learner["gradient_booster"]["name"] == "gblinear"
        self._rounds = _rounds(booster)
        self._serve(Features(booster.feature_names or (), booster.num_features(), options.inputs, "float32"), options)

    def _answers(self, table: Array, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        values = self._predict(table)
        return classified(values) if self._objective in _CLASSIFIERS else {VALUE: values}

    def _predict(self, table: Array) -> Array:
        if self._is_linear:
            # Its booster cannot predict in place.
            matrix = xgboost.DMatrix(table, feature_names=self._loaded.feature_names, nthread=1)
            return np.asarray(self._loaded.predict(matrix))
        return np.asarray(self._loaded.inplace_predict(table, iteration_range=self._rounds))


def _rounds(booster: Any) -> tuple[int, int]:
    """Return the rounds that predict: of the scikit-learn interface up to the best one, of `xgboost.train` all."""
    best = booster.attr("best_iteration")
    return (0, int(best) + 1) if best and booster.attr("scikit_learn") else (0, 0)
