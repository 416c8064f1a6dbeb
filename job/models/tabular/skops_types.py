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
    *("numpy.dtype", *(f"numpy.{name}" for name in ("max", "mean", "median", "min", "sum"))),
    *("builtins.object", "functools.partial", "sklearn.utils.validation.check_array"),
    *(f"scipy.sparse._{name}.{name}_{kind}" for name in ("csr", "csc", "coo") for kind in ("matrix", "array")),
    *("scipy.interpolate._bsplines.BSpline", "scipy._lib.array_api_compat.numpy._aliases.asarray"),
)
"""Types and functions that only hold or compute numbers. What a partial function calls is a type of its own here."""

_FOLDERS = frozenset(
    {
        *("_loss", "base", "calibration", "cluster", "compose", "covariance", "cross_decomposition", "decomposition"),
        *("discriminant_analysis", "dummy", "ensemble", "feature_extraction", "feature_selection", "frozen"),
        *("gaussian_process", "impute", "isotonic", "kernel_approximation", "kernel_ridge", "linear_model", "manifold"),
        *("metrics", "mixture", "model_selection", "multiclass", "multioutput", "naive_bayes", "neighbors"),
        *("neural_network", "pipeline", "preprocessing", "random_projection", "semi_supervised", "svm", "tree"),
    }
)
"""Parts of scikit-learn whose classes are estimators, and what these hold: trees, kernels, losses, distances."""

_MODULES = frozenset(
    {
        *("sklearn.compose._column_transformer", "sklearn.utils._bunch", "sklearn.utils._metadata_requests"),
        *("sklearn.cluster._bisect_k_means", "sklearn.cluster._kmeans"),
        *("sklearn.feature_selection._univariate_selection", "sklearn.feature_selection._mutual_info"),
        *("sklearn.metrics._classification", "sklearn.metrics._ranking", "sklearn.metrics._regression"),
        *("sklearn.metrics._scorer", "sklearn.metrics.pairwise", "sklearn.model_selection._split"),
    }
)
"""Modules whose classes and functions all compute only with what they are given: columns, scores and folds."""

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
    if (getattr(found, "__module__", ""), getattr(found, "__name__", "")) != (module, own):
        return False
    return module in _MODULES or (isinstance(found, type) and module.split(".")[1] in _FOLDERS)


def _found(name: str) -> Any:
    module, _, own = name.rpartition(".")
    if module != "numpy" and not module.startswith("sklearn."):
        return None
    try:
        return getattr(import_module(module), own, None)
    except ImportError:
        return None
