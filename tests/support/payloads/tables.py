"""Tables that ship with scikit-learn, and rows with holes."""

from __future__ import annotations

from typing import Any

import numpy as np


def iris() -> tuple[np.ndarray, np.ndarray]:
    """Three classes of flowers: float64 (150, 4), and classes from 0."""
    from sklearn.datasets import load_iris

    return load_iris(return_X_y=True)


def cancer() -> tuple[np.ndarray, np.ndarray]:
    """Two classes: float64 (569, 30), and classes from 0."""
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(return_X_y=True)


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """A regression: float64 (442, 10), and numbers."""
    from sklearn.datasets import load_diabetes

    return load_diabetes(return_X_y=True)


def holed(x: np.ndarray, share: float = 0.2) -> np.ndarray:
    """The table with NaN in a share of its cells."""
    return np.where(np.random.default_rng(0).random(x.shape) < share, np.nan, x)


NAMES = ("sepal_length", "sepal_width", "petal_length", "petal_width")


def frame(x: np.ndarray) -> Any:
    """Rows of the iris table as a data frame."""
    import pandas as pd

    return pd.DataFrame(x, columns=list(NAMES))


def named(x: np.ndarray) -> list[dict[str, Any]]:
    """Rows of the iris table as records of columns."""
    return [dict(zip(NAMES, row, strict=True)) for row in x]


def labels() -> tuple[np.ndarray, np.ndarray]:
    """The table of `diabetes`, and three labels for each row, of which none, some or all are 1."""
    x, y = diabetes()
    targets = np.stack([y, y[::-1], x[:, 0]], axis=1)
    return x, (targets > targets.mean(axis=0)).astype(int)


def categories() -> tuple[Any, np.ndarray]:
    """A data frame of categories, texts and numbers, and a number; and what follows from them."""
    import pandas as pd

    at = np.arange(120)
    frame = pd.DataFrame(
        {
            "size": pd.Categorical(np.array(["small", "large", "medium", "tiny"])[at % 4]),
            "floor": pd.Categorical(at % 3 + 5),
            "area": (at % 11).astype(float),
        }
    )
    return frame, (at % 4 * 10 + at % 3 * 100 + at % 11).astype(float)
