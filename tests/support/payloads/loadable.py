"""A small model of each engine, and of each way to read its files, with a record for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo, tables, texts
from tests.support.payloads.engines import ENGINES

DIGIT = np.arange(64, dtype=np.float32) / 64


@dataclass(frozen=True)
class Loadable:
    """A model to be loaded.

    Attributes:
        save: Writes it into a folder.
        record: Inputs of a request.
        options: Fields of `ModelOptions`.
    """

    save: Callable[[Path], object]
    record: Mapping[str, Any] = field(default_factory=lambda: {"x": DIGIT})
    options: Mapping[str, Any] = field(default_factory=dict)


def _xgboost(folder: Path) -> None:
    import xgboost

    xgboost.XGBClassifier(n_estimators=8, n_jobs=1).fit(*tables.iris()).save_model(folder / "model.ubj")


def _lightgbm(folder: Path) -> None:
    import lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=8, n_jobs=1, verbose=-1).fit(*tables.iris())
    model.booster_.save_model(folder / "model.txt")


def _catboost(folder: Path) -> None:
    import catboost

    model = catboost.CatBoostClassifier(iterations=8, verbose=False, allow_writing_files=False)
    model.fit(*tables.iris()).save_model(str(folder / "model.cbm"))


def _scikit_learn(folder: Path) -> None:
    import skops.io
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = tables.iris()
    model = make_pipeline(StandardScaler(), RandomForestClassifier(8, random_state=0)).fit(tables.frame(x), y)
    skops.io.dump(model, folder / "model.skops")


def _pickle(folder: Path) -> None:
    import torch

    torch.save(torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.Softmax(1)), folder / "model.pt")


_FLOWER = np.array([5.1, 3.5, 1.4, 0.2])
_WORD = np.array("word 0 ü", object)

LOADABLE = {
    **{name: Loadable(engine.save_digits, options={"input_shapes": ((64,),)}) for name, engine in ENGINES.items()},
    "TorchScript without shapes": Loadable(model_zoo.save_torchscript_digits),
    "PyTorch pickle": Loadable(_pickle, {"input": DIGIT}, {"allow_pickle": True, "input_shapes": ((64,),)}),
    "OpenVINO in several threads": Loadable(
        model_zoo.save_openvino_digit_images, {"x": np.stack([DIGIT.reshape(8, 8)] * 3)}, {"thread_per_model": 2}
    ),
    "Keras as h5": Loadable(partial(model_zoo.save_keras_digits, suffix=".h5")),
    "Keras with a table of words": Loadable(partial(ENGINES["Keras"].save_words, shape=(1,)), {"x": _WORD}),  # type: ignore[arg-type]
    "XGBoost": Loadable(_xgboost, {"x": _FLOWER}),
    "LightGBM": Loadable(_lightgbm, {"x": _FLOWER}),
    "CatBoost": Loadable(_catboost, {"x": _FLOWER}),
    "scikit-learn": Loadable(_scikit_learn, dict(zip(tables.NAMES, _FLOWER, strict=True))),
    "ONNX Runtime with texts": Loadable(texts.save_reader, {"text": np.array("the cat sat on the mat", object)}),
}
"""Name → model."""
