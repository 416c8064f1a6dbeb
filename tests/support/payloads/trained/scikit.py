"""Models of scikit-learn: each estimator by itself, and behind the steps that read a data frame."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, VotingRegressor
from sklearn.experimental import enable_halving_search_cv, enable_iterative_imputer  # noqa: F401
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import all_estimators

from tests.support.lazy import Lazy
from tests.support.payloads.trained import frames
from tests.support.payloads.trained.model import TRANSFORMED, Case, Trained, of_classifier, of_regressor

skops_io = Lazy("skops.io")

_NEEDED: dict[str, Any] = {
    "transformers": [("scaled", StandardScaler(), [0, 1]), ("passed", "passthrough", [2, 3])],
    "transformer_list": [("scaled", StandardScaler()), ("ranged", MinMaxScaler())],
    "param_grid": {},
    "param_distributions": {},
    "steps": [("scaled", StandardScaler()), ("model", LogisticRegression())],
    "dictionary": np.eye(4),
}
"""Parameters without a default."""

_FEW: dict[str, Any] = {
    **{"n_estimators": 4, "max_iter": 50, "cv": 2, "n_init": 1, "random_state": 0, "n_components": 2, "n_iter": 2},
    **{"n_features_to_select": 2, "max_trials": 5, "n_clusters": 3, "n_quantiles": 20},
}
"""Parameters that keep a training short, where an estimator has them."""

_OF_ONE: dict[str, dict[str, Any]] = {
    "RandomizedSearchCV": {"n_iter": 1},
    "SelectKBest": {"k": 2},
    "GenericUnivariateSelect": {"mode": "k_best", "param": 2},
    "RadiusNeighborsClassifier": {"radius": 1e4},
    "RadiusNeighborsRegressor": {"radius": 1e4},
    "FeatureHasher": {"n_features": 8},
    "LinearDiscriminantAnalysis": {"n_components": 1},
    "TSNE": {"max_iter": 250},
    "SpectralBiclustering": {"n_best": 2},
    "SelfTrainingClassifier": {"estimator": LogisticRegression()},
    "OrthogonalMatchingPursuitCV": {"max_iter": 2},
    "MLPClassifier": {"hidden_layer_sizes": (4,), "max_iter": 50},
    "MLPRegressor": {"hidden_layer_sizes": (4,), "max_iter": 50},
}

_LEFT_OUT = frozenset(
    {
        *("PatchExtractor", "FeatureHasher", "DictVectorizer", "LabelBinarizer", "LabelEncoder", "KernelCenterer"),
        *("MultiLabelBinarizer", "Birch"),
    }
)
"""Estimators of other inputs than a table, and one that skops does not save."""


def estimator(make: Callable[..., Any]) -> Any:
    """Return an estimator with few rounds, and with an estimator of its own where it needs one."""
    taken = inspect.signature(make).parameters
    found = {name: value for name, value in {**_NEEDED, **_FEW}.items() if name in taken}
    regresses = "Regressor" in make.__name__ or "Regressor" in str(getattr(make, "_estimator_type", ""))
    if "estimator" in taken and taken["estimator"].default is inspect.Parameter.empty:
        found["estimator"] = Ridge() if regresses else LogisticRegression()
    if make.__name__.startswith("Stacking") or make.__name__.startswith("Voting"):
        found["estimators"] = (
            [("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=2))]
            if regresses
            else [("a", GaussianNB()), ("b", DecisionTreeClassifier(max_depth=2))]
        )
    if make.__name__ == "FrozenEstimator":
        found["estimator"] = Ridge().fit(frames.numbers(), frames.score())
    return make(**found | _OF_ONE.get(make.__name__, {}))


def _saved(model: Any, rows: Any) -> Trained:
    if hasattr(model, "classes_") and is_classifier(model):
        answers = of_classifier(model)
        first = model.predict_proba(rows[:2]) if hasattr(model, "predict_proba") else None
        if isinstance(first, list):
            answers = partial(_of_targets, model)
    elif hasattr(model, "predict"):
        answers = of_regressor(model)
    elif hasattr(model, "transform"):
        answers = lambda rows: {TRANSFORMED: model.transform(rows)}  # noqa: E731
    else:
        answers = lambda rows: {}  # noqa: E731
    return Trained(rows, lambda folder: skops_io.dump(model, folder / "model.skops"), answers)


def _of_targets(model: Any, rows: Any) -> dict[str, Any]:
    """Return the answers of several targets, for which scikit-learn has a list by target."""
    found = {"label": model.predict(rows)}
    by_target = model.predict_proba(rows)
    if len({part.shape for part in by_target}) == 1:
        found["probabilities"] = np.stack(by_target, 1)
    return found


def target(make: Callable[..., Any]) -> Any:
    """Return a target that fits an estimator."""
    name = make.__name__
    if name.startswith(("MultiTask", "MultiOutputR")) or name in ("RegressorChain", "CCA", "PLSSVD", "PLSCanonical"):
        return np.stack([frames.score(), frames.score()[::-1]], 1)
    if name in ("MultiOutputClassifier", "ClassifierChain"):
        return frames.labels()
    if name in ("FixedThresholdClassifier", "TunedThresholdClassifierCV"):
        return frames.classes(2)
    kind = estimator(make).__sklearn_tags__().estimator_type
    return frames.score() if kind == "regressor" else frames.classes(3)


def _by_itself(make: Callable[..., Any], rows: Any) -> Trained:
    if make.__name__ in ("CountVectorizer", "TfidfVectorizer", "HashingVectorizer"):
        rows = ["red cats purr", "dogs bark", "a blue cat sleeps"]
    if make.__name__ == "IsotonicRegression":
        rows = rows[:, :1]
    y = target(make)[: len(rows)]
    return _saved(estimator(make).fit(rows, y), rows)


def read_frame() -> Any:
    """Return the step that makes numbers of the mixed frame."""
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["unit price", "größe"]),
            ("whole", "passthrough", ["count", "is_new"]),
            ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["size", "colour"]),
            ("ordered", OrdinalEncoder(), ["floor"]),
        ]
    )


def _of_frame(make: Callable[..., Any]) -> Trained:
    rows = frames.mixed()
    return _saved(make_pipeline(read_frame(), MinMaxScaler(), estimator(make)).fit(rows, target(make)), rows)


def _fitted(model: Any, rows: Callable[[], Any], y: Callable[[], Any]) -> Trained:
    return _saved(clone(model).fit(rows(), y()), rows())


def _texts() -> Any:
    return frames.mixed()[["size", "colour"]].astype(object)


def _of_words() -> Any:
    frame = frames.mixed()[["größe", "colour"]]
    return frame.fillna({"colour": "none at all"})


def _without_texts() -> Any:
    return frames.mixed().drop(columns="colour")


def _with_categories() -> Any:
    return frames.mixed().astype({"colour": "category"})


def _two() -> Any:
    return frames.mixed()[["unit price", "größe"]]


def _three() -> np.ndarray:
    return frames.classes(3)


def _in_columns(*parts: Any, **options: Any) -> Any:
    return ColumnTransformer([(str(at), *part) for at, part in enumerate(parts)], **options)


def _pairs(other: np.ndarray) -> np.ndarray:
    return np.stack([_three(), other], 1)


_NUMBERS, _OBJECTS = make_column_selector(dtype_include=np.number), make_column_selector(dtype_include=object)
_FOREST = HistGradientBoostingRegressor(max_iter=4)
_ONE_HOT = OneHotEncoder(handle_unknown="ignore")
_WORDS = ["red cats purr", "dogs bark", "a blue cat", "blue dogs"]

_SPECIAL: dict[str, tuple[Any, Callable[[], Any], Callable[[], Any]]] = {
    "histograms of categories, classes": (
        HistGradientBoostingClassifier(max_iter=4, categorical_features="from_dtype"),
        *(_without_texts, _three),
    ),
    "histograms of categories, number": (
        HistGradientBoostingRegressor(max_iter=4, categorical_features="from_dtype"),
        *(_with_categories, frames.score),
    ),
    "histograms of named categories": (
        HistGradientBoostingRegressor(max_iter=4, categorical_features=["size"]),
        *(lambda: _without_texts().drop(columns="floor"), frames.score),
    ),
    "an encoder first": (make_pipeline(_ONE_HOT, LogisticRegression()), _texts, _three),
    "ordinal encoder first": (
        make_pipeline(OrdinalEncoder(encoded_missing_value=-1), DecisionTreeClassifier()),
        *(_texts, _three),
    ),
    "target encoder first": (make_pipeline(TargetEncoder(), Ridge()), _texts, frames.score),
    "imputer of texts first": (
        make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(), Ridge()),
        *(_texts, frames.score),
    ),
    "words in a column": (
        make_pipeline(_in_columns((TfidfVectorizer(), "colour"), (StandardScaler(), ["größe"])), LogisticRegression()),
        *(_of_words, _three),
    ),
    "selected columns": (
        make_pipeline(_in_columns((SimpleImputer(), _NUMBERS), (_ONE_HOT, _OBJECTS)), Ridge()),
        *(lambda: frames.mixed().astype({"size": object}), frames.score),
    ),
    "columns by number": (
        make_pipeline(_in_columns((SimpleImputer(), slice(0, 2)), (_ONE_HOT, [4, 6])), Ridge()),
        *(frames.mixed, frames.score),
    ),
    "remainder passed": (
        make_pipeline(_in_columns((OneHotEncoder(), ["size", "colour"]), remainder="passthrough"), _FOREST),
        *(frames.mixed, frames.score),
    ),
    "columns left out": (
        make_pipeline(_in_columns((SimpleImputer(), ["größe"]), (_ONE_HOT, ["size"]), ("drop", ["is_new"])), Ridge()),
        *(frames.mixed, frames.score),
    ),
    "columns left out by one of two": (
        VotingRegressor(
            [(at, make_pipeline(_in_columns((SimpleImputer(), [at])), Ridge())) for at in ("größe", "unit price")]
        ),
        *(frames.mixed, frames.score),
    ),
    "missing texts counted": (
        make_pipeline(
            _in_columns(
                (MissingIndicator(missing_values=None, features="all"), ["colour"]), (SimpleImputer(), ["größe"])
            ),
            Ridge(),
        ),
        *(frames.mixed, frames.score),
    ),
    "truth values beside categories": (
        make_pipeline(
            _in_columns((OrdinalEncoder(), ["size"]), remainder="passthrough"),
            HistGradientBoostingClassifier(max_iter=4, categorical_features=[0]),
        ),
        *(lambda: _without_texts()[["is_new", "size", "count"]], _three),
    ),
    "search over a frame": (
        GridSearchCV(make_pipeline(_ONE_HOT, Ridge()), {"ridge__alpha": [1.0, 2.0]}, cv=2),
        *(_texts, frames.score),
    ),
    "union": (
        make_pipeline(FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())]), Ridge()),
        *(frames.numbers, frames.score),
    ),
    "frames between steps": (
        make_pipeline(SimpleImputer(), StandardScaler(), Ridge()).set_output(transform="pandas"),
        *(_two, frames.score),
    ),
    "a scaler that gives frames": (StandardScaler().set_output(transform="pandas"), _two, frames.score),
    "text classes": (LogisticRegression(), frames.numbers, lambda: np.array(["no", "maybe", "yes"])[_three()]),
    "truth classes": (LogisticRegression(), frames.numbers, lambda: frames.classes(2) > 0),
    "two targets": (DecisionTreeClassifier(max_depth=3), frames.numbers, lambda: _pairs(_three()[::-1])),
    "targets of several sizes": (
        DecisionTreeClassifier(max_depth=3),
        *(frames.numbers, lambda: _pairs(frames.classes(2))),
    ),
    "labels of a tree": (DecisionTreeClassifier(max_depth=3), frames.numbers, frames.labels),
    "hashing first": (
        make_pipeline(HashingVectorizer(n_features=16), LogisticRegression()),
        *(lambda: _WORDS, lambda: [0, 1, 0, 1]),
    ),
    "search over texts": (
        GridSearchCV(make_pipeline(TfidfVectorizer(), LogisticRegression()), {}, cv=2),
        *(lambda: _WORDS, lambda: [0, 1, 0, 1]),
    ),
}


def cases() -> list[Case]:
    """Return all cases of scikit-learn."""
    found = []
    for name, make in all_estimators():
        if name in _LEFT_OUT:
            continue
        found.append(Case(name, partial(_by_itself, make, frames.numbers()), is_quick=True))
        if getattr(make, "predict", None):
            found.append(Case(f"{name} of a frame", partial(_of_frame, make)))
    return found + [Case(name, partial(_fitted, *parts), is_quick=True) for name, parts in _SPECIAL.items()]
