"""Models of CatBoost: each class and loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import catboost
import numpy as np

from tests.support.payloads.trained import frames
from tests.support.payloads.trained.model import Case, Trained, of_classifier, of_regressor

_FEW = {"iterations": 4, "depth": 3, "thread_count": 1, "verbose": False, "allow_writing_files": False}
_CATEGORIES = ["size", "floor", "colour"]

_TARGETS: dict[str, Callable[[], Any]] = {
    "binary": lambda: frames.classes(2),
    "share": frames.score,
    "classes": lambda: frames.classes(3),
    "texts": lambda: np.array(["no", "maybe", "yes"])[frames.classes(3)],
    "labels": frames.labels,
    "number": frames.score,
    "numbers": lambda: np.stack([frames.score(), -frames.score()], 1),
    "times": lambda: np.stack([frames.score(), frames.score() + 1], 1),
}
_CLASSIFIERS = (
    *(("Logloss", "binary"), ("CrossEntropy", "share"), ("MultiClass", "classes"), ("MultiClassOneVsAll", "classes")),
    *(("MultiClass", "texts"), ("MultiLogloss", "labels"), ("MultiCrossEntropy", "labels")),
    *(("Focal:focal_alpha=0.5;focal_gamma=1.5", "binary"),),
)
_REGRESSORS = (
    *("RMSE", "MAE", "Quantile:alpha=0.3", "MultiQuantile:alpha=0.1,0.5", "LogLinQuantile", "Poisson", "MAPE"),
    *("Tweedie:variance_power=1.5", "Expectile:alpha=0.3", "Huber:delta=1.0", "Lq:q=3", "RMSEWithUncertainty"),
    *("LogCosh", "Cox"),
)
_SEVERAL = (("MultiRMSE", "numbers"), ("MultiRMSEWithMissingValues", "numbers"), ("SurvivalAft", "times"))
_RANKERS = (
    *("YetiRank", "PairLogit", "QueryRMSE", "QuerySoftMax", "YetiRankPairwise", "PairLogitPairwise"),
    *("StochasticRank:metric=NDCG", "LambdaMart"),
)


def rows_of(kind: str) -> Any:
    """Return the rows of a kind of table: CatBoost takes no missing texts, and texts for categories."""
    if kind == "mixed":
        found = frames.mixed().astype({"size": object, "colour": object, "floor": str})
        return found.fillna({"size": "", "colour": "?"})
    return frames.holes() if kind == "holes" else frames.numbers()


def _of_class(make: Callable[..., Any], target: Any, table: str, **options: Any) -> Trained:
    rows, y = rows_of(table), _TARGETS[target]()
    columns = {"cat_features": _CATEGORIES} if table == "mixed" else {}
    if options.pop("texts", False):
        columns = {"cat_features": _CATEGORIES[:2], "text_features": _CATEGORIES[2:]}
    if issubclass(make, catboost.CatBoostRanker):
        model = make(**_FEW | options)
        model.fit(catboost.Pool(rows, frames.GRADES / 3, group_id=np.arange(frames.ROWS) // 10, **columns))
    else:
        model = make(**_FEW | options | columns).fit(rows, y)
    is_classifier = issubclass(make, catboost.CatBoostClassifier)
    answers = of_classifier(model) if is_classifier else of_regressor(model)
    return Trained(rows, lambda folder: model.save_model(str(folder / "model.cbm")), answers)


def _of_truth_values() -> Trained:
    rows = rows_of("mixed")
    model = catboost.CatBoostRegressor(**_FEW, cat_features=[*_CATEGORIES, "is_new"]).fit(rows, frames.score())
    return Trained(rows, lambda folder: model.save_model(str(folder / "model.cbm")), of_regressor(model))


def cases() -> list[Case]:
    """Return all cases of CatBoost."""
    classes, numbers = catboost.CatBoostClassifier, catboost.CatBoostRegressor
    kinds = [
        *((classes, loss, target) for loss, target in _CLASSIFIERS),
        *((numbers, loss, "number") for loss in _REGRESSORS),
        *((numbers, loss, target) for loss, target in _SEVERAL),
        *((catboost.CatBoostRanker, loss, "number") for loss in _RANKERS),
    ]
    found = [Case("CatBoostRegressor truth values", _of_truth_values, is_quick=True)]
    for table in ("mixed", "holes"):
        for make, loss, target in kinds:
            train = partial(_of_class, make, target, table, loss_function=loss)
            found.append(Case(f"{make.__name__} {loss} {target} {table}", train, is_quick=table == "mixed"))
    for make, target in ((classes, "classes"), (numbers, "number")):
        train = partial(_of_class, make, target, "mixed", texts=True)
        found.append(Case(f"{make.__name__} texts", train, is_quick=True))
    return found
