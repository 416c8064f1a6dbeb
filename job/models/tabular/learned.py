"""What the steps of an estimator of scikit-learn have learned of the columns that it takes: categories and texts."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import OneToOneFeatureMixin

TEXT = "text"
"""Name of the input of a vectorizer that reads no column of a frame, but a text a row."""

_INNER = ("best_estimator_", "estimator_", "regressor_", "estimator", "estimators_", "calibrated_classifiers_")
"""Attributes of an estimator with others, which take the columns that it takes."""

_PASSING_ON = frozenset(
    {
        *("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV"),
        *("CalibratedClassifierCV", "FixedThresholdClassifier", "TunedThresholdClassifierCV"),
        *("MultiOutputClassifier", "MultiOutputRegressor", "OneVsRestClassifier", "TransformedTargetRegressor"),
        *("StackingClassifier", "StackingRegressor", "VotingClassifier", "VotingRegressor"),
    }
)
"""Estimators that give a data frame to those inside as it is, and read nothing of it."""


def learned(model: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values that encoders, imputers and vectorizers have learned, by the name of the column.

    A model without names of columns has the values of a vectorizer under `TEXT`, and those of encoders by number.
    """
    count = getattr(model, "n_features_in_", None)
    columns = list(names) or ([TEXT] if count is None else [str(at) for at in range(count)])
    found: dict[str, list[Any]] = {}
    for name, values in _of_step(model, columns, set()):
        found.setdefault(name, []).extend(values)
    return found


def read(step: Any, names: Sequence[str]) -> list[str]:
    """Return the names of the columns of a data frame that an estimator reads: all, unless it leaves some out first."""
    names, parts = [*names], [step]
    if hasattr(step, "transformers_"):
        columns = {name for _, part, chosen in step.transformers_ if part != "drop" for name in _chosen(chosen, names)}
        return [name for name in names if name in columns]
    if hasattr(step, "steps"):
        parts = [part for _, part in step.steps if part not in (None, "passthrough")][:1]
    elif hasattr(step, "transformer_list"):
        parts = [part for _, part in step.transformer_list if part != "drop"]
    elif type(step).__name__ in _PASSING_ON and not getattr(step, "passthrough", False):
        parts = [part for part in _inner(step) if part is not None and part is not getattr(step, "estimator", None)]
    elif type(step).__name__ == "_CalibratedClassifier":
        parts = [step.estimator]
    columns = {name for part in parts for name in (names if part is step else read(part, names))}
    return [name for name in names if name in columns or not parts]


def _of_step(step: Any, columns: list[str], seen: set[int]) -> Iterator[tuple[str, list[Any]]]:
    if step is None or isinstance(step, str) or id(step) in seen:
        return
    seen.add(id(step))
    if hasattr(step, "transformers_"):
        for _, part, chosen in step.transformers_:
            yield from _of_step(part, _chosen(chosen, columns), seen)
    elif hasattr(step, "steps"):
        for _, part in step.steps:
            yield from _of_step(part, columns, seen)
            if not _keeps_columns(part):
                return
    elif hasattr(step, "transformer_list"):
        for _, part in step.transformer_list:
            yield from _of_step(part, columns, seen)
    elif hasattr(step, "build_analyzer"):
        yield columns[0], [next(iter(getattr(step, "vocabulary_", ())), "")]
    else:
        yield from _of_leaf(step, columns)
        for part in _inner(step):
            yield from _of_step(part, columns, seen)


def _of_leaf(step: Any, columns: list[str]) -> Iterator[tuple[str, list[Any]]]:
    known = getattr(step, "categories_", None)
    if isinstance(known, list):
        yield from zip(columns, map(list, known), strict=False)
    for name, value in zip(columns, getattr(step, "statistics_", ()), strict=False):
        if isinstance(value, str):
            yield name, [value]
    if hasattr(step, "missing_values") and step.missing_values is None:
        # Only columns of objects have None.
        yield from ((name, [None, ""]) for name in columns)


def _inner(step: Any) -> Iterator[Any]:
    # Histograms of gradient boosting keep the encoder of their categories there.
    yield getattr(step, "_preprocessor", None)
    for name in _INNER:
        found = getattr(step, name, None)
        yield from found if isinstance(found, list) else [found] if not isinstance(found, np.ndarray) else ()


def _keeps_columns(step: Any) -> bool:
    """Return True if a step has a column of its output for each of its input, which does not hold codes."""
    if step is None or isinstance(step, str):
        return True
    keeps = isinstance(step, OneToOneFeatureMixin) or hasattr(step, "statistics_")
    return keeps and not hasattr(step, "categories_")


def _chosen(chosen: Any, columns: list[str]) -> list[str]:
    """Return the names of the columns of a part of a `ColumnTransformer`: names, numbers, a slice, or a mask."""
    if isinstance(chosen, str):
        return [chosen]
    if isinstance(chosen, slice):
        if isinstance(chosen.start, str) or isinstance(chosen.stop, str):
            ends = [columns.index(end) if isinstance(end, str) else end for end in (chosen.start, chosen.stop)]
            # A slice of names has its end.
            return columns[ends[0] : None if ends[1] is None else ends[1] + 1]
        return columns[chosen]
    if np.ndim(chosen) == 0:
        return [columns[int(chosen)]]
    array = np.asarray(chosen)
    if array.dtype == bool:
        return [name for name, is_chosen in zip(columns, array, strict=True) if is_chosen]
    return [each if isinstance(each, str) else columns[int(each)] for each in chosen]
