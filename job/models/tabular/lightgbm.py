"""LightGBM: a `model.txt`, as `save_model` of a booster writes it."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster_serving.job.models.base import cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.lean import lean
from cluster_serving.job.models.tabular.categories import Categories
from cluster_serving.job.models.tabular.features import VECTOR, Features
from cluster_serving.job.models.tabular.model import VALUE, TabularModel, classified
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

if TYPE_CHECKING:
    import lightgbm
else:
    lightgbm = lean("lightgbm", without=("dask", "matplotlib", "pandas", "sklearn"))

_CLASSIFIERS = ("binary", "multiclass", "multiclassova")
_OBJECTIVE = re.compile(r"^objective=(\w+)", re.MULTILINE)
_CATEGORICAL = re.compile(r"^\[categorical_feature: ([\d,]*)\]", re.MULTILINE)
_INFOS = re.compile(r"^feature_infos=(.*)$", re.MULTILINE)
_SIZES = re.compile(r"^tree_sizes=.*\n", re.MULTILINE)
_COLUMN = re.compile(r"Column_\d+")
"""Name that LightGBM gives to a feature without one."""


class LightGBMModel(TabularModel):
    """A booster. Its answers are those of `LGBMClassifier` with classes from 0, and of `LGBMRegressor`.

    NaN is a missing value; for a model trained without one, LightGBM reads it as 0. Columns of a data frame with
    categories take these, and a vector has their codes.
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
        self.has_pool = options.thread_per_model > 1
        objective = _OBJECTIVE.search(text)
        self._is_classifier = objective is not None and objective[1] in _CLASSIFIERS
        names = booster.feature_name()
        named = () if all(map(_COLUMN.fullmatch, names)) else names
        categories = _categories(booster, text, path) if named and options.inputs != (VECTOR,) else {}
        self._serve(Features(named, booster.num_feature(), options, categories=categories), options)

    def _answers(self, table: Array, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        values = np.asarray(self._loaded.predict(table, num_threads=self._threads))
        return classified(values) if self._is_classifier else {VALUE: values}


def _categories(booster: Any, text: str, path: Path) -> dict[str, Categories]:
    """Return the categories of the columns of a data frame, which the file has in their order, without their names.

    A column of ordered categories has some, and the file does not say so. A column of numbers that was named as one of
    categories has no categories. What the training has seen of each column tells where the two were confused.

    Raises:
        ModelError: If the file does not tell which columns have the categories.
    """
    lists = booster.pandas_categorical or ()
    if not lists:
        return {}
    names, seen = booster.feature_name(), _seen(text)
    found = _CATEGORICAL.search(text)
    columns = [int(at) for at in found[1].split(",") if at] if found else []
    pairs = [*zip(columns, lists, strict=False)]
    fit = len(lists) == len(columns) and all((seen[at] or set()) <= {-1.0, *range(len(known))} for at, known in pairs)
    if not fit:
        raise ModelError(
            f"{path} has the categories of {len(lists)} columns of a data frame and says of {len(columns)} columns "
            f"({', '.join(names[at] for at in columns)}) that they have some, and not of all columns which: some are "
            "ordered, or were numbers; set inputs: x, and send the codes of the categories"
        )
    # An ordered column beside one of numbers may have the same codes; then a value of another column is refused.
    others = {at for at in range(len(lists)) if not _may_be_of_another(lists[at], columns, seen)}
    return {names[at]: Categories(values, takes_others=place in others) for place, (at, values) in enumerate(pairs)}


def _seen(text: str) -> list[set[float] | None]:
    """Return the values that the training has seen of each column: the ends of a range, categories, or None."""
    infos = _INFOS.search(text)
    return [
        None if info == "none" else {float(value) for value in info.strip("[]").split(":")}
        for info in (infos[1].split() if infos else ())
    ]


def _may_be_of_another(values: Sequence[Any], columns: Sequence[int], seen: Sequence[set[float] | None]) -> bool:
    """Return True if categories that are numbers may be those of a column that the file does not name."""
    if isinstance(values[0], str) or list(values) == [*range(len(values))]:
        return False
    ends = {0.0, len(values) - 1.0}
    return any(at not in columns and found == ends for at, found in enumerate(seen))
