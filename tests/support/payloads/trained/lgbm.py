"""Models of LightGBM: each class, objective and way of boosting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import lightgbm
import numpy as np

from tests.support.payloads.trained import frames
from tests.support.payloads.trained.model import LABEL, PROBABILITIES, VALUE, Case, Trained, of_classifier, of_regressor

_FEW = {"n_estimators": 4, "num_leaves": 5, "min_child_samples": 5, "min_data_per_group": 5, "n_jobs": 1, "verbose": -1}

_CLASSIFIERS = (("binary", 2), ("multiclass", 3), ("multiclassova", 3))
_REGRESSORS = (
    *("regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie"),
    *("cross_entropy", "cross_entropy_lambda"),
)
_OF_BOOSTERS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("binary", lambda: frames.classes(2)),
    ("multiclass", lambda: frames.classes(3)),
    ("regression", frames.score),
)
_BOOSTING: dict[str, dict[str, Any]] = {
    "gbdt": {},
    "dart": {"boosting_type": "dart"},
    "rf": {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1},
    "goss": {"data_sample_strategy": "goss"},
    "linear": {"linear_tree": True},
}


def rows_of(kind: str) -> Any:
    """Return the rows of a kind of table; texts are categories, as LightGBM takes no others."""
    if kind == "mixed":
        return frames.mixed().astype({"colour": "category"})
    return frames.holes() if kind == "holes" else frames.numbers()


def _of_class(make: Callable[..., Any], y: Any, table: str, **options: Any) -> Trained:
    rows = rows_of(table)
    groups = {"group": frames.GROUPS} if issubclass(make, lightgbm.LGBMRanker) else {}
    model = make(**_FEW | options).fit(rows, y, **groups)
    return _saved(model, rows)


def _saved(model: Any, rows: Any) -> Trained:
    answers = of_classifier(model) if isinstance(model, lightgbm.LGBMClassifier) else of_regressor(model)
    return Trained(rows, lambda folder: model.booster_.save_model(folder / "model.txt"), answers)


def _early(make: Callable[..., Any], y: Any) -> Trained:
    rows = rows_of("mixed")
    model = make(**_FEW | {"n_estimators": 60, "learning_rate": 0.9})
    stop = lightgbm.early_stopping(2, verbose=False)
    return _saved(model.fit(rows[:60], y[:60], eval_set=[(rows[60:], y[60:])], callbacks=[stop]), rows)


def _of_booster(objective: str, y: Any, table: str) -> Trained:
    rows = rows_of(table)
    options = {"objective": objective, "num_leaves": 5, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    if objective.startswith("multiclass"):
        options["num_class"] = 3
    booster = lightgbm.train(options, lightgbm.Dataset(rows, y), 4)

    def answers(rows: Any) -> dict[str, Any]:
        found = booster.predict(rows)
        if objective == "binary":
            return {LABEL: found > 0.5, PROBABILITIES: np.stack([1 - found, found], 1)}
        if objective.startswith("multiclass"):
            return {LABEL: found.argmax(1), PROBABILITIES: found}
        return {VALUE: found}

    return Trained(rows, lambda folder: booster.save_model(folder / "model.txt"), answers)


def _ordered(explicit: bool) -> Trained:
    """A frame with an ordered category; `explicit` also takes a column of numbers as categories."""
    rows = rows_of("mixed")
    rows["size"] = rows["size"].cat.as_ordered()
    named = {"categorical_feature": ["count", "floor", "colour"]} if explicit else {}
    model = lightgbm.LGBMRegressor(**_FEW).fit(rows, frames.score(), **named)
    return _saved(model, rows)


def _own_objective(make: Callable[..., Any], y: Any) -> Trained:
    return _of_class(make, y, "holes", objective=lambda y, found: (found - y, np.ones_like(y)))


def _by_code() -> Trained:
    """A classifier of texts, of which the file has the codes alone."""
    y = np.array(["no", "yes"])[frames.classes(2)]
    model = lightgbm.LGBMClassifier(**_FEW).fit(rows_of("holes"), y)

    def answers(rows: Any) -> dict[str, Any]:
        return {LABEL: np.searchsorted(["no", "yes"], model.predict(rows)), PROBABILITIES: model.predict_proba(rows)}

    return Trained(rows_of("holes"), lambda folder: model.booster_.save_model(folder / "model.txt"), answers)


def _entropy() -> Trained:
    """A classifier whose file does not say so: it answers with the probability of class 1, as `LGBMRegressor` does."""
    model = lightgbm.LGBMClassifier(**_FEW, objective="cross_entropy").fit(rows_of("holes"), frames.classes(2))

    def answers(rows: Any) -> dict[str, Any]:
        return {VALUE: model.predict_proba(rows)[:, 1]}

    return Trained(rows_of("holes"), lambda folder: model.booster_.save_model(folder / "model.txt"), answers)


def _of_boosting(boosting: str) -> list[Case]:
    found = []
    objectives = [
        *((lightgbm.LGBMClassifier, name, frames.classes(count)) for name, count in _CLASSIFIERS),
        *((lightgbm.LGBMRegressor, name, frames.score()) for name in _REGRESSORS),
    ]
    for make, objective, y in objectives:
        if (boosting, objective) == ("linear", "regression_l1"):
            continue
        for table in ("mixed", "holes") if boosting == "gbdt" else ("mixed",):
            train = partial(_of_class, make, y, table, objective=objective, **_BOOSTING[boosting])
            name = f"{make.__name__} {objective} {boosting} {table}"
            quick = table == "mixed" and (boosting == "gbdt" or objective in ("binary", "regression"))
            found.append(Case(name, train, is_quick=quick))
    return found


def cases() -> list[Case]:
    """Return all cases of LightGBM."""
    found = [case for boosting in _BOOSTING for case in _of_boosting(boosting)]
    for objective in ("lambdarank", "rank_xendcg"):
        train = partial(_of_class, lightgbm.LGBMRanker, frames.GRADES, "mixed", objective=objective)
        found.append(Case(f"LGBMRanker {objective}", train, is_quick=True))
    for objective, y in _OF_BOOSTERS:
        for table in ("mixed", "holes"):
            train = partial(_of_booster, objective, y(), table)
            found.append(Case(f"train {objective} {table}", train, is_quick=table == "mixed"))
    classes, numbers = lightgbm.LGBMClassifier, lightgbm.LGBMRegressor
    found += [
        Case("LGBMClassifier stopped early", partial(_early, classes, frames.classes(3)), is_quick=True),
        Case("LGBMRegressor stopped early", partial(_early, numbers, frames.score()), is_quick=True),
        Case("LGBMRegressor own objective", partial(_own_objective, numbers, frames.score()), is_quick=True),
        Case("LGBMClassifier cross_entropy", _entropy, is_quick=True),
        Case("LGBMClassifier texts", _by_code, is_quick=True),
        Case("LGBMRegressor reg_sqrt", partial(_of_class, numbers, frames.score(), "mixed", reg_sqrt=True), True),
        Case("LGBMRegressor ordered", partial(_ordered, False), True, "set inputs: x"),
        Case("LGBMRegressor ordered and explicit", partial(_ordered, True), True, "set inputs: x"),
    ]
    return found
