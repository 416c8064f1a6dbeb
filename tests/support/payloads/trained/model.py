"""A model of a table beside the class that trained it, whose answers are the right ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LABEL, PROBABILITIES, VALUE, TRANSFORMED = "label", "probabilities", "value", "y"


@dataclass(frozen=True)
class Trained:
    """A model that its class has trained.

    Attributes:
        rows: What the class predicts: a data frame, an array (n, features), or a list of texts.
        save: Writes the file of the model into a folder.
        answers: What the class answers for rows, by the names of our outputs.
        options: Keys of the configuration that the model needs.
    """

    rows: Any
    save: Callable[[Path], Any]
    answers: Callable[[Any], dict[str, Any]]
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Case:
    """A model to train.

    Attributes:
        name: Estimator, objective, task and form of the file.
        train: Trains the model, on a small table.
        is_quick: The case is one of the tests, and not of the program alone.
        refused: What the refusal says; empty for a model that is served.
    """

    name: str
    train: Callable[[], Trained]
    is_quick: bool = False
    refused: str = ""


def of_classifier(model: Any) -> Callable[[Any], dict[str, Any]]:
    """Return the answers of a classifier: its `predict`, and `predict_proba` if it has one."""

    def answers(rows: Any) -> dict[str, Any]:
        label = np.asarray(model.predict(rows))
        # CatBoost has a row of one for each label.
        found = {LABEL: label[:, 0] if label.shape[1:] == (1,) else label}
        return found | ({PROBABILITIES: model.predict_proba(rows)} if hasattr(model, "predict_proba") else {})

    return answers


def of_regressor(model: Any) -> Callable[[Any], dict[str, Any]]:
    """Return the answers of any other model that predicts."""
    return lambda rows: {VALUE: model.predict(rows)}


def records(rows: Any) -> list[dict[str, Any]]:
    """Return rows as records of inputs by name."""
    if isinstance(rows, list):
        return [{"text": np.array(text, object)} for text in rows]
    if isinstance(rows, np.ndarray):
        return [{"x": row} for row in rows]
    return [{name: _plain(value) for name, value in row.items()} for row in rows.astype(object).to_dict("records")]


def _plain(value: Any) -> Any:
    return None if value is None or (isinstance(value, float) and np.isnan(value)) else value
