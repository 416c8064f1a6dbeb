#!/usr/bin/env bash
# Guess: XGBoost 3.0 refuses a file that XGBoost 3.2 wrote, or warns, if it cannot read all of it.
# Happens: it loads the file without a word, and predicts without the base score: 1 where 3.2 predicts 100.
#   The file has "base_score": "[9.99E1]", a list, and older readers take that for 0. The guess was wrong.
# Since: seen with files of 3.2.0, read by 3.0.5 and 2.1.4; 3.2.0 reads them rightly.
# Ours: job/models/tabular/xgboost.py refuses a file of a newer version than the installed one.
. "$(dirname "$0")/support/venv.sh"
packages numpy==2.1.3 xgboost-cpu==3.2.0
venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --target older xgboost-cpu==3.0.5
cat >read.py <<'PYTHON'
import numpy, xgboost

model = xgboost.Booster(model_file="model.json")
answers = model.predict(xgboost.DMatrix(numpy.load("records.npy")))
numpy.save(f"answers-{xgboost.__version__}.npy", answers)
print(f"XGBoost {xgboost.__version__} predicts {answers[:3]}")
PYTHON
venv/bin/python - <<'PYTHON'
import json

import numpy, xgboost

records = numpy.random.default_rng(0).normal(size=(300, 3))
numpy.save("records.npy", records)
data = xgboost.DMatrix(records, 100 + records[:, 0])
model = xgboost.train({"nthread": 1}, data, 3)
model.save_model("model.json")
with open("model.json") as file:
    print("base_score in the file:", json.load(file)["learner"]["learner_model_param"]["base_score"])
PYTHON
venv/bin/python read.py
PYTHONPATH=older venv/bin/python read.py
venv/bin/python - <<'PYTHON'
import numpy

newer, older = numpy.load("answers-3.2.0.npy"), numpy.load("answers-3.0.5.npy")
assert abs(newer - 100).max() < 5 and abs(newer - older).min() > 90
PYTHON
