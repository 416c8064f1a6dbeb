"""Types in a file of skops: those of scikit-learn itself, which are data and run no code, and all others."""

import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import sklearn

from cluster_serving.protocol.errors import ModelError

_DATA = (
    *("numpy.dtype", "sklearn.tree._tree.Tree", "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"),
    *("sklearn.neighbors._kd_tree.KDTree", "sklearn.neighbors._ball_tree.BallTree"),
    *(f"sklearn.metrics._dist_metrics.{name}Distance64" for name in ("Euclidean", "Manhattan", "Minkowski")),
    *(f"sklearn.calibration.{name}" for name in ("_CalibratedClassifier", "_SigmoidCalibration")),
    *("sklearn.neural_network._stochastic_optimizers.AdamOptimizer", "sklearn._loss.loss.HalfTweedieLossIdentity"),
)
"""Parts of estimators that skops leaves to its user."""

_MODULES = frozenset(
    {
        *("sklearn.compose._column_transformer", "sklearn.utils._bunch", "sklearn.utils._metadata_requests"),
        *("sklearn.feature_selection._univariate_selection", "sklearn.feature_selection._mutual_info"),
        *("sklearn.metrics._classification", "sklearn.metrics._ranking", "sklearn.metrics._regression"),
        *("sklearn.metrics._scorer", "sklearn.model_selection._split"),
    }
)
"""Modules of which each class and function only computes with what it is given: columns, scores and folds."""

_OWN = ("sklearn.", "_loss.")
"""Beginnings of the names of types of scikit-learn; `_loss` was one of its modules up to version 1.5."""


def check(path: Path, types: Iterable[str]) -> None:
    """Refuse a file with types that skops does not know, unless they are scikit-learn's own and run no code.

    Raises:
        ModelError: The types by name; those that the installed version does not have are told apart.
    """
    left = sorted(name for name in types if name not in _DATA and not _is_data(name))
    if gone := [name for name in left if name.startswith(_OWN) and _found(name) is None]:
        raise ModelError(
            f"{path} was written by scikit-learn {version(path) or '?'}, and {sklearn.__version__} does not have "
            f"{', '.join(gone)}: serve with that version, or train and dump the model with this one"
        )
    if left:
        raise ModelError(
            f"{path} holds the types {', '.join(left)}, which may run code; save the model without them, or write a "
            "handler that loads it (docs/how-to/handlers.md)"
        )


def version(path: Path) -> str:
    """Return the version of scikit-learn that wrote a file; empty if the file does not tell."""
    with ZipFile(path) as archive:
        return _version(json.loads(archive.read("schema.json")))


def _version(node: Any) -> str:
    """Return the first version in a tree of objects; each estimator has that which wrote it."""
    if isinstance(node, dict):
        told = node.get("_sklearn_version")
        if isinstance(told, dict) and isinstance(text := told.get("content"), str):
            return text.strip('"')
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return next(filter(None, map(_version, children)), "")


def _is_data(name: str) -> bool:
    module, _, own = name.rpartition(".")
    found = _found(name)
    if module == "numpy":
        return isinstance(found, type) and issubclass(found, np.generic)
    # A module also has names that it has imported.
    return module in _MODULES and getattr(found, "__module__", "") == module and getattr(found, "__name__", "") == own


def _found(name: str) -> Any:
    module, _, own = name.rpartition(".")
    if module != "numpy" and not module.startswith("sklearn."):
        return None
    try:
        return getattr(import_module(module), own, None)
    except ImportError:
        return None
