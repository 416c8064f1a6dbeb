"""Engines that are imported without the libraries that they offer to work with."""

import subprocess
import sys

import pytest

from cluster_serving.job.models.lean import lean

PROGRAM = """
import sys
from pathlib import Path
from threading import Thread

import numpy as np

from cluster_serving.job.predictor import Predictor
from cluster_serving.job.models.lean import _missing

def answers():
    predictors = map(Predictor, map(Path, sys.argv[1:]))
    return [predictor.predict([{"x": np.float32([0.5, 2])}])[0]["value"].tolist() for predictor in predictors]

before = answers()
assert not {"sklearn", "pandas", "xgboost", "lightgbm"} & sys.modules.keys()

# Other threads find what this one does not.
with _missing(("sklearn", "wave")):
    thread = Thread(target=lambda: __import__("sklearn.base"))
    thread.start()
    thread.join()
    assert "sklearn.base" in sys.modules
    try:
        import wave
    except ModuleNotFoundError as error:
        assert error.name == "wave"
    else:
        raise AssertionError("it was found")

# A handler in the same process gets them whole.
import lightgbm, xgboost

xs, ys = np.float32([[0, 1], [1, 0], [0, 0], [1, 1]] * 20), np.arange(80) % 4
assert xgboost.XGBRegressor(n_estimators=2).fit(xs, ys).predict(xs).shape == (80,)
assert lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(xs, ys).predict(xs).shape == (80,)
assert answers() == before
print(before)
"""


def test_a_model_of_trees_loads_no_library_for_its_training_and_a_handler_finds_them_whole(tmp_path):
    import lightgbm
    import numpy as np
    import xgboost

    xs = np.random.default_rng(0).random((200, 2), np.float32)
    ys = xs @ np.float32([3, 1])
    folders = [tmp_path / "xgboost", tmp_path / "lightgbm"]
    for folder in folders:
        folder.mkdir()
    trees = xgboost.XGBRegressor(n_estimators=3).fit(xs, ys)
    trees.save_model(folders[0] / "model.ubj")
    others = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(xs, ys)
    others.booster_.save_model(folders[1] / "model.txt")
    done = subprocess.run([sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = np.float32([[0.5, 2]])
    expected = [trees.predict(row)[0], others.predict(row)[0]]
    assert np.allclose(np.array(eval(done.stdout), float).ravel(), expected, rtol=1e-6)  # noqa: S307 - of our program


def test_a_package_that_is_missing_is_named():
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_engine'") as caught:
        lean("no_such_engine", without=())
    assert caught.value.name == "no_such_engine"
