"""LightGBM: a `model.txt`, as `save_model` of a booster writes it."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import lightgbm
import numpy as np

from cluster_serving.job.models.base import cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tabular.features import Features
from cluster_serving.job.models.tabular.model import VALUE, TabularModel, classified
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

_CLASSIFIERS = ("binary", "multiclass", "multiclassova")
_OBJECTIVE = re.compile(r"^objective=(\w+)", re.MULTILINE)
_SIZES = re.compile(r"^tree_sizes=.*\n", re.MULTILINE)
_COLUMN = re.compile(r"Column_\d+")
"""Name that LightGBM gives to a feature without one."""


class LightGBMModel(TabularModel):
    """A booster. Its answers are those of `LGBMClassifier` with classes from 0, and of `LGBMRegressor`.

    NaN is a missing value. Categories are numbers, their codes.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        path = files.paths[0]
        text = path.read_text("utf8", "replace")
        if not text.startswith("tree\n") or "\nend of trees" not in text:
            raise ModelError(
                f"{path} is not a model of LightGBM, or it is cut off: write it again with "
                "booster.save_model('model.txt'), not with pickle"
            )
        try:
            # With their sizes, trees are read in several threads, where a damaged one ends the process.
            booster = lightgbm.Booster(model_str=_SIZES.sub("", text))
        except lightgbm.basic.LightGBMError as error:
            raise ModelError(f"LightGBM {lightgbm.__version__} cannot load {path}: {cause(error)}") from error
        self._loaded = booster
        self._threads = options.thread_per_model
        objective = _OBJECTIVE.search(text)
        self._is_classifier = objective is not None and objective[1] in _CLASSIFIERS
        names = booster.feature_name()
        named = () if all(map(_COLUMN.fullmatch, names)) else names
        self._serve(Features(named, booster.num_feature(), options.inputs), options)

    def _answers(self, table: Array, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        values = np.asarray(self._loaded.predict(table, num_threads=self._threads))
        return classified(values) if self._is_classifier else {VALUE: values}
