"""scikit-learn: a `*.skops`, as `skops.io.dump` writes it, of which no code is run."""

import inspect
import logging
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import skops.io
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from threadpoolctl import threadpool_limits

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tabular import skops_types
from cluster_serving.job.models.tabular.features import Features
from cluster_serving.job.models.tabular.model import LABEL, PROBABILITIES, VALUE, TabularModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

log = logging.getLogger(__name__)


_GONE = {"algorithm": "SAMME.R"}
"""Parameters that later versions leave out, though the answers follow from them: of AdaBoost, up to 1.5."""


class ScikitLearnModel(TabularModel):
    """A classifier, regressor or transformer, or a pipeline that ends with one.

    NaN is a missing value for the estimators that take it. A pipeline that begins with a vectorizer takes texts.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        path = files.paths[0]
        unknown = skops.io.get_untrusted_types(file=path)
        skops_types.check(path, unknown)
        written = skops_types.version(path)
        if written and written.split(".")[:2] != sklearn.__version__.split(".")[:2]:
            log.warning(
                "%s was written by scikit-learn %s, and %s computes it: answers may differ; "
                "serve with that version, or train and dump the model with this one",
                *(path, written, sklearn.__version__),
            )
        self._loaded = model = _load(path, unknown)
        # BLAS and OpenMP have one number of threads per process, the estimators their own.
        threadpool_limits(options.thread_per_model)
        jobs = [name for name in model.get_params() if name.rpartition("__")[2] == "n_jobs"]
        model.set_params(**dict.fromkeys(jobs, options.thread_per_model))
        self._names = [str(name) for name in getattr(model, "feature_names_in_", ())]
        self._with_none = {name for name, known in _known(_first(model)) if None in known}
        self._calls = _calls(model)
        self._serve(_features(model, self._names, options), options)

    def _table(self, inputs: Sequence[Array]) -> Any:
        if not self._names:
            return inputs[0]
        # Imported here: a model without names does not need it.
        import pandas as pd

        columns = {name: self._missing(name, column) for name, column in self._features.named(inputs).items()}
        return pd.DataFrame(columns) if columns else pd.DataFrame(inputs[0], columns=self._names)

    def _missing(self, name: str, column: Array) -> Array:
        """Return a column with NaN for missing texts, as files of a table are read; None if an encoder learned that."""
        if column.dtype != object or name in self._with_none:
            return column
        return np.where(column == None, np.nan, column)  # noqa: E711 - for each element

    def _answers(self, table: Any, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        return {name: self._calls[name](table) for name in wanted or self._calls}


def _load(path: Path, trusted: list[str]) -> Any:
    with warnings.catch_warnings():
        # The version has been told, in words of ours.
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = skops.io.load(path, trusted=trusted)
    _complete(model, set())
    return model


def _complete(part: Any, seen: set[int]) -> None:
    """Give estimators of an earlier version the parameters that it did not have, with which they compute as before.

    Raises:
        ModelError: If one has a parameter of which the answers follow, and that the installed version does not have.
    """
    if id(part) in seen or isinstance(part, np.ndarray | str):
        return
    seen.add(id(part))
    if isinstance(part, BaseEstimator):
        parameters = inspect.signature(type(part)).parameters
        for name, value in _GONE.items():
            if name not in parameters and vars(part).get(name) == value:
                raise ModelError(
                    f"{type(part).__name__} has {name}={value!r}, and scikit-learn {sklearn.__version__} would answer "
                    "otherwise: serve with the version that wrote the file, or train and dump the model with this one"
                )
        for name, parameter in parameters.items():
            if name not in vars(part) and parameter.default is not parameter.empty:
                setattr(part, name, parameter.default)
        part = vars(part)
    if isinstance(part, Mapping):
        part = part.values()
    elif not isinstance(part, list | tuple):
        return
    for child in part:
        _complete(child, seen)


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
    for column, known in _known(model):
        if texts := [text for text in known if isinstance(text, str)]:
            yield column, texts[0]


def _known(model: Any) -> Iterator[tuple[str, list[Any]]]:
    """Return the categories of each column of an encoder in a `ColumnTransformer`; None for what an imputer fills."""
    for _, transformer, columns in getattr(model, "transformers_", ()):
        for _, step in getattr(transformer, "steps", [("", transformer)]):
            for column, known in zip(np.atleast_1d(columns), getattr(step, "categories_", ()), strict=False):
                yield str(column), list(known)
            if hasattr(step, "missing_values") and step.missing_values is None:
                yield from ((str(column), [None]) for column in np.atleast_1d(columns))


def _calls(model: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the methods that compute the outputs, by name."""
    if hasattr(model, "classes_"):
        calls = {LABEL: model.predict}
        if not hasattr(model, "predict_proba"):
            return calls
        if isinstance(model.classes_, list):
            if len(set(map(len, model.classes_))) > 1:
                log.warning("the targets differ in their numbers of classes, so there is no output %s", PROBABILITIES)
                return calls
            return calls | {PROBABILITIES: partial(_of_targets, model)}
        return calls | {PROBABILITIES: model.predict_proba}
    return {VALUE: model.predict} if hasattr(model, "predict") else {"y": model.transform}


def _of_targets(model: Any, table: Any) -> Array:
    """Return the probabilities (rows, targets, classes) of several targets; the estimator has a list by target."""
    return np.stack(model.predict_proba(table), axis=1)
