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
from cluster_serving.job.models.tabular.learned import TEXT, learned, read
from cluster_serving.job.models.tabular.model import LABEL, PROBABILITIES, VALUE, TabularModel
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

log = logging.getLogger(__name__)


_GONE = {"algorithm": "SAMME.R"}
"""Parameters that later versions leave out, though the answers follow from them: of AdaBoost, up to 1.5."""


_THREADED = ("sklearn.ensemble._forest", "sklearn.ensemble._iforest", "sklearn.neighbors")
"""Modules whose `n_jobs` are threads."""

_POOLED = ("sklearn.ensemble._hist_gradient_boosting", "sklearn.cluster", "sklearn.neighbors")
"""Modules of the estimators that compute with OpenMP."""

_OF_DICTIONARIES = ("DictVectorizer", "FeatureHasher")

_CONTENT = "content"
"""The `input` of a vectorizer of texts, which are sent."""


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
        parts = [*_parts(model, set())]
        self._mixing = next(filter(None, map(_mixing, parts)), "")
        pooled = any(type(part).__module__.startswith(_POOLED) for part in parts)
        self.has_pool = options.thread_per_model > 1 and pooled
        # BLAS and OpenMP have one number of threads per process, the estimators their own.
        threadpool_limits(options.thread_per_model)
        model.set_params(**_jobs(model, options.thread_per_model))
        self._names = [str(name) for name in getattr(model, "feature_names_in_", ())]
        known = learned(model, self._names)
        self._with_none = {name for name, values in known.items() if None in values}
        self._features = _features(model, self._names, known, options)
        self._has_objects = False
        try:
            self._begin(options)
        except TypeError:
            # Truth values beside numbers make objects of all columns, and an encoder may have learned from these.
            self._has_objects = True
            self._begin(options)

    def _begin(self, options: ModelOptions) -> None:
        self._calls = _calls(self._loaded, self._table(self._features.read(self._features.sample())))
        self._serve(self._features, options)

    @property
    def one_by_one(self) -> str:
        """See `Model.one_by_one`."""
        return self._mixing

    def _table(self, inputs: Sequence[Array]) -> Any:
        if not self._names:
            return inputs[0]
        # Imported here: a model without names does not need it.
        import pandas as pd

        columns = {name: self._missing(name, column) for name, column in self._features.named(inputs).items()}
        # From pandas 3 on, a column of objects without its dtype becomes one of texts, which has NaN for None.
        columns |= {name: pd.Series(column, dtype=object) for name, column in columns.items() if column.dtype == object}
        if not columns:
            return pd.DataFrame(inputs[0], columns=self._names)
        # Those that the model does not read hold NaN.
        return pd.DataFrame(columns, columns=self._names, dtype=object if self._has_objects else None)

    def _missing(self, name: str, column: Array) -> Array:
        """Return a column with NaN for missing texts, as files of a table are read; None if an encoder learned that."""
        if column.dtype != object or name in self._with_none:
            return column
        return np.where(column == None, np.nan, column)  # noqa: E711 - for each element

    def _answers(self, table: Any, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        return {name: self._calls[name](table) for name in wanted or self._calls}


def _jobs(model: Any, threads: int) -> dict[str, int]:
    """Return `n_jobs` of each estimator: threads for forests and neighbours, and 1 where it would start processes.

    Processes of joblib (ColumnTransformer, Bagging) copy the model, and the end of ours waits minutes for them.
    """
    parameters = model.get_params()
    owners = {
        name: parameters[name.rpartition("__")[0]] if "__" in name else model
        for name in parameters
        if name.rpartition("__")[2] == "n_jobs"
    }
    return {name: threads if type(owner).__module__.startswith(_THREADED) else 1 for name, owner in owners.items()}


def _load(path: Path, trusted: list[str]) -> Any:
    with warnings.catch_warnings():
        # The version has been told, in words of ours.
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = skops.io.load(path, trusted=trusted)
    for part in [*_parts(model, set())]:
        _complete(part)
    return model


def _parts(part: Any, seen: set[int]) -> Iterator[BaseEstimator]:
    """Yield an estimator, and those that it holds."""
    if id(part) in seen or isinstance(part, np.ndarray | str):
        return
    seen.add(id(part))
    if isinstance(part, BaseEstimator):
        yield part
        part = vars(part)
    if isinstance(part, Mapping):
        part = part.values()
    elif not isinstance(part, list | tuple):
        return
    for child in list(part):
        yield from _parts(child, seen)


def _complete(part: BaseEstimator) -> None:
    """Give an estimator of an earlier version the parameters that it did not have, with which it computes as before.

    Raises:
        ModelError: If it reads files, or has a parameter that changes answers and that the installed version lacks.
    """
    if getattr(part, "input", _CONTENT) != _CONTENT:
        raise ModelError(
            f"{type(part).__name__} has input={part.input!r}, and would read files that requests name: train it "
            f"with input={_CONTENT!r}, on the texts"
        )
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


def _mixing(part: BaseEstimator) -> str:
    """Return why the answer for a row follows from the others of its call; empty if it does not."""
    kind = type(part).__name__
    if kind in ("NMF", "MiniBatchNMF"):
        return f"{kind} stops when all rows of its call together hardly change"
    if getattr(part, "strategy", "") in ("stratified", "uniform") and kind == "DummyClassifier":
        return f"{kind} draws an answer by the place of its row in the call"
    if getattr(part, "sample_posterior", False):
        return f"{kind} draws numbers by the place of its row in the call"
    return ""


def _features(model: Any, names: Sequence[str], known: Mapping[str, Sequence[Any]], options: ModelOptions) -> Features:
    """Return the inputs.

    Raises:
        ModelError: If texts have columns without names, or the rows are not those of a table.
    """
    first = model
    while hasattr(first, "steps"):
        first = first.steps[0][1]
    if (kind := type(first).__name__) in _OF_DICTIONARIES:
        raise ModelError(
            f"{kind} takes dictionaries instead of the rows of a table: train on a data frame, with OneHotEncoder in a "
            "ColumnTransformer, or write a handler (docs/how-to/handlers.md)"
        )
    samples = {name: _sample(values) for name, values in known.items()}
    texts = {name: value for name, value in samples.items() if isinstance(value, str)}
    count = getattr(model, "n_features_in_", None)
    if not names and texts and TEXT not in texts:
        raise ModelError(
            f"{type(model).__name__} has learned texts in the column {next(iter(texts))} of an array: train it on a "
            "data frame, whose columns have names, and dump it again"
        )
    features = Features(
        names, count, options, texts=texts if names else {}, samples=samples, read=read(model, names) if names else None
    )
    if not names and TEXT in texts:
        # A vectorizer takes one text a row.
        features.inputs = [TensorSpec(TEXT, "str", (None,))]
    return features


def _sample(values: Sequence[Any]) -> Any:
    """Return a value that a column knows: a text if there is one, which is empty only if all are, else a number."""
    if texts := [value for value in values if isinstance(value, str)]:
        return next(filter(None, texts), "")
    return next((value for value in values if value is not None and value == value), 0)


def _calls(model: Any, sample: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the methods that compute the outputs, by name.

    Raises:
        ModelError: If it can compute none for rows that it has not seen in training.
    """
    if hasattr(model, "predict"):
        calls = {LABEL if hasattr(model, "classes_") else VALUE: model.predict}
        if not hasattr(model, "predict_proba"):
            return calls
        if not isinstance(found := model.predict_proba(sample), list):
            return calls | {PROBABILITIES: model.predict_proba}
        if len({part.shape[1] for part in found}) > 1:
            log.warning("the targets differ in their numbers of classes, so there is no output %s", PROBABILITIES)
            return calls
        return calls | {PROBABILITIES: partial(_of_targets, model)}
    if hasattr(model, "transform"):
        return {"y": model.transform}
    raise ModelError(
        f"{type(model).__name__} neither predicts nor transforms rows that are new to it: serve an estimator that has "
        "predict or transform, such as a classifier that was trained on its labels"
    )


def _of_targets(model: Any, table: Any) -> Array:
    """Return the probabilities (rows, targets, classes) of several targets; the estimator has a list by target."""
    return np.stack(model.predict_proba(table), axis=1)
