"""Small tables of numbers, categories, texts and holes, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np

ROWS = 90
SIZES = ("tiny", "small", "large")


def numbers(features: int = 4) -> np.ndarray:
    """Numbers (90, features) of several scales, all positive."""
    found = np.random.default_rng(0).gamma(2.0, size=(ROWS, features))
    found[:, -1] *= 100
    return found


def holes() -> np.ndarray:
    """The same numbers, of which a fifth is missing."""
    found = numbers()
    return np.where(np.random.default_rng(1).random(found.shape) < 0.2, np.nan, found)


def mixed() -> Any:
    """A data frame of numbers, whole numbers, truth values, categories and texts; all but whole numbers have holes."""
    import pandas as pd

    x, at = numbers(), np.arange(ROWS)
    return pd.DataFrame(
        {
            "unit price": np.where(at % 7 == 0, np.nan, x[:, 0]),
            "größe": x[:, 3],
            "count": at % 11,
            "is_new": at % 2 == 0,
            "size": pd.Categorical(np.where(at % 13 == 0, None, np.array(SIZES)[at % 3]), categories=SIZES),
            "floor": pd.Categorical(at % 4 + 5),
            "colour": np.where(at % 9 == 0, None, np.array(["red", "dark green", "blau"])[at // 2 % 3]),
        }
    )


def score() -> np.ndarray:
    """Numbers from 0.1 to 1 that follow from each column of the tables."""
    x, at = numbers(), np.arange(ROWS)
    found = x[:, 0] + x[:, 1] + x[:, 3] / 100 + at % 3 + at % 4 + at // 2 % 3
    return 0.1 + 0.9 * (found - found.min()) / np.ptp(found)


def classes(count: int) -> np.ndarray:
    """Classes from 0 of about equal sizes."""
    ranks = score().argsort().argsort()
    return ranks * count // ROWS


def labels() -> np.ndarray:
    """Three labels (90, 3) for each row, each 0 or 1."""
    ranks = score().argsort().argsort()
    return np.stack([ranks % 2, ranks > ROWS // 2, ranks > ROWS // 3], 1).astype(int)


GROUPS = np.full(ROWS // 10, 10)
"""Sizes of the groups of a ranking."""

GRADES = np.arange(ROWS) * 7 % 4
"""Grades of the rows of a ranking, from 0 to 3."""
