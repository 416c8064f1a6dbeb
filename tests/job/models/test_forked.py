"""A process that was forked after a call is told to spawn, instead of waiting for ever."""

import os
import signal

import lightgbm
import pytest
import skops.io
import xgboost
from sklearn.ensemble import HistGradientBoostingClassifier

from cluster_serving import Predictor
from cluster_serving.protocol.errors import ModelError
from tests.support.payloads import tables

LONGEST_S = 60


def in_child(function):
    """Return what a forked child gets: the text of the error, or of the result; empty if it hangs."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST_S)
        try:
            os.write(write, str(function()).encode())
        except ModelError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text


def save_lightgbm(folder, x, y):
    lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(x, y).booster_.save_model(folder / "model.txt")


def save_xgboost(folder, x, y):
    xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(x, y).save_model(folder / "model.ubj")


def save_histograms(folder, x, y):
    skops.io.dump(HistGradientBoostingClassifier(max_iter=3).fit(x, y), folder / "model.skops")


@pytest.mark.parametrize(
    ("save", "engine"),
    [(save_lightgbm, "LightGBM"), (save_xgboost, "XGBoost"), (save_histograms, "scikit-learn")],
)
def test_a_fork_after_a_call_is_told_to_spawn(tmp_path, save, engine):
    x, y = tables.iris()
    save(tmp_path, x, y)
    predictor = Predictor(tmp_path, thread_per_model=2)
    labels = predictor({"x": x})["label"]
    expected = f"this process was forked after {engine} had computed with several threads"
    for asked in (predictor, Predictor(tmp_path, thread_per_model=1)):
        told = in_child(lambda asked=asked: asked({"x": x}))
        assert told.startswith(expected) and "multiprocessing.get_context('spawn')" in told
    assert (predictor({"x": x})["label"] == labels).all()
