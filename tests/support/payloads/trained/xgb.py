"""Models of XGBoost: each class, objective, booster and form of the file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xgboost

from tests.support.payloads.trained import frames
from tests.support.payloads.trained.model import LABEL, PROBABILITIES, VALUE, Case, Trained, of_classifier, of_regressor

_FEW = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1, "enable_categorical": True}

_TARGETS: dict[str, Callable[[], Any]] = {
    "binary": lambda: frames.classes(2),
    "classes": lambda: frames.classes(3),
    "labels": frames.labels,
    "number": frames.score,
    "numbers": lambda: np.stack([frames.score(), -frames.score()], 1),
    "count": lambda: frames.classes(5) + 1,
}

_CLASSIFIERS = (
    *(("binary:logistic", "binary"), ("binary:logitraw", "binary"), ("binary:hinge", "binary")),
    *(("multi:softprob", "classes"), ("multi:softmax", "classes"), ("binary:logistic", "labels")),
    *(("reg:logistic", "binary"), ("binary:hinge", "labels"), ("binary:logitraw", "labels")),
)
_REGRESSORS = (
    *(("reg:squarederror", "number"), ("reg:squarederror", "numbers"), ("reg:squaredlogerror", "number")),
    *(("reg:logistic", "number"), ("reg:pseudohubererror", "number"), ("reg:absoluteerror", "number")),
    *(("reg:quantileerror", "number"), ("reg:absoluteerror", "numbers"), ("count:poisson", "count")),
    *(("survival:cox", "number"), ("reg:gamma", "number"), ("reg:tweedie", "number"), ("binary:logistic", "binary")),
)
_RANKERS = ("rank:ndcg", "rank:pairwise", "rank:map")
_OF_BOOSTERS = (
    *((name, "binary") for name in ("binary:logistic", "binary:logitraw", "binary:hinge", "reg:logistic")),
    *(("multi:softprob", "classes"), ("multi:softmax", "classes"), ("survival:aft", "number")),
    *(("reg:squarederror", "number"), ("count:poisson", "count")),
)
_USUAL = (
    *((xgboost.XGBClassifier, "binary"), (xgboost.XGBClassifier, "classes")),
    (xgboost.XGBRegressor, "number"),
)
_FORMS = ("model.ubj", "model.json")


def rows_of(kind: str) -> Any:
    """Return the rows of a kind of table; texts are categories, as XGBoost takes no others."""
    if kind == "mixed":
        return frames.mixed().astype({"colour": "category"})
    return frames.holes() if kind == "holes" else frames.numbers()


def _of_class(make: Callable[..., Any], target: str, table: str, file: str, **options: Any) -> Trained:
    rows, y = rows_of(table), _TARGETS[target]()
    if options.get("objective") == "reg:quantileerror":
        options["quantile_alpha"] = [0.2, 0.8]
    if issubclass(make, xgboost.XGBRanker):
        grades = frames.GRADES > 1 if options["objective"] == "rank:map" else frames.GRADES
        model = make(**_FEW | options).fit(rows, grades, group=frames.GROUPS)
    else:
        model = make(**_FEW | options).fit(rows, y)
    is_classifier = issubclass(make, xgboost.XGBClassifier)
    answers = of_classifier(model) if is_classifier else of_regressor(model)
    missing = options.get("missing", np.nan)
    keys = () if np.isnan(missing) else (("missing_value", missing),)
    return Trained(rows, lambda folder: model.save_model(folder / file), answers, keys)


def _of_booster(objective: str, target: str, table: str, **options: Any) -> Trained:
    rows, y = rows_of(table), _TARGETS[target]()
    data = xgboost.DMatrix(rows, y, enable_categorical=True)
    if objective == "survival:aft":
        data.set_float_info("label_lower_bound", y)
        data.set_float_info("label_upper_bound", y + 1)
    options = {"objective": objective, "max_depth": 3, "nthread": 1, **options}
    booster = xgboost.train(options | ({"num_class": 3} if target == "classes" else {}), data, 4)

    def answers(rows: Any) -> dict[str, Any]:
        found = booster.predict(xgboost.DMatrix(rows, enable_categorical=True))
        if objective == "multi:softmax":
            return {LABEL: found}
        if objective == "multi:softprob":
            return {LABEL: found.argmax(1), PROBABILITIES: found}
        if objective == "binary:logistic":
            return {LABEL: found > 0.5, PROBABILITIES: np.stack([1 - found, found], 1)}
        return {VALUE: found}

    return Trained(rows, lambda folder: booster.save_model(folder / "model.ubj"), answers)


def _early(make: Callable[..., Any], target: str) -> Trained:
    rows, y = rows_of("mixed"), _TARGETS[target]()
    model = make(**_FEW | {"n_estimators": 40, "learning_rate": 1.0}, early_stopping_rounds=2)
    model.fit(rows[:60], y[:60], eval_set=[(rows[60:], y[60:])], verbose=False)
    answers = of_classifier(model) if issubclass(make, xgboost.XGBClassifier) else of_regressor(model)
    return Trained(rows, lambda folder: model.save_model(folder / "model.ubj"), answers)


def _own_objective(make: Callable[..., Any], target: str) -> Trained:
    """A class with an objective of its user, of which the file does not tell."""
    return _of_class(make, target, "holes", "model.ubj", objective=lambda y, found: (found - y, np.ones_like(y)))


def cases() -> list[Case]:
    """Return all cases of XGBoost."""
    found = []
    for make, objectives in (
        (xgboost.XGBClassifier, _CLASSIFIERS),
        (xgboost.XGBRegressor, _REGRESSORS),
        (xgboost.XGBRFClassifier, _CLASSIFIERS[:1] + _CLASSIFIERS[3:4]),
        (xgboost.XGBRFRegressor, _REGRESSORS[:2]),
        (xgboost.XGBRanker, tuple((name, "number") for name in _RANKERS)),
    ):
        for objective, target in objectives:
            for table in ("mixed", "holes"):
                for file in _FORMS:
                    name = f"{make.__name__} {objective} {target} {table} {file}"
                    train = partial(_of_class, make, target, table, file, objective=objective)
                    found.append(Case(name, train, is_quick=table == "mixed" and file == _FORMS[0]))
    for booster in ("dart", "gblinear"):
        for make, target in _USUAL:
            train = partial(_of_class, make, target, "numbers", "model.ubj", booster=booster)
            found.append(Case(f"{make.__name__} {booster} {target}", train, is_quick=True))
    for target in ("labels", "numbers"):
        make = xgboost.XGBClassifier if target == "labels" else xgboost.XGBRegressor
        train = partial(_of_class, make, target, "holes", "model.ubj", multi_strategy="multi_output_tree")
        found.append(Case(f"{make.__name__} multi_output_tree {target}", train, is_quick=True))
    for objective, target in _OF_BOOSTERS:
        for table in ("mixed", "holes"):
            train = partial(_of_booster, objective, target, table)
            found.append(Case(f"train {objective} {table}", train, is_quick=table == "mixed"))
    for make, target in _USUAL:
        found.append(Case(f"{make.__name__} stopped early {target}", partial(_early, make, target), is_quick=True))
        if target != "classes":
            own = partial(_own_objective, make, target)
            found.append(Case(f"{make.__name__} own objective {target}", own, is_quick=True))
    missing = partial(_of_class, xgboost.XGBRegressor, "number", "numbers", "model.ubj", missing=1.0)
    return [*found, Case("XGBRegressor missing", missing, is_quick=True)]
