"""XGBoost: a `*.ubj`, `*.json` or `*.model`, as `save_model` writes them."""

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.lean import lean
from cluster_serving.job.models.tabular.categories import Categories
from cluster_serving.job.models.tabular.features import VECTOR, Features
from cluster_serving.job.models.tabular.model import VALUE, TabularModel, classified, labelled
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InvalidInput, ModelError
from cluster_serving.protocol.inputs import Array

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    import xgboost
else:
    xgboost = lean("xgboost", without=("dask", "sklearn"))

CATEGORY = "c"
"""Type of a feature of categories."""

_BEGINNING = b"learner"
"""First key of JSON and of UBJSON."""

_VERSIONS: tuple[tuple[re.Pattern[bytes], Callable[[bytes], int]], ...] = (
    (re.compile(rb"version\[#L.{8}i(.)i(.)i(.)", re.DOTALL), ord),
    (re.compile(rb'"version"\s*:\s*\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)'), int),
)
"""The version of XGBoost at the end of a file of UBJ, where a number is a byte, and of JSON."""

_TAIL = 200
_COUNTS_LETTERS = [3, 2]
"""Last version that stores some texts wrongly."""

_MOST_NAMED = 4

_CLASSIFIERS = ("binary:logistic", "multi:softprob")


class XGBoostModel(TabularModel):
    """A booster. Its answers are those of the class that saved it: `XGBClassifier`, `XGBRegressor`, or `Booster`.

    NaN is a missing value. Columns of a data frame with categories take these, and a vector has their codes.
    """

    # Its load has one, whatever the number of threads of a call.
    has_pool = True

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self.engine = files.format.engine
        path = files.paths[0]
        content = bytearray(path.read_bytes())
        written = _check_version(path, content)
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
        # Several targets have no classes, but each its own 0 and 1.
        self._answer = classified
        if int(learner["learner_model_param"]["num_target"]) > 1:
            self._answer = labelled
        self._is_classifier = _is_classifier(booster, self._objective)
        self._is_linear = learner["gradient_booster"]["name"] == "gblinear"
        self._rounds = _rounds(booster)
        if options.missing_value is None and booster.attr("scikit_learn"):
            log.info("%s does not tell `missing` of its class; if that was not NaN, set missingValue", path)
        names = booster.feature_names or ()
        categories = {} if options.inputs == (VECTOR,) else _categories(path, booster, written)
        features = Features(names, booster.num_features(), options, "float32", categories=categories)
        kinds = booster.feature_types or ()
        # Values of a frame become codes of ours; in a vector, and for files before 3.1, clients send codes.
        known = categories if features.columns else {}
        self._coded = [at for at, kind in enumerate(kinds) if kind == CATEGORY and not (known and names[at] in known)]
        self._serve(features, options)

    def _answers(self, table: Array, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        values = self._predict(table)
        return self._answer(values) if self._is_classifier else {VALUE: values}

    def _predict(self, table: Array) -> Array:
        for at in self._coded:
            _check_codes(self._features.columns[at] if self._features.columns else f"x[{at}]", table[:, at])
        if self._is_linear:
            # Its booster cannot predict in place.
            matrix = xgboost.DMatrix(table, nthread=1)
            matrix.set_info(feature_names=self._loaded.feature_names, feature_types=self._loaded.feature_types)
            return np.asarray(self._loaded.predict(matrix))
        return np.asarray(self._loaded.inplace_predict(table, iteration_range=self._rounds))


def _check_codes(name: str, column: Array) -> None:
    """Refuse what is no code of a category, which XGBoost would take for a code; NaN is a missing value.

    Raises:
        InvalidInput: The first value.
    """
    bad = (column < 0) | (np.trunc(column) != column) | np.isinf(column)
    bad &= ~np.isnan(column)
    if bad.any():
        value = float(column[bad.argmax()])
        raise InvalidInput(f"input {name!r} is {value:g}; expected the code of a category, a whole number from 0")


def _check_version(path: Path, content: bytearray) -> list[int]:
    """Return the version that has written a file, empty for an old one.

    Raises:
        ModelError: If it is a newer one: an older XGBoost may leave out what it does not know, such as the base score.
    """
    written: list[int] = []
    installed = [int(part) for part in xgboost.__version__.split(".")[:2]]
    for form, number in _VERSIONS:
        if found := form.search(content[-_TAIL:]):
            written = [number(part) for part in found.groups()]
        if written[:2] > installed:
            newer = ".".join(map(str, written))
            raise ModelError(
                f"{path} was written by XGBoost {newer}, and {xgboost.__version__} may compute it wrongly: run pip "
                f"install 'xgboost-cpu>={newer}' where the TaskManagers run"
            )
    return written


def _is_classifier(booster: Any, objective: str) -> bool:
    """Return True for `XGBClassifier`, and for `xgboost.train` if the objective has classes."""
    saved = booster.attr("scikit_learn")
    return json.loads(saved).get("_estimator_type") == "classifier" if saved else objective in _CLASSIFIERS


def _categories(path: Path, booster: Any, written: list[int]) -> dict[str, Categories]:
    """Return the categories of the columns that have them; none for files of XGBoost before 3.1.

    Raises:
        ModelError: If the file may hold other texts than the frame had: in place of bytes, XGBoost up to 3.2 counts the
            letters of a column of pandas (dmlc/xgboost#12360), and cuts and moves the texts.
    """
    if CATEGORY not in (booster.feature_types or ()):
        return {}
    found = booster.get_categories(export_to_arrow=True).to_arrow() or ()
    known = {}
    for name, values in found:
        if values is None:
            continue
        texts = values.view("binary").to_pylist() if pa.types.is_string(values.type) else []
        if written[:2] <= _COUNTS_LETTERS and not all(map(bytes.isascii, texts)):
            shown = ", ".join(repr(text.decode("utf8", "replace")) for text in texts[:_MOST_NAMED])
            raise ModelError(
                f"{path} may hold other categories of {name!r} than its training, as XGBoost up to 3.2 stores texts "
                f"with letters beyond ASCII cut and moved ({shown}): train with texts of ASCII or whole numbers, or "
                "set inputs: x, and send codes"
            )
        known[name] = Categories(values.to_pylist(), takes_others=False)
    return known


def _rounds(booster: Any) -> tuple[int, int]:
    """Return the rounds that predict: of the scikit-learn interface up to the best one, of `xgboost.train` all."""
    best = booster.attr("best_iteration")
    return (0, int(best) + 1) if best and booster.attr("scikit_learn") else (0, 0)
